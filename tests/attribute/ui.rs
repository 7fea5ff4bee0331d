//! The cases of the compiler: code that compiles, and code that does not, with rustc's messages.
//!
//! Every file in `ui/pass` compiles without a warning. Every file in `ui/fail` gets exactly the errors that it
//! announces, one on each line:
//!
//! ```text
//! //~ ERROR "text under the caret" words of the message, its notes or labels
//! //~ WARN "text under the caret" words
//! ```
//!
//! Words and carets come from rustc's JSON, so the cases hold with any compiler. Starting a compiler takes
//! longer than checking a case, so the cases of a package are modules of two programs: one of those that pass,
//! and one of those that fail. A case that must be a program of its own says why:
//!
//! ```text
//! //~ ALONE it names the root of the crate
//! ```
//!
//! A case is checked in edition 2024, unless it names its editions:
//!
//! ```text
//! //~ EDITIONS 2018 2021 2024
//! ```
//!
//! One run of cargo checks all cases. Another one checks those in `ui_web`, which see distlock with both web
//! frameworks; it finds what both runs need already compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A package of cases.
struct Package {
    name: &'static str,
    /// The cases whose name contains this text belong to it.
    cases: &'static str,
    /// The name of `distlock` there.
    dependency: &'static str,
    edition: &'static str,
    features: &'static [&'static str],
    /// Dependencies that only this package has.
    more: &'static str,
}

const LATEST: &str = "2024";
const PLAIN: Package = Package {
    name: "plain",
    cases: "",
    dependency: "distlock",
    edition: LATEST,
    features: &[],
    more: "",
};
/// The packages with default features.
const PLAIN_PACKAGES: [Package; 4] = [
    PLAIN,
    Package { name: "renamed", cases: "renamed", dependency: "renamed", ..PLAIN },
    Package { name: "edition_2018", edition: "2018", ..PLAIN },
    Package { name: "edition_2021", edition: "2021", ..PLAIN },
];
const WEB: Package = Package {
    name: "web",
    features: &["axum", "actix"],
    more: "axum = { version = \"0.8\", default-features = false, features = [\"json\", \"macros\"] }\n\
           actix-web = { version = \"4\", default-features = false, features = [\"macros\"] }\n",
    ..PLAIN
};
const WEB_PACKAGES: [Package; 2] =
    [WEB, Package { name: "tower", cases: "tower", features: &["tower"], ..PLAIN }];

#[derive(Debug, Clone, PartialEq)]
struct Said {
    level: String,
    caret: String,
    words: String,
}

/// Fault: FW2, FW7, H1, WM9.
#[test]
fn compiler_says_what_the_cases_announce() {
    judge("ui", &PLAIN_PACKAGES, 312);
}

/// Fault: FW9, WM9.
#[test]
fn compiler_says_what_the_cases_with_web_frameworks_announce() {
    judge("ui_web", &WEB_PACKAGES, 35);
}

/// A file of `pass` or `fail`.
struct Case {
    path: PathBuf,
    source: String,
}

impl Case {
    fn is_alone(&self) -> bool {
        self.source.lines().any(|line| line.starts_with("//~ ALONE "))
    }

    /// The editions that it names.
    fn editions(&self) -> Option<&str> {
        self.source.lines().find_map(|line| line.strip_prefix("//~ EDITIONS "))
    }

    /// Returns the packages that check it.
    fn packages<'a>(&self, name: &str, packages: &'a [Package]) -> Vec<&'a Package> {
        let named = packages
            .iter()
            .find(|package| !package.cases.is_empty() && name.contains(package.cases));
        let cases = named.map_or("", |package| package.cases);
        let in_edition = |edition: &str| {
            let fits = |package: &&Package| package.cases == cases && package.edition == edition;
            packages.iter().find(fits).unwrap_or_else(|| panic!("{name}: no edition {edition}"))
        };
        self.editions().unwrap_or(LATEST).split(' ').map(in_edition).collect()
    }
}

/// By `pass/name` and `fail/name`.
type Cases = BTreeMap<String, Case>;

fn judge(directory: &str, packages: &[Package], at_least: usize) {
    let mut cases = Cases::new();
    for kind in ["pass", "fail"] {
        for path in rust_files(&Path::new(ROOT).join("tests").join(directory).join(kind)) {
            let stem = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let source = fs::read_to_string(&path).expect("a case");
            cases.insert(format!("{kind}/{stem}"), Case { path, source });
        }
    }
    let mut said = check(directory, packages, &cases);
    let (mut checked, mut failures) = (0, String::new());
    for (name, case) in &cases {
        let expected = expectations(case);
        if name.starts_with("fail") {
            assert!(!expected.is_empty(), "{name} announces nothing");
        }
        for package in case.packages(name, packages) {
            checked += 1;
            let checked_case = format!("{}: {name}", package.name);
            let found = said.remove(&checked_case).unwrap_or_default();
            if let Some(difference) = compare(&checked_case, &expected, found) {
                failures.push_str(&difference);
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(said.is_empty(), "of cases that are in no package: {said:#?}");
    assert!(checked >= at_least, "cases are missing: {checked}");
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .expect("the cases")
        .map(|entry| entry.expect("a case").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn expectations(case: &Case) -> Vec<Said> {
    let line = |line: &str| {
        let rest = line.trim_start().strip_prefix("//~ ")?;
        let (level, rest) = rest.split_once(' ')?;
        // The caret's text may contain quotes: it ends at the last one before the words.
        let (caret, words) = rest.strip_prefix('"')?.rsplit_once("\" ")?;
        let level = match level {
            "ERROR" => "error",
            "WARN" => "warning",
            other => panic!("{}: {other}?", case.path.display()),
        };
        Some(Said { level: level.into(), caret: caret.into(), words: words.into() })
    };
    let announced = case.source.lines().filter(|line| line.contains("//~")).count();
    let read: Vec<Said> = case.source.lines().filter_map(line).collect();
    let settings = usize::from(case.is_alone()) + usize::from(case.editions().is_some());
    let lines = read.len() + settings;
    assert_eq!(lines, announced, "{}: an unreadable `//~` line", case.path.display());
    read
}

/// Checks all cases in a workspace of their own, and returns the messages about each, by package and case.
fn check(directory: &str, packages: &[Package], cases: &Cases) -> BTreeMap<String, Vec<Said>> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui_target");
    let mut programs = 0;
    for package in packages {
        programs += package.write(&directory.join(package.name), packages, cases);
    }
    let names: Vec<&str> = packages.iter().map(|package| package.name).collect();
    // Most cases are compiled only once. Writing the data for a second, incremental time would be more work
    // than the case itself.
    let workspace = format!(
        "[workspace]\nmembers = {names:?}\nresolver = \"3\"\n\n\
         [profile.dev]\nincremental = false\ndebug = false\n"
    );
    write(&directory.join("Cargo.toml"), &workspace);
    fs::copy(Path::new(ROOT).join("Cargo.lock"), directory.join("Cargo.lock"))
        .expect("a lock file");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--message-format=json", "--offline", "--keep-going", "--workspace"])
        .current_dir(&directory)
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null())
        .output()
        .expect("cargo runs");

    let mut said: BTreeMap<String, Vec<Said>> = BTreeMap::new();
    let mut checked = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let package = package_of(&message).unwrap_or_default();
        if message["target"]["kind"][0] == "bin" {
            checked.insert((package.to_owned(), message["target"]["name"].to_string()));
        }
        if message["reason"] == "compiler-message"
            && let Some((case, words)) = read(&message["message"], cases)
        {
            said.entry(format!("{package}: {case}")).or_default().push(words);
        }
    }
    assert_eq!(
        checked.len(),
        programs,
        "cargo did not get to all the cases:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Returns the name of the package that a message of cargo is about.
fn package_of(message: &Value) -> Option<&str> {
    let (_, package) = message["package_id"].as_str()?.rsplit_once("distlock-ui-")?;
    package.split('@').next()
}

impl Package {
    /// Writes its programs, and returns their number.
    fn write(&self, home: &Path, packages: &[Package], cases: &Cases) -> usize {
        let Package { name, dependency, edition, features, more, .. } = self;
        let mut manifest = format!(
            "[package]\nname = \"distlock-ui-{name}\"\nversion = \"0.0.0\"\nedition = {edition:?}\n\
             publish = false\nautobins = false\n\n[dependencies]\n\
             {dependency} = {{ package = \"distlock\", path = {ROOT:?}, features = {features:?} }}\n\
             tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\
             async-trait = \"0.1\"\n{more}"
        );
        let is_ours = |(case_name, case): &(&String, &Case)| {
            case.packages(case_name, packages).iter().any(|package| package.name == *name)
        };
        let (mut programs, mut together) = (0, [String::new(), String::new()]);
        let mut program = |name: &str, path: &Path| {
            programs += 1;
            write!(manifest, "\n[[bin]]\nname = {name:?}\npath = {path:?}\n")
                .expect("a String takes it");
        };
        for (name, case) in cases.iter().filter(is_ours) {
            let module = name.replace('/', "_");
            if case.is_alone() {
                program(&module, &case.path);
            } else if name.starts_with("pass") {
                // Unless something calls `main`, it is unused, and so is everything that it calls.
                let called = "\npub(crate) fn case() {\n    let _ = main();\n}\n";
                let copy = home.join("src").join(name).with_extension("rs");
                write(&copy, &(case.source.clone() + called));
                let [passing, _] = &mut together;
                let _ = writeln!(passing, "#[path = {copy:?}]\nmod {module};");
            } else {
                let [_, failing] = &mut together;
                let _ = writeln!(failing, "#[path = {:?}]\nmod {module};", case.path);
            }
        }
        for (kind, mut modules) in ["pass", "fail"].into_iter().zip(together) {
            if modules.is_empty() {
                continue;
            }
            let calls = modules.lines().filter_map(|line| line.strip_prefix("mod pass_"));
            let calls: String = calls
                .map(|name| format!("    pass_{}::case();\n", name.replace(';', "")))
                .collect();
            let _ = writeln!(modules, "\nfn main() {{\n{calls}}}");
            let root = home.join("src").join(kind).with_extension("rs");
            write(&root, &modules);
            program(kind, &root);
        }
        write(&home.join("Cargo.toml"), &manifest);
        programs
    }
}

/// Writes a file if it is missing or has another text. Cargo compares times.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory");
    if fs::read_to_string(path).is_ok_and(|known| known == text) {
        return;
    }
    fs::write(path, text).expect("a file");
}

/// Returns an error or a warning of rustc with its case, or `None` for its closing remarks, which name no
/// place.
fn read(message: &Value, cases: &Cases) -> Option<(String, Said)> {
    let level = message["level"].as_str()?;
    let mut primary =
        message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    let case = loop {
        let file = Path::new(primary["file_name"].as_str()?).with_extension("");
        let name = cases.keys().find(|name| file.ends_with(name));
        match name {
            Some(name) => break name.clone(),
            // The place is inside a macro of the standard library. Use the place where the case called it.
            None => primary = &primary["expansion"]["span"],
        }
    };
    let mut words = message["message"].as_str()?.to_owned();
    let labels = message["spans"].as_array()?.iter().filter_map(|span| span["label"].as_str());
    let notes = message["children"].as_array()?.iter().filter_map(|note| note["message"].as_str());
    for more in labels.chain(notes) {
        words.push('\n');
        words.push_str(more);
    }
    // If two cases have a type of the same name, rustc adds the module to each.
    let words = words.replace(&format!("{}::", case.replace('/', "_")), "");
    Some((case, Said { level: level.into(), caret: under_caret(primary), words }))
}

fn under_caret(span: &Value) -> String {
    let line = |line: &Value| {
        let text: Vec<char> = line["text"].as_str().unwrap_or_default().chars().collect();
        let column = |name: &str| line[name].as_u64().map_or(0, |at| at as usize - 1);
        text[column("highlight_start").min(text.len())..column("highlight_end").min(text.len())]
            .iter()
            .collect::<String>()
    };
    let lines: Vec<String> = span["text"].as_array().into_iter().flatten().map(line).collect();
    lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn compare(name: &str, expected: &[Said], mut found: Vec<Said>) -> Option<String> {
    let mut missing = Vec::new();
    for expectation in expected {
        let fits = |said: &Said| {
            said.level == expectation.level
                && said.caret == expectation.caret
                && said.words.contains(&expectation.words)
        };
        match found.iter().position(fits) {
            Some(at) => drop(found.remove(at)),
            None => missing.push(expectation),
        }
    }
    if missing.is_empty() && found.is_empty() {
        return None;
    }
    let mut text = format!("\n=== {name}\n");
    for said in missing {
        let Said { level, caret, words } = said;
        writeln!(text, "missing: {level} \"{caret}\" {words}").expect("a String takes it");
    }
    for Said { level, caret, words } in found {
        writeln!(text, "not announced: {level} \"{caret}\" {words}").expect("a String takes it");
    }
    Some(text)
}
