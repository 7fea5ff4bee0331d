//! The guide says what is: its pictures are what their texts say, its wrong ways print what they are
//! quoted with, its pages are in the documentation, and that says enough of what is public.

mod commands;
mod diagram;
mod documented;
mod examples;
mod links;
mod packages;
mod reference;
mod shown;
mod whole;
mod wrong_ways;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set, the pictures are written instead of compared.
const WRITE: &str = "DISTLOCK_WRITE_DIAGRAMS";

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide")
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(dir).expect("the directory").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|own| own == extension)).collect();
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).expect("a name")
}

/// The program of an example. Cargo does not say where they are, and builds them first only where no
/// target is named.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    let target = test.parent().and_then(|deps| deps.parent()).expect("it is in target/…/deps");
    let program = target.join("examples").join(name);
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        let built = build.args(["build", "--example", name]).status().expect("cargo runs");
        assert!(built.success() && program.exists(), "no {}", program.display());
    }
    program
}

/// For documentation that can show no file beside it.
fn data_uri(svg: &str) -> String {
    let mut uri = "data:image/svg+xml,".to_owned();
    for byte in svg.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                uri.push(char::from(byte))
            }
            _ => drop(write!(uri, "%{byte:02X}")),
        }
    }
    uri
}

#[test]
fn the_pictures_are_what_their_texts_say() {
    let dir = guide().join("diagrams");
    let sources = files(&dir, "txt");
    assert!(sources.len() >= 5);
    let (mut expected, mut embedded) = (Vec::new(), String::new());
    for source in sources {
        let (_, svg) = diagram::draw(&read(&source));
        let _ = writeln!(embedded, "[{}]: {}", stem(&source), data_uri(&svg));
        expected.push((source.with_extension("svg"), svg));
    }
    expected.push((dir.join("embedded.md"), embedded));
    for (path, content) in expected {
        if std::env::var_os(WRITE).is_some() {
            fs::write(&path, content).expect("it can be written");
        } else {
            assert!(
                read(&path) == content,
                "{}: {WRITE}=1 cargo test --test guide",
                path.display()
            );
        }
    }
}

#[test]
fn every_page_is_in_the_documentation_and_in_its_index() {
    let modules = include_str!("../../src/guide/mod.rs");
    let readme = include_str!("../../README.md");
    for page in files(&guide(), "md") {
        let name = stem(&page);
        assert!(modules.contains(&format!("/docs/guide/{name}.md\")")), "{name}: no module");
        assert!(readme.contains(&format!("docs/guide/{name}.md")), "{name}: not in the README");
    }
}

/// References of one page to another work on the forge by their own definitions, and in the
/// documentation by those that stand before the page there.
#[test]
fn what_pages_refer_to_is_there_and_known_to_the_documentation() {
    let known = [
        include_str!("../../src/guide/links.md"),
        include_str!("../../docs/guide/diagrams/embedded.md"),
    ]
    .concat();
    for page in files(&guide(), "md") {
        for line in read(&page).lines() {
            let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
            // A target has no blanks in it: otherwise it is a sentence.
            let definition = definition.filter(|(_, target)| !target.contains(char::is_whitespace));
            let Some((name, target)) = definition else { continue };
            let page = page.display();
            assert!(guide().join(target).exists(), "{page}: {target} is not there");
            assert!(known.contains(&format!("[{name}]: ")), "{page}: [{name}] leads nowhere there");
        }
    }
}

#[test]
fn the_table_of_features_is_that_of_the_manifest() {
    let manifest = include_str!("../../Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").expect("the section");
    let features = features.split("\n[").next().expect("its end");
    let features: BTreeSet<_> =
        features.lines().filter_map(|line| line.split_once(" = ")).collect();
    let page = include_str!("../../src/crate.md");
    let (_, table) = page.split_once("# Features").expect("the table");
    let told: BTreeSet<_> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).collect();
    let by_default = features.iter().find(|(name, _)| *name == "default").expect("the default").1;
    for &(feature, _) in features.iter().filter(|(name, _)| *name != "default") {
        let (_, said) = told.iter().find(|(name, _)| *name == feature).expect(feature);
        let is_default = by_default.contains(&format!("\"{feature}\""));
        assert_eq!(said.contains("by default"), is_default, "{feature}");
    }
    assert_eq!(told.len() + 1, features.len(), "a row of the table is no feature");
}
