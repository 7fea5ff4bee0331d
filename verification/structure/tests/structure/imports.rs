//! The imports between the files of a crate.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::source::{Crate, Source};

/// The modules that a file declares or imports, and the items that it re-exports, by the names it uses for them.
type Bindings = BTreeMap<String, Vec<String>>;

/// The imports of one file: the imported files, each with an example.
pub(crate) type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// A path in the code, and how it is used.
#[derive(Debug, PartialEq)]
struct CodePath {
    parts: Vec<String>,
    /// The name that a `use` binds; `*` for a glob.
    binds: Option<String>,
}

/// Splits code into words and separators, with braces of groups written out.
pub(crate) fn words(tokens: &TokenStream) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    add_words(tokens, &mut words);
    words
}

fn add_words(tokens: &TokenStream, words: &mut Vec<String>) {
    let mut tokens = tokens.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) => words.push(ident.to_string()),
            TokenTree::Literal(_) => words.push("0".to_owned()),
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                let next = tokens.next_if(|next| crate::source::is_punct(next, ':'));
                words.push(if next.is_some() { "::".to_owned() } else { ":".to_owned() });
            }
            TokenTree::Punct(punct) => words.push(punct.as_char().to_string()),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                words.push(open.to_owned());
                add_words(&group.stream(), words);
                words.push(close.to_owned());
            }
        }
    }
}

fn is_word(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns all paths of the code, with those in the braces of a `use` written out.
fn paths(words: &[String]) -> Vec<CodePath> {
    let mut paths = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let before = at.checked_sub(1).map_or("", |at| words[at].as_str());
        if words[at] == "use" && before != "+" {
            at = expand_use(words, at + 1, Vec::new(), &mut paths);
        } else if is_word(&words[at]) && before != "::" {
            let mut parts = vec![words[at].clone()];
            while words.get(at + 1).is_some_and(|word| word == "::")
                && words.get(at + 2).is_some_and(|word| is_word(word))
            {
                parts.push(words[at + 2].clone());
                at += 2;
            }
            // `pub(super)` and `pub(in crate::lock)` import nothing.
            let is_visibility = before == "in" || before == "(" && at > 1 && words[at - 2] == "pub";
            if parts.len() > 1 && !is_visibility {
                paths.push(CodePath { parts, binds: None });
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    paths
}

/// Returns all paths of the code.
pub(crate) fn all_paths(tokens: &TokenStream) -> Vec<Vec<String>> {
    let paths = paths(&words(tokens)).into_iter().map(|path| path.parts);
    paths.filter(|parts| parts.len() > 1).collect()
}

/// Adds the paths of a `use` from a word on. Returns the position after it.
fn expand_use(
    words: &[String],
    mut at: usize,
    mut parts: Vec<String>,
    paths: &mut Vec<CodePath>,
) -> usize {
    loop {
        match words.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while words.get(at).is_some_and(|word| word != "}") {
                    at = expand_use(words, at, parts.clone(), paths);
                    at += usize::from(words.get(at).is_some_and(|word| word == ","));
                }
                return at + 1;
            }
            Some("*") => {
                paths.push(CodePath { parts, binds: Some("*".to_owned()) });
                return at + 1;
            }
            Some("::") => at += 1,
            Some(word) if is_word(word) => {
                if word != "self" || parts.is_empty() {
                    parts.push(word.to_owned());
                }
                at += 1;
                if words.get(at).is_none_or(|word| word != "::") {
                    let renamed = words.get(at).filter(|word| *word == "as");
                    let name = renamed.and_then(|_| words.get(at + 1)).or(parts.last());
                    let binds = name.cloned();
                    let end = if renamed.is_some() { at + 2 } else { at };
                    paths.push(CodePath { parts, binds });
                    return end;
                }
            }
            _ => return at + 1,
        }
    }
}

/// A crate whose paths can be resolved.
pub(crate) struct Resolver<'a> {
    files: &'a BTreeMap<Vec<String>, Source>,
    paths: BTreeMap<&'a [String], Vec<CodePath>>,
    bindings: BTreeMap<&'a [String], Bindings>,
    items: BTreeMap<&'a [String], BTreeSet<String>>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(of: &'a Crate) -> Self {
        let mut resolver = Self {
            files: &of.files,
            paths: BTreeMap::new(),
            bindings: BTreeMap::new(),
            items: BTreeMap::new(),
        };
        for (module, source) in &of.files {
            let words = words(&source.product);
            let paths = paths(&words);
            let imports = paths.iter().filter_map(|path| {
                let name = path.binds.clone().filter(|name| name != "*")?;
                Some((name, path.parts.clone()))
            });
            resolver.bindings.insert(module, imports.collect());
            resolver.items.insert(module, items(&words));
            resolver.paths.insert(module, paths);
        }
        resolver
    }

    /// Returns the absolute path of a path in a module; `None` for one of another crate.
    fn absolute(&self, module: &[String], parts: &[String]) -> Option<Vec<String>> {
        let (mut base, mut rest) = (module.to_vec(), parts);
        match parts.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &parts[1..]),
            "self" | "super" => {
                while let Some(first) =
                    rest.first().filter(|part| *part == "super" || *part == "self")
                {
                    if first == "super" {
                        base.pop();
                    }
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [module, &[first.to_owned()]].concat();
                if !self.files.contains_key(&child) {
                    return None;
                }
            }
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// Returns the module that defines the item of an absolute path, and follows re-exports. Also returns whether the
    /// path is a module itself.
    fn definition(&self, path: &[String], depth: usize) -> Option<(&'a [String], bool)> {
        let length =
            (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
        let (module, _) = self.files.get_key_value(&path[..length])?;
        let Some(item) = path.get(length) else { return Some((module, true)) };
        if depth > 8 || self.items[&module[..]].contains(item) {
            return Some((module, false));
        }
        if let Some(target) = self.bindings[&module[..]].get(item) {
            // A re-export of another crate's item imports nothing.
            let target = self.absolute(module, target)?;
            return self.definition(&[&target[..], &path[length + 1..]].concat(), depth + 1);
        }
        for glob in &self.paths[&module[..]] {
            if glob.binds.as_deref() == Some("*")
                && let Some(target) = self.absolute(module, &glob.parts)
                && target != *module
                && let Some((found, false)) =
                    self.definition(&[&target[..], &path[length..]].concat(), depth + 1)
                && self.items[found].contains(item)
            {
                return Some((found, false));
            }
        }
        Some((module, false))
    }

    /// Returns the module that declares an item which another module imports by this name.
    pub(crate) fn imported(&self, module: &[String], name: &str) -> Option<&'a [String]> {
        let absolute = self.absolute(module, self.bindings[module].get(name)?)?;
        let (declaring, is_module) = self.definition(&absolute, 0)?;
        (!is_module).then_some(declaring)
    }

    /// Returns the module that a path in a module imports from.
    fn target(&self, module: &[String], path: &CodePath) -> Option<&'a [String]> {
        let bindings = &self.bindings[module];
        let is_keyword = ["crate", "self", "super"].contains(&path.parts[0].as_str());
        let absolute = match bindings.get(&path.parts[0]).filter(|_| path.binds.is_none()) {
            // `store::Fault` after `use crate::store`. Paths of types, such as `Fault::new`, count at the `use`.
            Some(import) if !is_keyword => {
                let base = self.absolute(module, import)?;
                let (_, true) = self.definition(&base, 0)? else { return None };
                [&base[..], &path.parts[1..]].concat()
            }
            _ => self.absolute(module, &path.parts)?,
        };
        let (target, is_module) = self.definition(&absolute, 0)?;
        let imports_module = is_module && path.binds.as_deref().is_some_and(|name| name != "*");
        // A `use` of a module imports nothing by itself: the paths that begin with it do.
        (!imports_module && target != module).then_some(target)
    }
}

/// Returns the names of items that the code declares, at any depth.
fn items(words: &[String]) -> BTreeSet<String> {
    const KEYWORDS: [&str; 8] =
        ["struct", "enum", "trait", "type", "fn", "const", "static", "macro_rules"];
    let is_item = |pair: &&[String]| KEYWORDS.contains(&pair[0].as_str());
    words
        .windows(2)
        .filter(is_item)
        .map(|pair| pair[1].clone())
        .chain(
            words
                .windows(3)
                .filter(|three| three[0] == "macro_rules")
                .map(|three| three[2].clone()),
        )
        .collect()
}

/// Returns the imports between the files of a crate. `lib.rs` and `main.rs` may import everything.
pub(crate) fn between_files(of: &Crate) -> Edges {
    let resolver = Resolver::new(of);
    let mut edges = Edges::new();
    for (module, source) in of.files.iter().filter(|(_, source)| !source.is_root()) {
        for path in &resolver.paths[&module[..]] {
            let Some(target) = resolver.target(module, path) else { continue };
            let target = &of.files[target];
            let (from, to) = (source.path.display().to_string(), target.path.display().to_string());
            if !is_idiom(&from, &to) {
                edges.entry(from).or_default().insert(to, path.parts.join("::"));
            }
        }
    }
    edges
}

/// A builder makes a manager, which makes requests, which know the manager: the one circle that is allowed.
fn is_idiom(from: &str, to: &str) -> bool {
    const IDIOM: [&str; 3] = ["builder", "manager", "request"];
    let part = |path: &str| {
        let first = path.split('/').next().unwrap_or_default();
        IDIOM.iter().position(|part| first.trim_end_matches(".rs") == *part)
    };
    match (part(from), part(to)) {
        (Some(from), Some(to)) => from != to,
        _ => false,
    }
}

/// Returns the imports between folders, and between folders and files that are in none.
pub(crate) fn between_folders(files: &Edges) -> Edges {
    let paths = || files.iter().flat_map(|(from, to)| to.keys().chain([from]));
    let folder = |path: &str| {
        // `lock/table.rs` belongs to `lock/table/`, if there is such a folder.
        let own = path.trim_end_matches(".rs").to_owned() + "/";
        match path.rsplit_once('/') {
            _ if paths().any(|path| path.starts_with(&own)) => own,
            Some((folder, _)) => format!("{folder}/"),
            None => path.to_owned(),
        }
    };
    let mut edges = Edges::new();
    for (from, targets) in files {
        for (to, example) in targets {
            let (folder, target) = (folder(from), folder(to));
            // The check of files finds circles of files that are in no folder.
            if folder != target && (folder.ends_with('/') || target.ends_with('/')) {
                let example = format!("{from}: {example}");
                edges.entry(folder).or_default().insert(target, example);
            }
        }
    }
    edges
}

/// Returns the groups of parts that import each other.
pub(crate) fn circles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    let reached: BTreeMap<&String, BTreeSet<String>> =
        edges.keys().map(|part| (part, reach(edges, part))).collect();
    for (part, targets) in &reached {
        let leads_back =
            |target: &&String| reached.get(target).is_some_and(|back| back.contains(*part));
        let circle: BTreeSet<String> = targets.iter().filter(leads_back).cloned().collect();
        if circle.contains(*part) && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// Returns everything that a part imports, directly or indirectly.
fn reach(edges: &Edges, from: &str) -> BTreeSet<String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(part) = next.pop() {
        for target in edges.get(&part).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(target.clone()) {
                next.push(target.clone());
            }
        }
    }
    seen
}

/// Describes a circle: its shortest round, with an example of each import, and its parts.
pub(crate) fn describe(edges: &Edges, circle: &BTreeSet<String>) -> String {
    let rounds = circle.iter().filter_map(|part| shortest_round(edges, part));
    let round = rounds.min_by_key(Vec::len).expect("a round");
    let mut text = String::new();
    for pair in round.windows(2) {
        let example = &edges[&pair[0]][&pair[1]];
        text += &format!("    {} imports {} ({example})\n", pair[0], pair[1]);
    }
    if circle.len() > round.len() - 1 {
        let parts: Vec<&str> = circle.iter().map(String::as_str).collect();
        text += &format!("    {} parts import each other: {}\n", parts.len(), parts.join(" "));
    }
    text
}

/// Returns the shortest way from a part back to it.
fn shortest_round(edges: &Edges, part: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![part.to_owned()]];
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while let Some(way) = ways.get(at).cloned() {
        for target in edges.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
            let longer = [&way[..], std::slice::from_ref(target)].concat();
            if target == part {
                return Some(longer);
            }
            if seen.insert(target.clone()) {
                ways.push(longer);
            }
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_written_out() {
        let code = "pub(in crate::x) use crate::{a::{self, B}, c::*, d as e}; fn f(x: super::g::H) -> i::J { k }";
        let found = paths(&words(&code.parse().expect("tokens")));
        let found: Vec<(String, Option<String>)> =
            found.into_iter().map(|path| (path.parts.join("::"), path.binds)).collect();
        let some = |name: &str| Some(name.to_owned());
        let expected = [
            ("crate::a", some("a")),
            ("crate::a::B", some("B")),
            ("crate::c", some("*")),
            ("crate::d", some("e")),
            ("super::g::H", None),
            ("i::J", None),
        ];
        assert_eq!(found, expected.map(|(path, name)| (path.to_owned(), name)));
    }

    #[test]
    fn circles_are_found() {
        let mut edges = Edges::new();
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("c", "b")] {
            edges.entry(from.into()).or_default().insert(to.into(), "example".into());
        }
        let circles = circles(&edges);
        assert_eq!(circles, [["a", "b", "c"].map(str::to_owned).into()]);
        let text = describe(&edges, &circles[0]);
        assert!(text.contains("b imports c (example)\n    c imports b"), "{text}");
        assert!(text.contains("3 parts"), "{text}");
    }
}
