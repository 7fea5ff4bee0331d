//! The table of tests is up to date: each entry of the catalogue has its tests, or says why it has none.

mod mutants;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// If this variable is set, the table is written instead of compared.
const WRITE: &str = "DISTLOCK_WRITE_FAULTS";
const CATALOGUE: &str = "tests/faults/catalogue.md";
const TABLE: &str = "tests/faults/README.md";
/// The line of the table's file after which everything is generated.
const GENERATED: &str = "<!-- Everything below is generated from catalogue.md and the tests. -->\n";
/// These functions are run as tests by a macro, for each web framework.
const RUN_BY_A_MACRO: &str = "tests/web/src/promises.rs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A row of the catalogue.
struct Entry<'a> {
    id: &'a str,
    fault: &'a str,
    remark: &'a str,
}

impl<'a> Entry<'a> {
    fn of_line(line: &'a str) -> Option<Self> {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, id, fault, remark, _] = cells[..] else { return None };
        id.ends_with(|c: char| c.is_ascii_digit()).then_some(Self { id, fault, remark })
    }

    fn section(&self) -> &'a str {
        self.id.trim_end_matches(|c: char| c.is_ascii_digit())
    }
}

fn entries(catalogue: &str) -> Vec<Entry<'_>> {
    catalogue.lines().filter_map(Entry::of_line).collect()
}

/// Adds all Rust files of a folder, except what was built and hidden folders.
fn add_rust_files(folder: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            add_rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(path);
        }
    }
}

/// A test, and the entries that its doc comment names.
struct Test {
    name: String,
    faults: Vec<String>,
}

/// Returns the name of the function that a line declares.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

fn tests_of(path: &Path, text: &str) -> Vec<Test> {
    let mut tests = Vec::new();
    let (mut is_test, mut faults) = (false, Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix("/// Fault: ") {
            let named = named.strip_suffix('.').unwrap_or_else(|| panic!("{line}: no full stop"));
            faults.extend(named.split(", ").map(str::to_owned));
        } else if line.starts_with("#[") {
            is_test |= line.contains("test]") || line.contains("test(");
        } else if !line.starts_with("//") {
            let name = function(line).unwrap_or_default();
            let is_run = is_test || (path.ends_with(RUN_BY_A_MACRO) && line.starts_with("pub "));
            // A child is a part of the test that starts it in a process of its own.
            if is_run && !name.is_empty() && !name.ends_with("_child") {
                tests.push(Test { name: name.to_owned(), faults: std::mem::take(&mut faults) });
            }
            assert!(faults.is_empty(), "{}: {faults:?} is before no test", path.display());
            is_test = false;
        }
    }
    tests
}

/// Returns the entries with which the name of a test begins.
fn faults_in_name(name: &str, sections: &BTreeSet<&str>) -> Vec<String> {
    let id = |word: &str| {
        let id = word.to_uppercase();
        let section = id.trim_end_matches(|c: char| c.is_ascii_digit());
        (section.len() < id.len() && sections.contains(section)).then_some(id)
    };
    name.split('_').map_while(id).collect()
}

/// Returns the tests of each entry, by the folders and files of the repository.
fn tests_by_entry(entries: &[Entry<'_>]) -> BTreeMap<String, Vec<String>> {
    let sections: BTreeSet<_> = entries.iter().map(Entry::section).collect();
    let ids: BTreeSet<_> = entries.iter().map(|entry| entry.id).collect();
    let mut files = BTreeSet::new();
    add_rust_files(root(), &mut files);
    let mut by_entry: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files {
        let module = path.strip_prefix(root()).expect("a file below the root").with_extension("");
        let module = module.to_string_lossy().replace('\\', "/");
        let folders = ["tests/faults/", "tests/", "verification/soak/tests/"];
        let module =
            folders.iter().find_map(|folder| module.strip_prefix(folder)).unwrap_or(&module);
        for Test { name, faults } in tests_of(&path, &read(&path)) {
            let in_name = faults_in_name(&name, &sections);
            for id in in_name.into_iter().chain(faults) {
                assert!(ids.contains(&*id), "{module}::{name}: {id} is not in {CATALOGUE}");
                by_entry.entry(id).or_default().push(format!("{module}::{name}"));
            }
        }
    }
    by_entry
}

/// Returns the sections of the catalogue, with a column of tests.
fn table(catalogue: &str) -> String {
    let tests = tests_by_entry(&entries(catalogue));
    let sections = catalogue.find("\n## ").expect("a section");
    let mut table = String::new();
    for line in catalogue[sections..].lines() {
        let line = match Entry::of_line(line) {
            Some(Entry { id, fault, remark }) => {
                let tests = tests.get(id).into_iter().flatten();
                let tests: Vec<_> = tests.map(|test| format!("`{test}`")).collect();
                format!("| {id} | {fault} | {} | {remark} |", tests.join(" "))
            }
            None if line.starts_with("| #") => "| # | fault | tests | remark |".to_owned(),
            None if line.starts_with("|--") => "|---|---|---|---|".to_owned(),
            None => line.to_owned(),
        };
        table.push_str(&line);
        table.push('\n');
    }
    table
}

#[test]
fn the_table_of_tests_is_up_to_date() {
    let path = root().join(TABLE);
    let text = read(&path);
    let (head, known) = text.split_once(GENERATED).expect("the line before what is generated");
    let table = table(&read(&root().join(CATALOGUE)));
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, format!("{head}{GENERATED}{table}")).expect("the table is written");
        return;
    }
    let differs = |(known, is): &(&str, &str)| known != is;
    let difference = known.lines().zip(table.lines()).find(differs);
    assert!(known == table, "{WRITE}=1 writes {TABLE}, which differs: {difference:#?}");
}

#[test]
fn every_entry_has_a_number_and_tests_or_a_reason() {
    let catalogue = read(&root().join(CATALOGUE));
    let entries = entries(&catalogue);
    let tests = tests_by_entry(&entries);
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for Entry { id, fault, remark } in &entries {
        assert!(tests.contains_key(*id) || !remark.is_empty(), "{id} ({fault}) has no test");
    }
    for entry in &entries {
        let last = last.entry(entry.section()).or_default();
        *last += 1;
        assert_eq!(entry.id, format!("{}{last}", entry.section()), "a gap, or another order");
    }
    let found: usize = tests.values().map(Vec::len).sum();
    assert!(entries.len() >= 233, "only {} entries", entries.len());
    // A renamed or merged test must not lose its entry unnoticed. Lower the number when a test is deleted on purpose.
    assert!(found >= 507, "only {found} tests");
}

/// Returns the file of a module in the table of deployments.
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

/// Returns the rows of a table whose columns are deployments: the fault, and the cells.
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

/// Everything that the guide says of a deployment has a test. Where two processes may get a lock, a test shows it.
#[test]
fn every_promise_of_a_deployment_has_tests_that_exist() {
    let promises = deployments(&read(&root().join(TABLE)));
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
