//! Parsing that all macros share: lists of `name = value`, and the mistakes found in them.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Ident, Result, Token, token};

/// The mistakes of one attribute or macro call, which are reported together.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn extend(&mut self, errors: impl IntoIterator<Item = Error>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    /// Returns the value, or records the mistake and returns `None`.
    pub(crate) fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn into_compile_errors(self) -> Option<TokenStream> {
        self.0.map(Error::into_compile_error)
    }

    #[cfg(test)]
    pub(crate) fn messages(self) -> Vec<String> {
        self.0.into_iter().flatten().map(|e| e.to_string()).collect()
    }
}

/// Parses the `= value` after a name and stores the value, unless it was given before. `example` is a value for the
/// error message if there is none.
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

/// Stores the value of an option, unless it was given before.
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

/// Skips the rest of an option, so that the mistakes of the next one are reported too.
pub(crate) fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        if input.parse::<TokenTree>().is_err() {
            break;
        }
    }
}
