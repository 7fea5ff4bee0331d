//! The sources of the crates, and their product code: everything but unit tests and comments.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// If this variable is set, only this crate is checked, and every violation is reported.
const ONLY: &str = "DISTLOCK_CRATE";

/// Returns the folder of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

/// Returns the only crate to check, if there is one.
pub(crate) fn only() -> Option<String> {
    env::var(ONLY).ok().filter(|name| !name.is_empty())
}

/// A crate of the product.
pub(crate) struct Crate {
    /// The name of the package: `distlock-core`.
    pub(crate) name: String,
    /// The folder of the package, relative to the workspace.
    pub(crate) folder: PathBuf,
    /// The source files by their modules.
    pub(crate) files: BTreeMap<Vec<String>, Source>,
}

/// A source file.
pub(crate) struct Source {
    /// The path below the crate's `src`.
    pub(crate) path: PathBuf,
    /// `lock::table` for `lock/table.rs`, `lock` for `lock/mod.rs`, and nothing for `lib.rs`.
    pub(crate) module: Vec<String>,
    pub(crate) text: String,
    /// The tokens without comments and unit tests.
    pub(crate) product: TokenStream,
}

impl Crate {
    /// Reads all crates of the product.
    pub(crate) fn all() -> Vec<Self> {
        let entries = fs::read_dir(workspace()).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> =
            names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| name.starts_with("distlock-"));
        names.sort();
        assert!(names.len() > 5, "where are the crates? {names:?}");
        let mut crates: Vec<Self> = names.iter().map(|name| Self::read(name, name)).collect();
        crates.push(Self::read("distlock", ""));
        crates
    }

    /// Reads the crates to check.
    pub(crate) fn selected() -> Vec<Self> {
        let mut crates = Self::all();
        if let Some(name) = only() {
            crates.retain(|one| one.name == name);
            assert!(!crates.is_empty(), "there is no crate {name}");
        }
        crates
    }

    fn read(name: &str, folder: &str) -> Self {
        let root = workspace().join(folder).join("src");
        let mut paths = Vec::new();
        add_rust_files(&root, &mut paths);
        let mut tests = BTreeSet::new();
        let mut files = BTreeMap::new();
        for path in paths {
            let source = Source::read(&root, &path, &mut tests);
            files.insert(source.module.clone(), source);
        }
        files.retain(|module: &Vec<String>, _| !tests.iter().any(|test| module.starts_with(test)));
        assert!(!files.is_empty(), "{name}: where are the sources?");
        Self { name: name.to_owned(), folder: folder.into(), files }
    }

    /// Returns the path of a file, relative to the workspace.
    pub(crate) fn path(&self, source: &Source) -> String {
        self.folder.join("src").join(&source.path).display().to_string()
    }
}

impl Source {
    fn read(root: &Path, path: &Path, tests: &mut BTreeSet<Vec<String>>) -> Self {
        let text = fs::read_to_string(path).expect("a text");
        let tokens: TokenStream =
            text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path.strip_prefix(root).expect("below the root").to_owned();
        let parts = path.with_extension("");
        let mut module: Vec<String> =
            parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let is_root = module.len() == 1 && (module[0] == "lib" || module[0] == "main");
        if is_root || module.last().is_some_and(|last| last == "mod") {
            module.pop();
        }
        let mut found = Vec::new();
        let product = without_tests(tokens, &mut found);
        tests.extend(found.into_iter().map(|name| [&module[..], &[name]].concat()));
        Self { path, module, text, product }
    }

    /// Whether this is `lib.rs` or `main.rs`.
    pub(crate) fn is_root(&self) -> bool {
        self.module.is_empty()
    }

    /// Whether this is `mod.rs`, `lib.rs` or `main.rs`.
    pub(crate) fn is_index(&self) -> bool {
        self.is_root() || self.path.ends_with("mod.rs")
    }

    /// Returns the lines of comments of the whole file.
    pub(crate) fn comments(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(str::trim_start).filter(|line| line.starts_with("//"))
    }
}

fn add_rust_files(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            add_rust_files(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

/// Removes the items behind `#[cfg(test)]`, and adds the names of the modules among them.
fn without_tests(tokens: TokenStream, modules: &mut Vec<String>) -> TokenStream {
    let mut product = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if is_punct(&token, '#') && tokens.peek().is_some_and(is_test_attribute) {
            tokens.next();
            modules.extend(skip_item(&mut tokens));
            continue;
        }
        product.push(match token {
            TokenTree::Group(group) => {
                let inner = without_tests(group.stream(), modules);
                TokenTree::Group(proc_macro2::Group::new(group.delimiter(), inner))
            }
            token => token,
        });
    }
    product.into_iter().collect()
}

/// Whether the group is the rest of `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn is_test_attribute(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    group.delimiter() == Delimiter::Bracket
        && (text == "cfg(test)" || text.starts_with("cfg(all(test,"))
}

/// Skips an item, a field or a statement. Returns its name if it is a module in another file.
fn skip_item(tokens: &mut Peekable<impl Iterator<Item = TokenTree>>) -> Option<String> {
    const ITEMS: [&str; 11] =
        ["fn", "mod", "impl", "struct", "enum", "trait", "use", "const", "static", "let", "type"];
    let mut words = Vec::new();
    let is_item = |words: &[String]| words.iter().any(|word| ITEMS.contains(&word.as_str()));
    for token in tokens.by_ref() {
        match &token {
            TokenTree::Punct(punct) => match punct.as_char() {
                ';' => break,
                ',' if !is_item(&words) => return None,
                _ => {}
            },
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let ends_later = words.iter().any(|word| word == "use" || word == "let");
                if !ends_later {
                    return None;
                }
            }
            TokenTree::Group(_) | TokenTree::Literal(_) => {}
            TokenTree::Ident(word) => words.push(word.to_string()),
        }
    }
    let at = words.iter().position(|word| word == "mod")?;
    words.get(at + 1).cloned()
}

pub(crate) fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == c)
}

#[test]
fn unit_tests_are_removed() {
    let text = "use a; #[cfg(test)] use b::{c, d}; #[cfg(test)] mod tests; struct A { x: u8, #[cfg(test)] y: u8, z: u8 }
        #[cfg(test)] #[allow(x)] impl A { fn f() {} } fn g() { #[cfg(test)] let x = 1; h() } #[cfg(test)] mod e { fn i() {} }";
    let mut modules = Vec::new();
    let product = without_tests(text.parse().expect("tokens"), &mut modules).to_string();
    let product: String = product.split_whitespace().collect();
    assert_eq!(product, "usea;structA{x:u8,z:u8}fng(){h()}");
    assert_eq!(modules, ["tests"]);
}
