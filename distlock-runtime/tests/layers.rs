//! The structure of the sources of every crate of this family: folders do not import each other in a circle,
//! in crates without layers no files either, and no function is too long to be read in one go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_FUNCTION: usize = 60;

/// Crates whose folders are layers: files of one folder may know each other.
const LAYERED: [&str; 1] = ["distlock-runtime"];

/// The crates beside this one, this one included.
fn crates() -> Vec<String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let entries = fs::read_dir(home).expect("a folder").map(|entry| entry.expect("an entry"));
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("distlock-")).collect();
    names.sort();
    assert!(names.len() > 3, "where are the crates? {names:?}");
    names
}

/// A source file and the module it is.
struct Source {
    /// Below the crate's `src`.
    path: PathBuf,
    /// `lock::table` for `lock/table.rs`, `lock` for `lock/mod.rs`.
    module: Vec<String>,
    text: String,
}

impl Source {
    /// What is checked for circles in a crate of layers: a folder, or a file that is in none.
    fn layer(&self) -> String {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => format!("{}/", folder.display()),
            _ => self.path.display().to_string(),
        }
    }
}

fn sources(name: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(name).join("src");
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
    assert!(sources.len() > 4, "{name}: where are the sources?");
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

/// What imports what, with a line that does.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// Of the parts of a crate: its layers, or its files.
fn imports(name: &str) -> Imports {
    let is_layered = LAYERED.contains(&name);
    let part = |source: &Source| {
        if is_layered { source.layer() } else { source.path.display().to_string() }
    };
    let modules: BTreeMap<_, _> =
        sources(name).into_iter().map(|source| (source.module.clone(), source)).collect();
    let is_root = |source: &Source| source.module == ["lib"] || source.module == ["main"];
    let mut imports = Imports::new();
    for source in modules.values().filter(|source| !is_root(source)) {
        for path in paths(&product_code(&source.text)) {
            let Some(target) = resolve(&path, source, &modules) else { continue };
            if part(target) != part(source) {
                let example = format!("{}: {}", source.path.display(), path.join("::"));
                imports.entry(part(source)).or_default().insert(part(target), example);
            }
        }
    }
    imports
}

#[test]
fn nothing_is_imported_in_a_circle() {
    let mut circles = Vec::new();
    for name in crates() {
        let imports = imports(&name);
        assert!(!imports.is_empty(), "{name}: the imports were not understood");
        for (part, targets) in &imports {
            for (target, example) in targets {
                // Files that are in no layer may know each other as those of one layer may.
                let checked =
                    !LAYERED.contains(&&*name) || part.ends_with('/') || target.ends_with('/');
                if checked && reach(&imports, target).contains(part) {
                    circles.push(format!("{name}: {part} imports {target} ({example})"));
                }
            }
        }
    }
    assert!(circles.is_empty(), "each leads back:\n{}", circles.join("\n"));
}

#[test]
fn a_circle_is_found() {
    assert!(imports("distlock-runtime")["lock/"].contains_key("store/"));
    let imports = |pairs: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (part, target) in pairs {
            imports.entry((*part).into()).or_default().insert((*target).into(), String::new());
        }
        imports
    };
    let circle = imports(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]);
    assert!(reach(&circle, "b").contains("a") && !reach(&circle, "b").contains("d"));
}

/// All that a part imports, and what that imports.
fn reach(imports: &Imports, from: &str) -> BTreeSet<String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(part) = next.pop() {
        for target in imports.get(&part).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(target.clone()) {
                next.push(target.clone());
            }
        }
    }
    seen
}

#[test]
fn no_function_is_too_long() {
    let mut long = Vec::new();
    for name in crates() {
        for Source { path, text, .. } in sources(&name) {
            for (line, length) in functions(&text).filter(|(_, length)| *length > LONGEST_FUNCTION)
            {
                long.push(format!("{name}/src/{}:{line} has {length} lines", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Where the functions begin, and how many lines they have.
fn functions(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let length = move |at: usize| {
        let line = lines.get(at)?;
        let words: Vec<_> = line.split_whitespace().collect();
        let is_function = words.iter().take(5).any(|word| *word == "fn");
        // A comment or a text may speak of one.
        if !is_function || line.trim_start().starts_with(['/', '"']) {
            return None;
        }
        let indent = line.len() - line.trim_start().len();
        let closes = |line: &&str| **line == format!("{}}}", " ".repeat(indent));
        // The body ends where a brace closes at the depth of the signature.
        let length = lines[at..].iter().position(closes).map_or(1, |end| end + 1);
        let ends_at_once = lines[at..]
            .iter()
            .take_while(|line| !line.contains('{'))
            .any(|line| line.ends_with(';'));
        let is_one = !ends_at_once && !line.trim_end().ends_with('}');
        is_one.then_some((at + 1, length))
    };
    (0..text.lines().count()).filter_map(length)
}
