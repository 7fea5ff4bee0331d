//! The structure of the runtime's sources: folders do not import each other in a circle, and no file or
//! function is too long to be read in one go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 400;
const LONGEST_FUNCTION: usize = 60;

/// A source file and the module it is.
struct Source {
    path: PathBuf,
    /// `lock::table` for `lock/table.rs`, `lock` for `lock/mod.rs`.
    module: Vec<String>,
    text: String,
}

impl Source {
    /// What is checked for circles: a folder, or a file that is in none.
    fn part(&self) -> String {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => format!("{}/", folder.display()),
            _ => self.path.display().to_string(),
        }
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut sources) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && path.file_name().is_some_and(|name| name != "tests.rs")
            {
                let text = fs::read_to_string(&path).expect("a text");
                let path = path.strip_prefix(&root).expect("below the root").to_owned();
                let mut module: Vec<_> = path
                    .with_extension("")
                    .iter()
                    .map(|part| part.to_string_lossy().into_owned())
                    .collect();
                if module.last().is_some_and(|last| last == "mod") {
                    module.pop();
                }
                sources.push(Source { path, module, text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(sources.len() > 50, "where are the sources?");
    sources
}

/// The code without comments and without unit tests, which may use anything.
fn product_code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let uncommented = product.lines().map(|line| line.split("//").next().unwrap_or_default());
    uncommented.collect::<Vec<_>>().join("\n")
}

/// Every path in the code that may name a module, groups in braces written out.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            _ => word,
        };
        let token = &rest[..length];
        if !token.trim().is_empty() {
            tokens.push(token);
        }
        rest = &rest[length..];
    }
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |at| tokens[at]);
        let is_path = matches!(*token, "crate" | "super") && !matches!(before, "::" | "in");
        // `pub(super)` imports nothing.
        let is_visibility = before == "(" && at > 1 && tokens[at - 2] == "pub";
        if (is_path && !is_visibility) || before == "use" {
            expand(&tokens, at, Vec::new(), &mut paths);
        }
    }
    paths
}

/// Follows a path from a token on; says where it ends.
fn expand(
    tokens: &[&str],
    mut at: usize,
    mut path: Vec<String>,
    paths: &mut Vec<Vec<String>>,
) -> usize {
    loop {
        match tokens.get(at) {
            Some(&"{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = expand(tokens, at, path.clone(), paths);
                    if tokens.get(at) == Some(&",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            Some(word) if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push((*word).to_owned());
                at += 1;
                if tokens.get(at) != Some(&"::") {
                    paths.push(path);
                    // `as name`
                    let renamed = tokens.get(at) == Some(&"as");
                    return if renamed { at + 2 } else { at };
                }
                at += 1;
            }
            _ => {
                paths.push(path);
                return at + 1;
            }
        }
    }
}

/// The module of the crate that a path names or is in.
fn resolve<'a>(
    path: &[String],
    from: &Source,
    modules: &'a BTreeMap<Vec<String>, Source>,
) -> Option<&'a Source> {
    let mut full = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "super" => from.module.clone(),
        _ => from.module.clone(),
    };
    let mut rest = path;
    if path[0] == "crate" {
        rest = &path[1..];
    }
    while rest.first().is_some_and(|part| part == "super" || part == "self") {
        if rest[0] == "super" {
            full.pop();
        }
        rest = &rest[1..];
    }
    let local = !matches!(path[0].as_str(), "crate" | "super" | "self");
    let base = full.len();
    full.extend(rest.iter().cloned());
    while !full.is_empty() {
        if let Some(source) = modules.get(&full) {
            // A plain name that is no module of ours is another crate, or the standard library.
            let is_known = !local || full.len() > base;
            return is_known.then_some(source);
        }
        full.pop();
    }
    None
}

#[test]
fn folders_do_not_import_each_other_in_a_circle() {
    let modules: BTreeMap<_, _> =
        sources().into_iter().map(|source| (source.module.clone(), source)).collect();
    let mut imports: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for source in modules.values().filter(|source| source.path != Path::new("lib.rs")) {
        for path in paths(&product_code(&source.text)) {
            let Some(target) = resolve(&path, source, &modules) else { continue };
            if target.part() != source.part() {
                let example = format!("{}: {}", source.path.display(), path.join("::"));
                imports.entry(source.part()).or_default().insert(target.part(), example);
            }
        }
    }
    assert!(imports["lock/"].contains_key("store/"), "the imports were not understood");
    let reach = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(part) = next.pop() {
            for target in imports.get(&part).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(target.clone()) {
                    next.push(target.clone());
                }
            }
        }
        seen
    };
    let mut circles = Vec::new();
    for (part, targets) in &imports {
        for (target, example) in targets {
            let a_folder = part.ends_with('/') || target.ends_with('/');
            if a_folder && reach(target).contains(part) {
                circles.push(format!("{part} imports {target} ({example}), which leads back"));
            }
        }
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    let lengths = sources().into_iter().map(|source| (source.path, source.text.lines().count()));
    let long: Vec<_> = lengths.filter(|(_, lines)| *lines > LONGEST_FILE).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn no_function_is_too_long() {
    let mut long = Vec::new();
    for Source { path, text, .. } in sources() {
        let lines: Vec<_> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let words: Vec<_> = line.split_whitespace().collect();
            let is_function = words.iter().take(5).any(|word| *word == "fn");
            if !is_function || line.trim_start().starts_with("//") {
                continue;
            }
            let indent = line.len() - line.trim_start().len();
            let closes = |line: &&str| **line == format!("{}}}", " ".repeat(indent));
            // The body ends where a brace closes at the depth of the signature.
            let length = lines[at..].iter().position(closes).map_or(1, |end| end + 1);
            let ends_at_once = lines[at..]
                .iter()
                .take_while(|line| !line.contains('{'))
                .any(|line| line.ends_with(';'));
            if length > LONGEST_FUNCTION && !ends_at_once && !line.trim_end().ends_with('}') {
                long.push(format!("{}:{} has {length} lines", path.display(), at + 1));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
