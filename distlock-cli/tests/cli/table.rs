//! The table beside this file and what it is about say the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands in front, and the tests, of each row.
fn rows() -> Vec<(String, Vec<String>)> {
    let table = read(&root().join("tests/cli/README.md"));
    let rows = table.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, entry, tests, _] = cells[..] else { return None };
        let tests = tests.split('`').map(str::trim).filter(|test| test.contains("::"));
        Some((entry.to_owned(), tests.map(str::to_owned).collect()))
    });
    rows.filter(|(_, tests): &(_, Vec<String>)| !tests.is_empty()).collect()
}

#[test]
fn every_test_of_the_table_exists() {
    let rows = rows();
    assert!(rows.len() > 40, "{}", rows.len());
    for (entry, tests) in rows {
        for test in tests {
            let (module, name) = test.split_once("::").expect("a module and a name");
            let source = read(&root().join("tests/cli").join(module).with_extension("rs"));
            let lines: Vec<&str> = source.lines().collect();
            let at = lines.iter().position(|line| *line == format!("fn {name}() {{"));
            let at = at.unwrap_or_else(|| panic!("{entry}: no {test}"));
            let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
            assert!(attributes.clone().any(|line| *line == "#[test]"), "{test} is no test");
        }
    }
}

#[test]
fn every_exit_code_has_a_row() {
    let source = read(&root().join("src/exit.rs"));
    let codes = source.lines().filter_map(|line| {
        let (_, value) = line.split_once(": u8 = ").filter(|_| line.contains("const "))?;
        value.strip_suffix(';').map(str::to_owned)
    });
    let codes: BTreeSet<String> = codes.collect();
    assert!(codes.len() > 8, "{codes:?}");
    let known: BTreeSet<String> = rows().into_iter().map(|(entry, _)| entry).collect();
    assert_eq!(codes.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn every_finding_of_the_doctor_has_a_row() {
    let found: BTreeSet<String> = sources().iter().flat_map(|path| findings(&read(path))).collect();
    assert!(found.len() > 12, "{found:?}");
    let rows: BTreeSet<String> = rows().into_iter().map(|(entry, _)| entry).collect();
    let known =
        rows.into_iter().filter(|entry| entry.ends_with(": warn") || entry.ends_with(": fail"));
    assert_eq!(found, known.collect());
}

fn sources() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("src/doctor")).expect("its files");
    let paths = files.map(|file| file.expect("a file").path());
    paths.filter(|path| !path.ends_with("finding.rs")).collect()
}

/// `check: level` of everything that should be mended and that a source may find.
fn findings(source: &str) -> Vec<String> {
    let (mut check, mut found) = (String::new(), Vec::new());
    let text = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let lines: Vec<&str> = source.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if line.contains("const CHECK: &str") {
            check = text(line).expect("a name");
        }
        for level in ["warn", "fail"] {
            if let Some((_, rest)) = line.split_once(&format!("Finding::{level}(")) {
                // The check is the first argument, here or on the next line.
                let first = if rest.trim().is_empty() { lines[at + 1] } else { rest };
                let named = if first.trim_start().starts_with('"') { text(first) } else { None };
                found.push(format!("{}: {level}", named.unwrap_or_else(|| check.clone())));
            }
        }
    }
    found
}
