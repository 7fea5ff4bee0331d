//! What a page says to type can be typed: the programs, scripts and packages are there.

use std::path::Path;

use crate::{files, guide, read};

/// The lines of all blocks of commands, a block after the other.
fn blocks(page: &str) -> Vec<Vec<&str>> {
    let blocks = page.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next());
    blocks.map(|block| block.unwrap_or_default().lines().collect()).collect()
}

/// What is wrong with a command, if anything is.
fn wrong(command: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let words: Vec<_> =
        command.split_whitespace().filter(|word| !word.contains("=redis")).collect();
    let after = |flag| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
    match words[..] {
        [program, ..] if program.starts_with("./") => {
            (!root.join(program).exists()).then(|| format!("{program} is not there"))
        }
        ["cargo", "run", ..] => match (after("-p"), after("--example")) {
            (Some(package), None) => {
                let manifest = read(&root.join("examples").join(package).join("Cargo.toml"));
                let feature = after("--features")
                    .is_none_or(|feature| manifest.contains(&format!("\n{feature} = [")));
                let is_it = manifest.contains(&format!("name = \"{package}\"")) && feature;
                (!is_it).then(|| format!("{command}: no such package or feature"))
            }
            (None, Some(example)) => {
                let dir = root.join("examples");
                let there = dir.join(example).with_extension("rs").exists()
                    || dir.join(example).join("main.rs").exists();
                (!there).then(|| format!("{command}: no such example"))
            }
            _ => Some(format!("{command}: runs what?")),
        },
        _ => None,
    }
}

#[test]
fn the_first_two_commands_show_it_and_test_it() {
    let readme = include_str!("../../README.md");
    assert!(readme.lines().count() <= 150, "one screen");
    let blocks = blocks(readme);
    assert_eq!(blocks[..2], [vec!["cargo run -p flash_sale"], vec!["./scripts/test"]]);
}

#[test]
fn what_pages_say_to_type_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = files(&guide(), "md");
    pages
        .extend(["README.md", "CONTRIBUTING.md", "examples/README.md"].map(|page| root.join(page)));
    let mut commands = 0;
    for page in pages {
        for command in blocks(&read(&page)).concat() {
            commands += 1;
            assert_eq!(wrong(command), None, "{}", page.display());
        }
    }
    assert!(commands >= 6, "{commands}");
    assert!(wrong("cargo run --example none").is_some() && wrong("./scripts/none").is_some());
    assert!(wrong("cargo run -p flash_sale --features none").is_some());
}
