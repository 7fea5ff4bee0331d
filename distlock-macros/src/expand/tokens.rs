//! Helpers for generated tokens: their names, their groups, and the places that diagnostics show for them.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Member, Path};

/// Returns the path of the runtime's module for generated code.
pub(super) fn private(krate: Option<&Path>) -> TokenStream {
    match krate {
        Some(path) => quote!(#path::__private),
        None => quote!(::distlock::__private),
    }
}

/// Replaces `self` by the name that the receiver has where the tokens are emitted.
pub(super) fn renamed(tokens: TokenStream, receiver: &Ident) -> TokenStream {
    let rename = |token| match token {
        TokenTree::Ident(name) if name == "self" => {
            Ident::new(&receiver.to_string(), receiver.span().located_at(name.span())).into()
        }
        TokenTree::Group(group) => {
            let inner = Group::new(group.delimiter(), renamed(group.stream(), receiver));
            with_span(inner, group.span()).into()
        }
        token => token,
    };
    tokens.into_iter().map(rename).collect()
}

/// Puts the user's code into braces that are not the user's. Given the user's own braces, rustc reports the block as
/// superfluous braces and offers to delete those of the function.
pub(super) fn generated_braces(content: TokenStream, brace: Span) -> Group {
    braced(Span::call_site().located_at(brace), content)
}

pub(super) fn braced(span: Span, content: TokenStream) -> Group {
    with_span(Group::new(Delimiter::Brace, content), span)
}

pub(super) fn with_span(mut group: Group, span: Span) -> Group {
    group.set_span(span);
    group
}

/// Returns the same tokens, shown at another place by diagnostics.
pub(super) fn shown_at(tokens: &TokenStream, span: Span) -> TokenStream {
    let shown = |mut token: TokenTree| {
        token.set_span(token.span().located_at(span));
        token
    };
    tokens.clone().into_iter().map(shown).collect()
}

/// Returns the spans of the first and the last token. They show the user's code without counting as it, which
/// keeps lints and machine-applicable fixes for the user's code away from the generated code.
pub(super) fn ends(tokens: &impl ToTokens) -> (Span, Span) {
    let mut spans = tokens.to_token_stream().into_iter().map(|token| token.span());
    let first = spans.next().unwrap_or_else(Span::call_site);
    let last = spans.last().unwrap_or(first);
    let generated = |span: Span| Span::mixed_site().located_at(span);
    (generated(first), generated(last))
}

/// Makes an identifier of a name in a template. A template names `r#type` as `type`, but the code needs the `r#`.
pub(super) fn ident(name: &str, span: Span) -> Ident {
    match syn::parse_str::<Ident>(name) {
        Ok(_) => Ident::new(name, span),
        Err(_) if name == "self" => Ident::new(name, span),
        Err(_) => Ident::new_raw(name, span),
    }
}

/// Makes a field of `tenant` or `0`, which follow a dot.
pub(super) fn member(name: &str, span: Span) -> Member {
    match name.parse::<u32>() {
        Ok(index) => Member::Unnamed(syn::Index { index, span }),
        Err(_) => Member::Named(ident(name, span)),
    }
}
