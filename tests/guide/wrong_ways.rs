//! The page of wrong ways says what the program prints: that each of them goes wrong, and how.

use std::path::PathBuf;
use std::process::Command;

/// Cargo does not say where examples are, and builds them first only where no target is named.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    let target = test.parent().and_then(|deps| deps.parent()).expect("it is in target/…/deps");
    let program = target.join("examples/wrong_ways");
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        let built = build.args(["build", "--example", "wrong_ways"]).status().expect("cargo runs");
        assert!(built.success() && program.exists(), "no {}", program.display());
    }
    program
}

/// The words of a page or an output, a line each, without fences and marks of headings.
fn lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.trim_start_matches("## ").trim());
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("```") && *line != "Together")
        .collect()
}

#[test]
fn the_page_says_what_the_program_prints() {
    let output = Command::new(program()).output().expect("it starts");
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    let page = include_str!("../../docs/guide/wrong_ways.md");
    let told = page.find("## 1. ").expect("the first of them");
    assert_eq!(lines(&page[told..]), lines(&said), "copy what it prints to the page");
    assert!(said.contains("Went wrong: 9 of 9 as taught, 0 of 9 with distlock."), "{said}");
}

#[test]
fn without_a_server_it_says_how_to_get_one() {
    let output = Command::new(program()).env("PATH", "").output().expect("it starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("apt-get install redis-server"), "{complaint}");
}
