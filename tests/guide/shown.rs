//! What readers see of an example: on the forge, where nothing of it is hidden, and in the documentation,
//! where lines that begin with `# ` are.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A line inside of a fence.
struct Line {
    place: String,
    text: String,
    is_hidden: bool,
}

fn lines_of(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).expect("a text");
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let name = path.strip_prefix(root()).expect("below it").display();
    let (mut lines, mut is_code) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let line = if is_page {
            line
        } else if let Some(doc) = ["///", "//!"].iter().find_map(|mark| line.strip_prefix(mark)) {
            doc.trim_start()
        } else {
            is_code = false;
            continue;
        };
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            lines.push(Line {
                place: format!("{name}:{}", number + 1),
                text: line.to_owned(),
                is_hidden: line == "#" || line.starts_with("# "),
            });
        }
    }
    assert!(!is_code, "{name}: a fence is never closed");
    lines
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|own| own == extension) {
                found.push(path);
            }
        }
    }
    found
}

/// The pages that are read on the forge.
fn pages() -> Vec<PathBuf> {
    let mut pages = files("docs/guide", "md");
    pages.push(root().join("README.md"));
    pages
}

/// What is only read in the documentation.
fn documentation() -> Vec<PathBuf> {
    let mut sources = files("src", "md");
    sources.extend(["src", "distlock-runtime/src"].iter().flat_map(|folder| files(folder, "rs")));
    sources
}

fn places<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Vec<String> {
    lines.into_iter().map(|line| format!("{}: {}", line.place, line.text)).collect()
}

/// A forge shows these lines as they are. What an example needs and does not show belongs into a test of
/// its own, in `tests/guide/whole` and `tests/recipes/tests`.
#[test]
fn fw3_no_page_has_lines_that_only_rustdoc_hides() {
    let lines: Vec<_> = pages().iter().flat_map(|page| lines_of(page)).collect();
    assert!(lines.len() > 1_000, "only {} lines of examples", lines.len());
    let raw = places(lines.iter().filter(|line| line.is_hidden));
    assert!(raw.is_empty(), "{} lines are shown raw: {raw:#?}", raw.len());
}

/// The contents of each fence of a page.
fn fences(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let mut fences = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, fence)) = rest.split_once("\n```rust\n") {
        let (inside, after) = fence.split_once("\n```\n").expect("the end of a fence");
        fences.push(format!("{inside}\n"));
        rest = after;
    }
    fences
}

/// rustdoc compiles no function with `#[test]`, and what recipes are for is in a workspace of its own.
#[test]
fn fw3_examples_that_rustdoc_does_not_run_are_files_that_are_run() {
    for (page, folder, at_least) in [
        ("docs/guide/testing.md", "tests/guide/whole", 4),
        ("docs/guide/recipes.md", "tests/recipes/tests", 5),
    ] {
        let programs: Vec<_> = files(folder, "rs")
            .iter()
            .map(|path| fs::read_to_string(path).expect("a program"))
            .collect();
        let mut found = 0;
        for fence in fences(page) {
            if page.ends_with("testing.md") && !fence.contains("#[tokio::test") {
                continue;
            }
            let is_run = programs.iter().any(|program| program.starts_with(&fence));
            assert!(is_run, "{page}: no file of {folder} begins with\n{fence}");
            found += 1;
        }
        assert!(found >= at_least, "{page}: only {found} examples");
    }
}

/// Users depend on `distlock` and not on the crates behind it.
#[test]
fn fw3_no_example_names_a_crate_that_users_do_not_have() {
    let paths = pages().into_iter().chain(documentation());
    // Hidden in the documentation.
    let paths = paths.filter(|path| !path.to_string_lossy().contains("testing/faults.rs"));
    let lines: Vec<_> = paths.flat_map(|path| lines_of(&path)).collect();
    assert!(lines.len() > 2_000, "only {} lines of examples", lines.len());
    let is_behind = |line: &&Line| {
        !line.is_hidden
            && ["distlock_runtime", "distlock_macros", "distlock_testkit", "__private"]
                .iter()
                .any(|name| line.text.contains(name))
    };
    let named = places(lines.iter().filter(is_behind));
    assert!(named.is_empty(), "{named:#?}");
}

/// A text that becomes a key as it is can be another lock's key: with a path `/path/a` and `/path/%61` are
/// two locks for one order, and a header can name any other lock. `key!` and the templates of layers
/// encode what is in it, and begin with a text that the client cannot choose.
#[test]
fn fw1_no_example_makes_a_key_of_a_text_as_it_comes() {
    let mut lines: Vec<_> =
        pages().into_iter().chain(documentation()).flat_map(|path| lines_of(&path)).collect();
    for path in files("examples", "rs") {
        let text = fs::read_to_string(&path).expect("a text");
        lines.extend(text.lines().enumerate().map(|(number, line)| Line {
            place: format!("{}:{}", path.display(), number + 1),
            text: line.trim_start().to_owned(),
            is_hidden: false,
        }));
    }
    let makes = |line: &&Line| !line.is_hidden && makes_a_key_of_a_text(&line.text);
    let made = places(lines.iter().filter(makes));
    assert!(made.is_empty(), "{made:#?}");
}

/// Whether a line makes a `LockKey` of something that is not written there.
fn makes_a_key_of_a_text(line: &str) -> bool {
    let begins_with_text = |rest: &str| rest.starts_with(['"', ')']);
    let calls = ["LockKey::from(", ".lock(format!", ".lock(String", "lock_all([format!"];
    let is_passed = line.contains("LockKey::from)") || line.contains("LockKey::from,");
    is_passed
        || calls.iter().any(|call| {
            line.match_indices(call).any(|(at, _)| !begins_with_text(&line[at + call.len()..]))
        })
        || [".path()).", ".path()))", ".path().into()", "header.into()"]
            .iter()
            .any(|text| line.contains(text) && line.contains("ock"))
}

#[test]
fn a_key_of_a_text_is_found() {
    for line in [
        "(!request.method.is_safe()).then(|| LockKey::from(request.uri.path()))",
        "key.map(LockKey::from).ok_or(StatusCode::BAD_REQUEST)",
        "let key = LockKey::from(format!(\"order:{id}\"));",
        "locks.lock(format!(\"order:{id}\")).acquire().await?;",
        "let lock = locks.lock(request.uri().path()).acquire();",
    ] {
        assert!(makes_a_key_of_a_text(line), "{line}");
    }
    for line in [
        "let key = LockKey::from(\"order:42\");",
        "impl From<OrderId> for LockKey {",
        "key!(\"idempotency:{key}\")",
        "locks.lock(key!(\"order:{id}\"))",
        "mutex.lock().unwrap().push(request.path())",
    ] {
        assert!(!makes_a_key_of_a_text(line), "{line}");
    }
}
