//! Each mutant applies, and names a test that exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{read, root};

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
            "core" | "redis" => format!("distlock-{program}/src"),
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
