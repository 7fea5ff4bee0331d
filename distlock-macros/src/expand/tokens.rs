//! Tokens that are ours, and the places they are shown at.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;

/// `self` → the name it has in this place.
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

/// The user's code in braces that are not the user's: with those rustc takes the block for
/// superfluous braces and offers to delete the function's.
pub(super) fn ours(content: TokenStream, brace: Span) -> Group {
    braced(Span::call_site().located_at(brace), content)
}

pub(super) fn braced(span: Span, content: TokenStream) -> Group {
    with_span(Group::new(Delimiter::Brace, content), span)
}

pub(super) fn with_span(mut group: Group, span: Span) -> Group {
    group.set_span(span);
    group
}

/// The same tokens, shown elsewhere.
pub(super) fn shown_at(tokens: &TokenStream, span: Span) -> TokenStream {
    let shown = |mut token: TokenTree| {
        token.set_span(token.span().located_at(span));
        token
    };
    tokens.clone().into_iter().map(shown).collect()
}

/// Spans of the first and the last token. They show the user's code without counting as it, which
/// keeps lints and machine fixes for the user's code away from ours.
pub(super) fn ends(tokens: &impl ToTokens) -> (Span, Span) {
    let mut spans = tokens.to_token_stream().into_iter().map(|token| token.span());
    let first = spans.next().unwrap_or_else(Span::call_site);
    let last = spans.last().unwrap_or(first);
    let ours = |span: Span| Span::mixed_site().located_at(span);
    (ours(first), ours(last))
}
