//! Every file with something public in it says enough about that: for each line of code at least 0.6 of
//! documentation. A file that falls short has more in it than what is public, which belongs into one of its
//! own, or says too little.

use std::fs;
use std::path::{Path, PathBuf};

const LEAST: f64 = 0.6;

/// What is `pub` there is no user's: hidden in the documentation, or for the crate beside it.
const HIDDEN: &[&str] = &[
    // For the program `distlock` and for generated code.
    "key_encoding.rs",
    "observe/calls.rs",
    "observe/metrics.rs",
    "return_type.rs",
    "macro_support.rs",
    "store.rs",
    "testing/faults.rs",
    // Traits of one crate that cannot be implemented by another.
    "integrations/http/rule.rs",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// How many lines of documentation there are for one of code; `None` where nothing is public.
fn documented(text: &str) -> Option<f64> {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<_> = product.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_doc = |line: &&&str| line.starts_with("///") || line.starts_with("//!");
    let items = ["fn ", "async fn ", "const fn ", "struct ", "enum ", "trait "];
    let is_public = |line: &&str| {
        line.strip_prefix("pub ")
            .is_some_and(|item| items.iter().any(|kind| item.starts_with(kind)))
    };
    let docs = lines.iter().filter(is_doc).count() as f64;
    let code = lines.iter().filter(|line| !line.starts_with("//")).count() as f64;
    lines.iter().any(is_public).then(|| docs / code)
}

#[test]
fn what_is_public_is_said_in_enough_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut short) = (0, Vec::new());
    for folder in ["src", "distlock-runtime/src"].map(|folder| root.join(folder)) {
        for path in sources(&folder) {
            let name = path.strip_prefix(&folder).expect("below it").to_string_lossy();
            let text = fs::read_to_string(&path).expect("a text");
            let Some(ratio) = documented(&text) else { continue };
            if HIDDEN.iter().any(|hidden| name.starts_with(hidden)) {
                continue;
            }
            found += 1;
            if ratio < LEAST {
                short.push(format!("{name}: {ratio:.2}"));
            }
        }
    }
    assert!(found > 20, "where is what is public? {found}");
    assert!(
        short.is_empty(),
        "less than {LEAST} lines of documentation for one of code: {short:#?}"
    );
}

/// rustdoc compiles the examples of a crate as one program. In that `crate` is another one than in an example
/// by itself; then each of them is compiled alone, which takes a minute longer.
#[test]
fn no_example_names_its_own_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("distlock-runtime/src");
    let mut named = Vec::new();
    for path in sources(&root) {
        let mut is_code = false;
        for line in fs::read_to_string(&path).expect("a text").lines() {
            let line = line.trim();
            let Some(doc) = ["///", "//!"].iter().find_map(|mark| line.strip_prefix(mark)) else {
                is_code = false;
                continue;
            };
            is_code ^= doc.trim().starts_with("```");
            if is_code && doc.contains("crate::") {
                named.push(format!("{}: {doc}", path.display()));
            }
        }
    }
    assert!(named.is_empty(), "{named:#?}");
}

#[test]
fn a_file_that_says_little_is_found() {
    let little = "//! Much.\n\n/// It.\npub fn it() {\n    let one = 1;\n    drop(one);\n}\n";
    assert_eq!(documented(little), Some(0.5));
    assert_eq!(documented("pub(crate) fn it() {}\n"), None);
    assert_eq!(documented("/// It.\npub struct It;\n#[cfg(test)]\nmod tests {\n}\n"), Some(1.0));
}
