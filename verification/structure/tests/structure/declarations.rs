//! The types that the crates declare, and the files that implement them.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::imports::{Resolver, words};
use crate::source::{Crate, is_punct};

/// The files by the types that they declare.
pub(crate) type Declarations = BTreeMap<String, Vec<String>>;

/// Returns all declarations of structs, enums, traits and type aliases.
pub(crate) fn types(crates: &[Crate]) -> Declarations {
    let mut types = Declarations::new();
    for of in crates {
        for source in of.files.values() {
            let mut names = Vec::new();
            add_types(&source.product, false, &mut names);
            for name in names {
                types.entry(name).or_default().push(of.path(source));
            }
        }
    }
    types
}

/// Adds the names of the types that the code declares. The types of a trait, and of its implementations, belong to the
/// trait.
fn add_types(tokens: &TokenStream, is_in_impl: bool, names: &mut Vec<String>) {
    let mut declares = false;
    let mut is_impl = false;
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                if declares && word.starts_with(char::is_uppercase) {
                    names.push(word.clone());
                }
                declares = matches!(word.as_str(), "struct" | "enum" | "trait" | "union")
                    || word == "type" && !is_in_impl;
                is_impl |= word == "impl" || word == "trait";
            }
            TokenTree::Group(group) => {
                declares = false;
                let is_body = group.delimiter() == Delimiter::Brace;
                add_types(&group.stream(), is_impl && is_body, names);
                is_impl &= !is_body;
            }
            TokenTree::Punct(punct) => {
                declares = false;
                is_impl &= punct.as_char() != ';';
            }
            TokenTree::Literal(_) => declares = false,
        }
    }
}

/// Returns the files with an `impl` of each type, inherent or of a trait, by the type's name and the file that declares
/// it. An `impl` in another crate does not count, because a conversion of the other crate's types cannot be anywhere
/// else.
pub(crate) fn implementations(of: &Crate) -> BTreeMap<(String, String), BTreeSet<String>> {
    let resolver = Resolver::new(of);
    let mut declared: BTreeMap<String, Vec<&[String]>> = BTreeMap::new();
    for (module, source) in &of.files {
        let mut names = Vec::new();
        add_types(&source.product, false, &mut names);
        for name in names {
            declared.entry(name).or_default().push(module);
        }
    }
    let mut files: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (module, source) in &of.files {
        let mut names = Vec::new();
        add_implemented(&source.product, &mut names);
        for name in names {
            let Some(modules) = declared.get(&name) else { continue };
            let own = modules.iter().find(|declaring| **declaring == module.as_slice());
            let imported = resolver.imported(module, &name);
            let Some(declaring) = own.copied().or(imported).filter(|one| modules.contains(one))
            else {
                continue;
            };
            let declaring = of.path(&of.files[declaring]);
            files.entry((name, declaring)).or_default().insert(of.path(source));
        }
    }
    files
}

/// Adds the names of the types that the code implements, outside of functions.
fn add_implemented(tokens: &TokenStream, names: &mut Vec<String>) {
    let mut head: Option<Vec<TokenTree>> = None;
    let mut before: Vec<TokenTree> = Vec::new();
    for token in tokens.clone() {
        match (&mut head, &token) {
            (None, TokenTree::Ident(word)) if word == "impl" && begins_item(before.last()) => {
                head = Some(Vec::new());
            }
            (None, TokenTree::Group(group)) => {
                let is_module = before.len().checked_sub(2).is_some_and(
                    |at| matches!(&before[at], TokenTree::Ident(word) if word == "mod"),
                );
                if is_module {
                    add_implemented(&group.stream(), names);
                }
            }
            (Some(tokens), TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let tokens: TokenStream = tokens.drain(..).collect();
                names.extend(self_type(&words(&tokens)));
                head = None;
            }
            (Some(tokens), token) => tokens.push(token.clone()),
            (None, _) => {}
        }
        before.push(token);
    }
}

/// Whether an item begins after a token. After any other token, `impl` is a type.
fn begins_item(before: Option<&TokenTree>) -> bool {
    match before {
        None => true,
        Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Parenthesis,
        Some(TokenTree::Ident(word)) => word == "unsafe",
        Some(token) => is_punct(token, ';'),
    }
}

/// Returns the name of the type in `impl<T> Trait for Type<T> where …`.
fn self_type(words: &[String]) -> Option<String> {
    let mut depth = 0_i32;
    let mut parts: Vec<&str> = Vec::new();
    let mut before = "";
    for word in words {
        match word.as_str() {
            "<" => depth += 1,
            ">" if before != "-" && before != "=" => depth -= 1,
            "where" if depth == 0 => break,
            "for" if depth == 0 => parts.clear(),
            word if depth == 0 => parts.push(word),
            _ => {}
        }
        before = word;
    }
    let name = parts.last()?;
    let is_path = parts.iter().all(|part| *part == "::" || part.starts_with(char::is_alphabetic));
    is_path.then(|| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(code: &str) -> TokenStream {
        code.parse().expect("tokens")
    }

    #[test]
    fn types_are_found() {
        let code = "pub(crate) struct A<T>(T); enum B {} trait C { type D; } impl C for A<u8> { type D = u8; }
            type E = u8; fn f() { struct G; } mod h { union I { x: u8 } }";
        let mut names = Vec::new();
        add_types(&tokens(code), false, &mut names);
        assert_eq!(names, ["A", "B", "C", "E", "G", "I"]);
    }

    #[test]
    fn implementations_are_found() {
        let code = "impl A {} impl<T: Fn() -> u8> B<T> for super::C<T> where T: D {} fn f() -> impl E { g }
            impl fmt::Display for &H {} mod i { impl From<J> for K {} } impl L for Box<M> {}";
        let mut names = Vec::new();
        add_implemented(&tokens(code), &mut names);
        assert_eq!(names, ["A", "C", "K", "Box"]);
    }
}
