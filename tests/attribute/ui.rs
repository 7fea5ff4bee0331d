//! What compiles and what does not, and what rustc says then.
//!
//! Every file in `ui/pass` compiles without a warning. Every file in `ui/fail` gets exactly the
//! errors it announces, a line each:
//!
//! ```text
//! //~ ERROR "text under the caret" words of the message, its notes or labels
//! //~ WARN "text under the caret" words
//! ```
//!
//! Words and carets come from rustc's JSON, so the cases hold with any compiler. All of them are
//! checked by one run of cargo; those in `ui_web`, which see distlock with both web frameworks, by
//! another, which finds what both need compiled already.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A package of cases: those whose name contains its own.
struct Package {
    name: &'static str,
    /// What `distlock` is called there.
    dependency: &'static str,
    edition: &'static str,
    features: &'static [&'static str],
    /// Other dependencies than all have.
    more: &'static str,
}

const PLAIN: Package =
    Package { name: "plain", dependency: "distlock", edition: "2024", features: &[], more: "" };
/// With default features. Cases that name none are in the first.
const PLAIN_PACKAGES: [Package; 4] = [
    PLAIN,
    Package { name: "renamed", dependency: "renamed", ..PLAIN },
    Package { name: "edition_2018", edition: "2018", ..PLAIN },
    Package { name: "edition_2021", edition: "2021", ..PLAIN },
];
const WEB_PACKAGES: [Package; 1] = [Package {
    name: "web",
    features: &["axum", "actix"],
    more: "axum = { version = \"0.8\", default-features = false, features = [\"json\", \"macros\"] }\n\
           actix-web = { version = \"4\", default-features = false, features = [\"macros\"] }\n",
    ..PLAIN
}];

#[derive(Debug, Clone, PartialEq)]
struct Said {
    level: String,
    caret: String,
    words: String,
}

#[test]
fn compiler_says_what_the_cases_announce() {
    judge("ui", &PLAIN_PACKAGES, 200);
}

#[test]
fn compiler_says_what_the_cases_with_web_frameworks_announce() {
    judge("ui_web", &WEB_PACKAGES, 15);
}

fn judge(directory: &str, packages: &[Package], at_least: usize) {
    let mut cases = BTreeMap::new();
    for kind in ["pass", "fail"] {
        for path in rust_files(&Path::new(ROOT).join("tests").join(directory).join(kind)) {
            let stem = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            cases.insert(format!("{kind}-{stem}"), path);
        }
    }
    assert!(cases.len() > at_least, "cases are missing: {}", cases.len());

    let mut said = check(directory, packages, &cases);
    let mut failures = String::new();
    for (name, path) in &cases {
        let expected = expectations(path);
        if name.starts_with("fail") {
            assert!(!expected.is_empty(), "{name} announces nothing");
        }
        let found = said.remove(name).unwrap_or_default();
        if let Some(difference) = compare(name, &expected, found) {
            failures.push_str(&difference);
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .expect("the cases")
        .map(|entry| entry.expect("a case").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn expectations(path: &Path) -> Vec<Said> {
    let source = fs::read_to_string(path).expect("a case");
    let line = |line: &str| {
        let rest = line.trim_start().strip_prefix("//~ ")?;
        let (level, rest) = rest.split_once(' ')?;
        // The caret's text may contain quotes: it ends at the last one before the words.
        let (caret, words) = rest.strip_prefix('"')?.rsplit_once("\" ")?;
        let level = match level {
            "ERROR" => "error",
            "WARN" => "warning",
            other => panic!("{}: {other}?", path.display()),
        };
        Some(Said { level: level.into(), caret: caret.into(), words: words.into() })
    };
    let announced = source.lines().filter(|line| line.contains("//~")).count();
    let read: Vec<Said> = source.lines().filter_map(line).collect();
    assert_eq!(read.len(), announced, "{}: an unreadable `//~` line", path.display());
    read
}

/// Checks all cases in a package of their own, and returns what was said about each.
fn check(
    directory: &str,
    packages: &[Package],
    cases: &BTreeMap<String, PathBuf>,
) -> BTreeMap<String, Vec<Said>> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui_target");
    for package in packages {
        let home = directory.join(package.name);
        fs::create_dir_all(&home).expect("a directory for the cases");
        let manifest = manifest(package, packages, cases);
        fs::write(home.join("Cargo.toml"), manifest).expect("a manifest");
    }
    let names: Vec<&str> = packages.iter().map(|package| package.name).collect();
    // Most cases are compiled once and then never again: what a second time could go on from would be
    // more work than the case itself.
    let workspace = format!(
        "[workspace]\nmembers = {names:?}\nresolver = \"3\"\n\n\
         [profile.dev]\nincremental = false\ndebug = false\n"
    );
    fs::write(directory.join("Cargo.toml"), workspace).expect("a manifest");
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
    let mut checked = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let name = message["target"]["name"].as_str().unwrap_or_default().to_owned();
        checked +=
            usize::from(message["reason"] == "compiler-artifact" && cases.contains_key(&name));
        if message["reason"] == "compiler-message" {
            said.entry(name).or_default().extend(read(&message["message"]));
        }
    }
    let wrong = cases.keys().filter(|name| said.contains_key(*name)).count();
    assert!(
        checked + wrong >= cases.len(),
        "cargo did not get to the cases:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

fn manifest(package: &Package, packages: &[Package], cases: &BTreeMap<String, PathBuf>) -> String {
    let Package { name, dependency, edition, features, more } = package;
    let mut manifest = format!(
        "[package]\nname = \"distlock-ui-{name}\"\nversion = \"0.0.0\"\nedition = {edition:?}\n\
         publish = false\nautobins = false\n\n[dependencies]\n\
         {dependency} = {{ package = \"distlock\", path = {ROOT:?}, features = {features:?} }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\
         async-trait = \"0.1\"\n{more}"
    );
    let package_of = |case: &str| {
        let named = packages.iter().find(|package| case.contains(package.name));
        named.unwrap_or(&packages[0]).name
    };
    for (case, path) in cases.iter().filter(|(case, _)| package_of(case) == *name) {
        write!(manifest, "\n[[bin]]\nname = {case:?}\npath = {path:?}\n")
            .expect("a String takes it");
    }
    manifest
}

/// An error or a warning of rustc; nothing for its closing remarks, which have no place.
fn read(message: &Value) -> Option<Said> {
    let level = message["level"].as_str()?;
    let mut primary =
        message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    // Inside a macro of the standard library: where the case called it.
    while !primary["file_name"].as_str()?.contains("tests/ui") {
        primary = &primary["expansion"]["span"];
    }
    let mut words = message["message"].as_str()?.to_owned();
    let labels = message["spans"].as_array()?.iter().filter_map(|span| span["label"].as_str());
    let notes = message["children"].as_array()?.iter().filter_map(|note| note["message"].as_str());
    for more in labels.chain(notes) {
        words.push('\n');
        words.push_str(more);
    }
    Some(Said { level: level.into(), caret: under_caret(primary), words })
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
