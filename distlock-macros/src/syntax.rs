//! `name = value, name = value`: what the arguments of all macros have in common.

use proc_macro2::TokenTree;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Ident, Result, Token, token};

/// `= value` after the name, and not twice; `example` is a value for the message that there is none.
pub(crate) fn once<T>(
    slot: &mut Option<T>,
    name: &Ident,
    example: &str,
    input: ParseStream<'_>,
    value: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    if input.peek(Token![==]) || input.peek(Token![=>]) {
        return Err(input.error(format!("write `{name} = …`, with a plain `=`")));
    }
    if !input.peek(Token![=]) {
        return Err(Error::new(
            name.span(),
            format!("`{name}` needs a value: write `{name} = {example}`"),
        ));
    }
    let equals: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(equals.span, format!("a value for `{name}` is missing here")));
    }
    let value = value(input)?;
    store(slot, name, value)
}

/// The one place where a value is stored.
pub(crate) fn store<T>(slot: &mut Option<T>, name: &Ident, value: T) -> Result<()> {
    if slot.is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is given twice: remove one")));
    }
    *slot = Some(value);
    Ok(())
}

pub(crate) fn comma(input: ParseStream<'_>) -> Result<()> {
    if input.peek(Token![,]) {
        input.parse::<Token![,]>().map(drop)
    } else if input.peek(Ident::peek_any) && (input.peek2(Token![=]) || input.peek2(token::Paren)) {
        Err(input.error("a comma is missing before this option"))
    } else {
        let error = input.error("expected a comma and the next option");
        skip_to_comma(input);
        Err(error)
    }
}

/// Goes on with the next option, so that its mistakes are reported too.
pub(crate) fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        if input.parse::<TokenTree>().is_err() {
            break;
        }
    }
}
