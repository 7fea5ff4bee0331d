//! The procedural macros of `distlock`. Use the `distlock` crate, which re-exports and documents
//! them.
//!
//! An annotated function passes through the modules in this order:
//!
//! 1. `options` parses the attribute, with `syntax`, and with `value`, `keys`, `template` and `duration` for the values.
//! 2. `function` parses the function.
//! 3. `check` compares both, with `names`, `foreign_placeholders` and `return_type`.
//! 4. `expand` writes the wrapper. If there are mistakes, `error_output` reports all of them with the function unchanged.
//!
//! `keys` also parses `key!`. `route_key` is the macro of that name.

mod check;
mod duration;
mod error_output;
mod expand;
mod foreign_placeholders;
mod function;
mod keys;
mod names;
mod options;
mod return_type;
mod route_key;
mod suggest;
mod syntax;
mod template;
mod value;

use proc_macro2::TokenStream;

use crate::function::Function;
use crate::keys::KeyCall;
use crate::options::AttributeOptions;
use crate::syntax::Errors;

// `distlock` documents all macros where it re-exports them, with links to its types.
#[allow(missing_docs)]
#[proc_macro_attribute]
pub fn redis_lock(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    lock_function(args.into(), item.into()).into()
}

#[allow(missing_docs)]
#[proc_macro]
pub fn key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    make_key(input.into()).into()
}

#[allow(missing_docs)]
#[proc_macro]
pub fn route_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    route_key::route_key(input.into()).into()
}

/// Expands `#[redis_lock]`.
fn lock_function(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let options = AttributeOptions::parse(args, &mut errors);
    let function = Function::parse(item.clone(), &mut errors);
    let lock = check::check(options, function.as_ref(), &mut errors);
    match (function, lock, errors.into_compile_errors()) {
        (Some(function), Some(lock), None) => expand::expand(&lock, &function),
        (Some(function), _, errors) => error_output::function(errors, &function),
        (None, _, errors) => error_output::item(errors, item),
    }
}

fn make_key(input: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let call = KeyCall::parse(input, &mut errors);
    match (call, errors.into_compile_errors()) {
        (Some(call), None) => expand::key_call(&call),
        (_, errors) => errors.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn expand(args: &str, item: &str) -> String {
        lock_function(args.parse().expect(args), item.parse().expect(item)).to_string()
    }

    #[test]
    fn a_function_with_mistakes_stays_what_it_was() {
        let (head, body) = ("#[inline] async fn pay(id: u64) -> Result<(), E>", "half .");
        let expanded =
            expand(r#"key = "{id", ttl = "5", wiat = x"#, &format!("{head} {{ {body} }}"));
        let head = head.parse::<TokenStream>().expect(head).to_string();
        assert!(expanded.starts_with(&head) && expanded.contains("; half . }"), "{expanded}");
        assert_eq!(expanded.matches("compile_error").count(), 3, "{expanded}");
    }

    #[test]
    fn no_lint_fires_where_only_the_attribute_was_to_use_an_argument() {
        let item = "async fn f(id: u8, #[cfg(x)] b: u8) -> R { b }";
        let expanded = expand(r#"key = "{}""#, item);
        let kept = "let _ = & id ; b }".replace(' ', "");
        assert!(expanded.replace(' ', "").contains(&kept), "{expanded}");
    }

    #[test]
    fn what_would_be_wrong_a_second_time_is_put_right() {
        for (item, kept) in [
            ("pub unsafe fn f() { g().await }", "pub async unsafe fn f ()"),
            ("const async fn f<const N: u8>() {}", "async fn f < const N : u8 > ()"),
            ("const fn f() {}", "const fn f ()"),
        ] {
            let expanded = expand("key = \"a\"", item).replace(' ', "");
            assert!(expanded.starts_with(&kept.replace(' ', "")), "{expanded}");
        }
    }

    #[test]
    fn half_typed_code_still_expands() {
        let expanded = expand(r#"key = "a""#, "async fn pay() -> Result<(), E> { order. }");
        assert!(
            !expanded.contains("compile_error") && expanded.contains("{ order . }"),
            "{expanded}"
        );
    }

    #[test]
    fn nothing_makes_it_panic() {
        let items = [
            "async fn f(&self, id: u8) {}",
            "",
            "fn",
            "async fn f() {}",
            "x",
            "struct A;",
            "{}",
            "async fn f(",
            "fn f() -> {}",
        ];
        let args = [
            "",
            "=",
            ",",
            "key",
            "key = ",
            "key = \"{\"",
            ",,",
            "key = \"{}\" = 5",
            "( ) [ ]",
            "'a'",
            "key = \"{id.99999999999}\"",
            "key(\"{99999999999999999999}\", id)",
            "key = \"{self.self}:{id.crate}:{id.0.1.x}\"",
            "crat = 5, supe = 5, sel = 5",
        ];
        for item in items.iter().filter_map(|item| item.parse::<TokenStream>().ok()) {
            for args in args.iter().filter_map(|args| args.parse::<TokenStream>().ok()) {
                lock_function(args.clone(), item.clone());
                make_key(args);
            }
        }
    }

    /// Combines meaningful pieces at random to some thousand attributes.
    #[test]
    fn no_mixture_makes_it_panic() {
        let items = [
            "async fn f(id: u64, r#type: u8, (a, b): (u8, u8)) -> Result<u8, E> { Ok(id) }",
            "fn f(&self, id: u64) -> impl Future<Output = ()> { async {} }",
        ];
        const TEXTS: &str = r##"{|}|{{|}}|id|self|crate|super|Self|type|r#|.|0|_|99999999999999999999|:|?|p|$|#|%s|*|>|ä| |::|(|)"##;
        let texts: Vec<_> = TEXTS.split('|').collect();
        const VALUES: &str = r##""5s" ; 5 ; 5s ; none ; None ; skip ; true ; id ; self ; crate ; ::x ; |e| e ; ["a", id] ; key("{}", id) ; vec![] ; -1 ; 'x' ; _ ; ("a") ; &x ; mut x"##;
        let values: Vec<_> = VALUES.split(" ; ").collect();
        let mut seed = 1_u64;
        let mut next = |below: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        let mut done = 0;
        for _ in 0..1_500 {
            let mut template = String::new();
            for _ in 0..next(7) {
                template.push_str(texts[next(texts.len())]);
            }
            let names = options::names();
            let mut name: Vec<char> = names[next(names.len())].chars().collect();
            let at = next(name.len());
            match next(4) {
                0 => drop(name.remove(at)),
                1 => name[at] = 'x',
                2 => name.insert(at, '_'),
                _ => {}
            }
            let name: String = name.into_iter().collect();
            let value = values[next(values.len())];
            let key = match next(4) {
                0 => format!("key({template:?}, {value}, x = id)"),
                1 => format!("keys = [{template:?}, {value}]"),
                _ => format!("key = {template:?}"),
            };
            let Ok(args) = format!("{key}, {name} = {value}").parse::<TokenStream>() else {
                continue;
            };
            lock_function(args, items[next(items.len())].parse().expect("an item"));
            make_key(format!("{template:?}").parse().expect("a text"));
            done += 1;
        }
        assert!(done > 750, "only {done} of them were attributes");
    }

    #[test]
    fn the_body_is_dropped_before_the_lock() {
        let expanded =
            expand(r#"key = "{id}""#, "async fn pay(id: u64) -> Result<(), E> { Ok(()) }");
        let (slot, body) = (expanded.find("let mut __guard ;"), expanded.find("let __future"));
        assert!(slot.is_some() && slot < body, "{expanded}");
    }

    /// The example at the top of the documentation.
    const ARGS: &str = r#"key = "order:{order_id}", ttl = "5s", wait = "2s""#;
    const ITEM: &str = "async fn pay(order_id: u64) -> Result<Receipt, PayError> { \
                        charge(order_id).await \
                        }";
    const SNAPSHOT: &str = "snapshots/example.rs";

    /// Formats the expansion of the example, for people to read and to see it change.
    #[test]
    fn the_example_expands_to_what_is_on_file() {
        let expanded = lock_function(ARGS.parse().expect(ARGS), ITEM.parse().expect(ITEM));
        let expanded = prettyplease::unparse(&syn::parse2(expanded).expect("a function"));
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(SNAPSHOT);
        if std::env::var_os("WRITE_SNAPSHOTS").is_some() {
            std::fs::write(&file, &expanded).expect("the snapshot can be written");
        }
        let on_file = std::fs::read_to_string(&file).expect(SNAPSHOT);
        assert!(
            expanded == on_file,
            "{SNAPSHOT} differs: look at the new expansion, and take it over with WRITE_SNAPSHOTS=1\n\
             {expanded}"
        );
        let lines = expanded.lines().count();
        assert!(lines <= 60, "{lines} lines are too many to read");
    }
}
