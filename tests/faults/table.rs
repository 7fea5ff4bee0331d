//! The table and the tests say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ENTRIES: [(&str, usize); 22] = [
    ("A", 12),
    ("B", 14),
    ("C", 10),
    ("D", 11),
    ("E", 10),
    ("F", 39),
    ("G", 16),
    ("H", 14),
    ("I", 6),
    ("P", 9),
    ("Q", 7),
    ("S", 7),
    ("ET", 8),
    ("WH", 5),
    ("WM", 9),
    ("WL", 2),
    ("Z", 5),
    ("FC", 10),
    ("FS", 3),
    ("FD", 11),
    ("FW", 11),
    ("FO", 14),
];

struct Row {
    /// `module::name`.
    tests: Vec<String>,
    remark: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The rows by their entry.
fn table() -> BTreeMap<String, Row> {
    let mut table = BTreeMap::new();
    for line in read(&root().join("tests/faults/README.md")).lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, entry, _, tests, remark, _] = cells[..] else { continue };
        if !entry.ends_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let tests = tests.split('`').map(str::trim).filter(|test| !test.is_empty());
        let row = Row { tests: tests.map(str::to_owned).collect(), remark: remark.to_owned() };
        assert!(table.insert(entry.to_owned(), row).is_none(), "{entry} has two rows");
    }
    table
}

/// Where the tests of a module are.
fn source(module: &str) -> Option<PathBuf> {
    let places = [
        "tests/faults",
        "tests",
        "verification/soak/tests",
        "tests/web/src",
        "examples/axum_orders/tests",
        "examples/orders/tests",
        "distlock-runtime/src",
        "distlock-macros/src",
        ".",
    ];
    let paths = places.map(|place| root().join(place).join(module).with_extension("rs"));
    paths.into_iter().find(|path| path.exists())
}

#[test]
fn every_entry_has_one_row_and_a_row_without_a_test_says_why() {
    let table = table();
    let mut entries = 0;
    for (section, last) in ENTRIES {
        for number in 1..=last {
            let entry = format!("{section}{number}");
            let row = table.get(&entry).unwrap_or_else(|| panic!("{entry} has no row"));
            assert!(!row.tests.is_empty() || !row.remark.is_empty(), "{entry} says nothing");
            entries += 1;
        }
    }
    assert_eq!(table.len(), entries, "entries that are not in the catalogue");
}

#[test]
fn every_test_in_the_table_exists() {
    for (entry, Row { tests, .. }) in table() {
        for test in tests {
            let (module, name) = test.split_once("::").unwrap_or_else(|| panic!("{entry}: {test}"));
            let path = source(module).unwrap_or_else(|| panic!("{entry}: no {module}"));
            assert!(read(&path).contains(&format!("fn {name}(")), "{entry}: there is no {test}");
        }
    }
}

/// The rows of a table whose columns are deployments: what happens, and the cells.
fn deployments(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        if let [_, what, columns @ .., _] = cells.as_slice()
            && columns.len() == 5
            && !what.is_empty()
            && !what.starts_with("---")
        {
            assert!(rows.insert(what.clone(), columns.to_vec()).is_none(), "{what} has two rows");
        }
    }
    rows
}

/// What the guide says of each deployment has a test, and where a lock may be given twice one in which it is.
#[test]
fn every_promise_of_a_deployment_has_tests_that_exist() {
    let promises = deployments(&read(&root().join("tests/faults/README.md")));
    let guide = deployments(&read(&root().join("docs/guide/production.md")));
    assert!(guide.len() >= 9, "{} rows in the guide", guide.len());
    for (what, says) in guide {
        let tests = promises.get(&what).unwrap_or_else(|| panic!("{what}: no row of tests"));
        for (cell, said) in tests.iter().zip(says) {
            let is_none = ["–", "no matter"].contains(&said.as_str());
            assert!(cell != "–" || is_none, "{what}: {said}: no test");
        }
    }
    let mut shown = 0;
    for (what, cells) in &promises {
        for cell in cells.iter().filter(|cell| *cell != "–") {
            let tests: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
            assert!(!tests.is_empty(), "{what}: {cell}");
            for test in &tests {
                let (module, name) = test.split_once("::").expect("a test of a module");
                let path = source(module).unwrap_or_else(|| panic!("{what}: no {module}"));
                assert!(read(&path).contains(&format!("fn {name}(")), "{what}: there is no {test}");
            }
            if cell.contains('✘') {
                let is_shown = tests.iter().any(|test| test.ends_with("the_fence_decides"));
                assert!(is_shown, "{what}: {cell}");
                shown += 1;
            }
        }
    }
    assert!(shown >= 6, "only {shown}");
}

#[test]
fn every_test_of_an_entry_is_in_its_row() {
    let table = table();
    let mut found = 0;
    for (directory, prefix) in [("tests/faults", ""), ("tests/lock", "lock/")] {
        for file in fs::read_dir(root().join(directory)).expect("a directory of tests") {
            let path = file.expect("an entry").path();
            // What tests a part by itself is not about faults.
            if path.is_dir() {
                continue;
            }
            let module = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            for line in read(&path).lines() {
                let name = line.strip_prefix("async fn ").or(line.strip_prefix("fn "));
                let Some(name) = name.and_then(|line| line.split('(').next()) else { continue };
                let entry = name.split('_').next().unwrap_or_default().to_uppercase();
                let Some(row) = table.get(&entry).filter(|_| !name.ends_with("_child")) else {
                    continue;
                };
                let test = format!("{prefix}{module}::{name}");
                assert!(row.tests.contains(&test), "{test} is not in the table");
                found += 1;
            }
        }
    }
    assert!(found > 60, "found only {found} tests");
}

/// Returns whether a patch applies to the present tree, or `None` without git.
fn applies(patch: &Path) -> Option<bool> {
    let mut git = Command::new("git");
    // The question is about these files, whether or not they are in a repository.
    git.current_dir(root()).env("GIT_CEILING_DIRECTORIES", root().parent()?);
    let status = git.args(["apply", "--check"]).arg(patch).status().ok()?;
    Some(status.success())
}

/// A patch of `verification/mutants/`.
struct Mutant {
    name: String,
    /// Its first line, which says what it breaks.
    says: String,
    /// After `Test:`, a program and a test; after `Model:`, a run of the model.
    found_by: String,
    is_for_model: bool,
}

impl Mutant {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        assert!(applies(path).unwrap_or(true), "{name} does not apply: make it again");
        let patch = read(path);
        let line = |key| patch.lines().find_map(|line| line.strip_prefix(key));
        let run = line("Model: ");
        let found_by = run.or(line("Test: ")).unwrap_or_else(|| panic!("{name} names no test"));
        Self {
            says: patch.lines().next().unwrap_or_default().to_owned(),
            found_by: found_by.to_owned(),
            is_for_model: run.is_some(),
            name,
        }
    }

    /// The invariant that the model must find broken.
    fn invariant(&self) -> Option<&str> {
        self.says.split_once("Breaks: ")?.1.strip_suffix('.')
    }

    /// Checks that the row of the mutant says the same as its patch.
    fn check_row(&self, rows: &str) {
        let Self { name, found_by, .. } = self;
        let row = rows.lines().find(|row| row.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("{name} has no row"));
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, _, _, guards, run, _] = cells[..] else { panic!("{row}") };
        let run = run.trim_matches('`');
        assert!(found_by.starts_with(run), "{name} is found by {found_by}, not {run}");
        if self.is_for_model {
            let invariant = self.invariant().unwrap_or_else(|| panic!("{name}: no invariant"));
            assert!(guards.ends_with(invariant), "{name} breaks {invariant}, not {guards}");
        }
    }

    fn test_exists(&self) -> bool {
        let (program, rest) = self.found_by.split_once(' ').unwrap_or((&self.found_by, ""));
        if self.is_for_model {
            let scenarios = read(&root().join("verification/model/src/scenarios.rs"));
            let scenario = rest.split(" --").next().unwrap_or(rest);
            return program.ends_with("soak") || scenarios.contains(&format!("\"{scenario}\""));
        }
        let Some((module, name)) = rest.rsplit_once("::") else { return false };
        if module.starts_with("conformance::") {
            // A macro makes these from a list that is the same for each store.
            let list = read(&root().join("testkit/src/conformance/mod.rs"));
            return list.contains(&format!("            {name},"));
        }
        let folder = match program {
            "cli" => "distlock-cli/tests/cli".to_owned(),
            "recorded" => "tests/metrics/tests/recorded".to_owned(),
            "lib" => "distlock-runtime/src".to_owned(),
            program => format!("tests/{program}"),
        };
        // Unit tests are in a file of their own, or at the end of the file that they test.
        let path = module.replace("::", "/");
        let inline = path.strip_suffix("/tests").unwrap_or(&path).to_owned();
        [path, inline].iter().any(|path| {
            let file = root().join(&folder).join(path).with_extension("rs");
            file.exists() && read(&file).contains(&format!("fn {name}("))
        })
    }
}

/// `scripts/mutants` builds for minutes, so it runs rarely. This test notices a renamed test, and changed
/// code under a patch, at once.
#[test]
fn every_mutant_has_a_row_applies_and_names_a_test_that_exists() {
    let mutants = root().join("verification/mutants");
    let rows = read(&mutants.join("README.md"));
    let mut numbers = BTreeSet::new();
    for file in fs::read_dir(&mutants).expect("the mutants") {
        let path = file.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        let mutant = Mutant::read(&path);
        let number = mutant.name.split('-').next().unwrap_or_default().to_owned();
        assert!(numbers.insert(number), "{} has the number of another one", mutant.name);
        mutant.check_row(&rows);
        let Mutant { name, found_by, .. } = &mutant;
        assert!(mutant.test_exists(), "{name}: there is no {found_by}");
    }
    assert!(numbers.len() >= 40, "found only {} mutants", numbers.len());
}

/// A rule that no mutant breaks could be lost without a failing test.
#[test]
fn every_rule_of_the_protocol_has_a_mutant() {
    let rows = read(&root().join("verification/mutants/README.md"));
    let protocol = read(&root().join("distlock-runtime/PROTOCOL.md"));
    let rule = |line: &str| {
        let (rule, _) = line.strip_prefix("**R")?.split_once(' ')?;
        rule.parse::<u32>().ok()
    };
    let rules: Vec<_> = protocol.lines().filter_map(rule).collect();
    assert!(rules.len() >= 15, "{rules:?}");
    for rule in rules {
        let rule = format!("R{rule}");
        // Whole words, or R1 would be found in R15.
        let mut words = rows.split(|c: char| !c.is_ascii_alphanumeric());
        assert!(words.any(|word| word == rule), "{rule} has no mutant, and no reason");
    }
}
