//! The page of wrong ways says what the program prints: that each of them goes wrong, and how.

use std::process::Command;

use crate::example;

/// The words of a page or an output, a line each, without fences and marks of headings.
fn lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.trim_start_matches("## ").trim());
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("```") && *line != "Together")
        .collect()
}

#[test]
fn the_page_says_what_the_program_prints() {
    let output = Command::new(example("wrong_ways")).output().expect("it starts");
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    let page = include_str!("../../docs/guide/wrong_ways.md");
    let told = page.find("## 1. ").expect("the first of them");
    assert_eq!(lines(&page[told..]), lines(&said), "copy what it prints to the page");
    assert!(said.contains("Went wrong: 12 of 12 as taught, 0 of 12 with distlock."), "{said}");
}

#[test]
fn without_a_server_it_says_how_to_get_one() {
    let output = Command::new(example("wrong_ways")).env("PATH", "").output().expect("it starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("apt-get install redis-server"), "{complaint}");
}
