//! `route_key!`: templates whose placeholders are path parameters with a type.
//!
//! The web layers of `distlock-runtime` parse the template again when a program starts, by the same rules. Its tests
//! contain the same table of mistakes.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Ident, LitStr, Path, Result, Token};

use crate::value;

/// Expands to the key as an expression, or to a compile error.
pub(crate) fn route_key(input: TokenStream) -> TokenStream {
    match parse.parse2(input) {
        Ok((template, krate)) => {
            let krate = krate.map_or_else(|| quote!(::distlock), |path| quote!(#path));
            quote!(#krate::__private::RouteKey::checked(#template))
        }
        Err(error) => error.into_compile_error(),
    }
}

fn parse(input: ParseStream<'_>) -> Result<(LitStr, Option<Path>)> {
    const EXAMPLE: &str =
        "say what to lock, in quotes: for example `route_key!(\"order:{order_id:u64}\")`";
    let template: LitStr = input.parse().map_err(|error| Error::new(error.span(), EXAMPLE))?;
    if let Err(message) = check(&template.value()) {
        return Err(Error::new(template.span(), message));
    }
    let mut krate = None;
    while !input.is_empty() {
        input.parse::<Token![,]>()?;
        if input.is_empty() {
            break;
        }
        let name = input.call(Ident::parse_any)?;
        if name != "crate" || krate.is_some() {
            return Err(Error::new(
                name.span(),
                "`route_key!` takes a template, and `crate = …` where `distlock` has another name",
            ));
        }
        input.parse::<Token![=]>()?;
        krate = Some(value::crate_path(input)?);
    }
    Ok((template, krate))
}

/// Checks a template. The error says what is wrong and how to write it.
fn check(template: &str) -> std::result::Result<(), String> {
    if template.is_empty() {
        return Err("the key is empty: say what to lock, for example `order:{order_id:u64}`".into());
    }
    let mut rest = template;
    // The parameter that ends where `rest` begins.
    let mut before: Option<&str> = None;
    let mut has_parameters = false;
    while let Some(at) = rest.find(['{', '}']) {
        let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
        if let Some(after) = after.strip_prefix(brace) {
            (before, rest) = (None, after);
            continue;
        }
        if brace == "}" {
            return Err("a `}` without its `{`: write `}}` for a literal brace".into());
        }
        let Some((inside, after)) = after.split_once('}') else {
            return Err("a `{` without its `}`: write `{{` for a literal brace".into());
        };
        let name = parameter(inside)?;
        if let (0, Some(before)) = (at, before) {
            return Err(format!(
                "nothing separates `{{{before}}}` from `{{{name}}}`, so different values could make the \
                 same key: write a `:` between them"
            ));
        }
        (before, rest) = (Some(name), after);
        has_parameters = true;
    }
    if has_parameters {
        return Ok(());
    }
    foreign_placeholder(&template.replace("{{", "{").replace("}}", "}"))
}

/// Refuses `order:#id`, `order:${id}`, `/orders/:id`, `order:<id>`, `order:@id` and `order:%s`: other frameworks
/// would fill these in. Here they are plain text, and the key would be the same for every request.
fn foreign_placeholder(text: &str) -> std::result::Result<(), String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, sign) in text.char_indices() {
        let (before, after) = (&text[..at], &text[at + sign.len_utf8()..]);
        let (open, close) = match sign {
            '#' | '$' if after.starts_with('{') => ("{", "}"),
            '<' => ("", ">"),
            '#' | '$' | '@' | ':' | '%' => ("", ""),
            _ => continue,
        };
        let inside = after.strip_prefix(open).unwrap_or(after);
        let name = &inside[..inside.find(|c| !is_word(c)).unwrap_or(inside.len())];
        let begins_a_name = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        let is_alone = match sign {
            ':' => before.ends_with('/'),
            '%' => matches!(name, "s" | "d"),
            _ => !before.ends_with(is_word),
        };
        if begins_a_name && is_alone && inside[name.len()..].starts_with(close) {
            let name = if sign == '%' { "order_id" } else { name };
            return Err(format!(
                "`{sign}{}` is plain text here, and the key would be the same for every request: write \
                 `{{{name}:u64}}` (or `i64`, `uuid`, `str`) for a path parameter, or make the key with \
                 `key_fn`",
                &after[..open.len()
                    + inside.find(|c| !is_word(c)).unwrap_or(inside.len())
                    + close.len()],
            ));
        }
    }
    Ok(())
}

/// Returns the name of `order_id:u64`.
fn parameter(inside: &str) -> std::result::Result<&str, String> {
    let (name, of) = match inside.split_once(':') {
        Some((name, of)) => (name, Some(of)),
        None => (inside, None),
    };
    let bare = name.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
    if bare.is_empty() {
        return Err(format!(
            "`{{{inside}}}` names nothing: write the path parameter's name and type, for example \
             `{{order_id:u64}}`"
        ));
    }
    if name.contains('.') {
        return Err(format!(
            "`{{{inside}}}`: a path parameter has no fields: write its name, or make the key with `key_fn`"
        ));
    }
    let Some(of) = of else {
        return Err(format!(
            "`{{{inside}}}` has no type, and `7` and `07` would be two locks: write `{{{bare}:u64}}` (or \
             `i64`, `uuid`), `{{{bare}:str}}` to take the text as it is, or make the key with `key_fn`"
        ));
    };
    if bare.len() < name.len() {
        return Err(format!("`{{{inside}}}` is not a name: write `{{{bare}:{of}}}`"));
    }
    let meant = match of.trim_matches(|c: char| c == '&' || c.is_whitespace()) {
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "i64",
        "Uuid" | "UUID" | "uuid" => "uuid",
        "String" | "str" | "string" => "str",
        _ => "u64",
    };
    if of != meant {
        return Err(format!(
            "`{{{inside}}}`: a path parameter is of type `u64`, `i64`, `uuid` or `str`, and takes no \
             format: write `{{{bare}:{meant}}}`"
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of `distlock-runtime` contain the same table.
    ///
    /// Fault: FW2.
    #[test]
    fn mistakes_name_the_fix() {
        for (template, words) in [
            ("", "say what to lock"),
            ("order:{}", "`{order_id:u64}`"),
            ("order:{:05}", "`{order_id:u64}`"),
            ("order:{id}", "`{id:u64}`"),
            ("order:{id}", "`{id:str}`"),
            ("order:{id}", "`key_fn`"),
            ("order:{id:05}", "write `{id:u64}`"),
            ("order:{id:i32}", "write `{id:i64}`"),
            ("order:{id:Uuid}", "write `{id:uuid}`"),
            ("order:{id:&str}", "write `{id:str}`"),
            ("order:{order.id:u64}", "`key_fn`"),
            ("order:{id", "write `{{`"),
            ("order:id}", "write `}}`"),
            ("{a:u64}{b:u64}", "a `:` between"),
            ("{*rest:str}", "write `{rest:str}`"),
            ("{ id:u64}", "write `{id:u64}`"),
            ("order:#id", "`#id` is plain text here"),
            ("order:#{{id}}", "`#{id}` is plain text here"),
            ("order:$id", "write `{id:u64}`"),
            ("order:${{id}}", "`${id}` is plain text here"),
            ("/orders/:id/pay", "`:id` is plain text here"),
            ("order:<id>", "`<id>` is plain text here"),
            ("order:@id", "`key_fn`"),
            ("order:%s", "write `{order_id:u64}`"),
        ] {
            let message = check(template).expect_err(template);
            assert!(message.contains(words), "{template}: {message}");
        }
    }

    #[test]
    fn good_templates_pass() {
        for template in [
            "everything",
            "order:{id:u64}",
            "{a:str}-{b:uuid}",
            "{{{a:i64}}}:x",
            "{a:u64}{{{b:u64}",
            "{{}}{a:str}",
            "nightly:report",
            "shop::orders",
            "ticket #7",
            "100%",
            "50%discount",
            "admin@example.org",
            "{{cart}}:all",
            "{a:u64}#main",
        ] {
            assert_eq!(check(template), Ok(()), "{template}");
        }
    }

    #[test]
    fn nothing_makes_it_panic() {
        for input in
            ["", "5", "x", "\"{\"", "\"a\" b", "\"a\", crate", "\"a\", crate = 5", "\"ä{ö}\""]
        {
            route_key(input.parse().expect(input));
        }
    }
}
