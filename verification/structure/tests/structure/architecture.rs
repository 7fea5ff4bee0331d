//! The map of the sources, `ARCHITECTURE.md`: its paths exist, its names are declared where it says, and no room is
//! missing.

use std::fs;

use crate::imports::words;
use crate::source::{Crate, workspace};

const FILE: &str = "ARCHITECTURE.md";
const QUESTIONS: &str = "| question | file | name |";
/// The fewest questions that the map answers.
const FEWEST: usize = 25;

/// An answer to a question "Where is …?".
#[derive(Debug, PartialEq)]
struct Answer {
    path: String,
    name: String,
}

fn map() -> String {
    fs::read_to_string(workspace().join(FILE)).expect(FILE)
}

/// Returns the rows of the table of questions. Panics if a row has no path or no name.
fn answers(map: &str) -> Vec<Answer> {
    let rows = map.lines().skip_while(|line| *line != QUESTIONS).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, path, name] = cells[..] else { panic!("three cells: {row}") };
        let [path, name] = [path, name].map(|cell| match code_spans(cell)[..] {
            [only] => only.to_owned(),
            _ => panic!("one code span in {cell:?}: {row}"),
        });
        Answer { path, name }
    })
    .collect()
}

/// Returns the code spans of a text.
fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Whether a text in a code span is a path.
fn is_path(span: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    span.contains('/') && span.chars().all(is_path)
}

/// Whether Rust code declares a function, a type, a trait or a macro of this name.
fn declares(words: &[String], name: &str) -> bool {
    const KEYWORDS: [&str; 5] = ["fn", "struct", "enum", "trait", "type"];
    let is_item = |two: &[String]| KEYWORDS.contains(&two[0].as_str()) && two[1] == name;
    let is_macro = |three: &[String]| three[0] == "macro_rules" && three[2] == name;
    words.windows(2).any(is_item) || words.windows(3).any(is_macro)
}

/// Whether SQL creates a function of this name in the schema `distlock`.
fn creates(sql: &str, name: &str) -> bool {
    sql.contains(&format!("FUNCTION distlock.{name}("))
}

#[test]
fn each_question_names_a_file_and_a_declaration_in_it() {
    let crates = Crate::all();
    let answers = answers(&map());
    assert!(answers.len() >= FEWEST, "{} questions, at least {FEWEST}", answers.len());
    let mut wrong = Vec::new();
    for Answer { path, name } in answers {
        let mut files = crates.iter().flat_map(|of| of.files.values().map(move |file| (of, file)));
        let is_declared = if path.ends_with(".sql") {
            fs::read_to_string(workspace().join(&path)).is_ok_and(|sql| creates(&sql, &name))
        } else {
            let file = files.find(|(of, file)| of.path(file) == path);
            file.is_some_and(|(_, file)| declares(&words(&file.product), &name))
        };
        if !is_declared {
            wrong.push(format!("{path} does not declare {name}, or is no source file"));
        }
    }
    assert!(wrong.is_empty(), "{FILE}:\n{}", wrong.join("\n"));
}

#[test]
fn each_path_of_the_map_exists() {
    let map = map();
    let text: String = map.split("```").step_by(2).collect();
    let paths: Vec<&str> = code_spans(&text).into_iter().filter(|span| is_path(span)).collect();
    assert!(paths.len() > 2 * FEWEST, "{paths:?}");
    let missing: Vec<&&str> =
        paths.iter().filter(|path| !workspace().join(path).exists()).collect();
    assert!(missing.is_empty(), "{FILE}: {missing:?}");
}

#[test]
fn the_map_names_each_room() {
    let map = map();
    let mut missing = Vec::new();
    for of in Crate::all() {
        for source in of.files.values().filter(|source| source.path.ends_with("mod.rs")) {
            let path = of.path(source);
            let room = path.strip_suffix("mod.rs").expect("a room");
            if !map.contains(&format!("| `{room}` |")) {
                missing.push(room.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "{FILE}: these rooms are missing: {missing:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let text = format!(
            "# Map\n| a | `b/c` |\n{QUESTIONS}\n|---|---|---|\n| `X`? | `a/b.rs` | `f` |\n\n| d | `e/f` | `g` |"
        );
        let only = Answer { path: "a/b.rs".into(), name: "f".into() };
        assert_eq!(answers(&text), [only]);
    }

    #[test]
    fn declarations_are_found_and_uses_are_not() {
        let code =
            "pub(crate) async fn f() { g(H) } struct A<T>(T); impl B for A<u8> { const fn h() {} }
            enum C {} trait D {} macro_rules! m { () => {} } type E = F;";
        let words = words(&code.parse().expect("tokens"));
        let declared = ["f", "A", "h", "C", "D", "m", "E"];
        assert!(declared.iter().all(|name| declares(&words, name)));
        assert!(!["g", "H", "B", "F", "T"].iter().any(|name| declares(&words, name)));
    }

    #[test]
    fn paths_are_recognized() {
        assert!(is_path("a-b/src/") && is_path("a/b_c.rs"));
        assert!(!is_path("LockGuard") && !is_path("#[redis_lock]") && !is_path("redis://host"));
    }
}
