//! The output for an attribute with mistakes: all compile errors, and the function unchanged.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::FnArg;

use crate::function::{self, Function, Shape, bound_names};

/// Emits the mistakes and the unchanged item. Calls of the function still resolve, so no second error hides the
/// first, and completion works while the attribute is being typed.
pub(crate) fn item(errors: Option<TokenStream>, item: TokenStream) -> TokenStream {
    // A second `#[redis_lock]` would report its own mistakes on top of the one about stacking.
    let item = function::without_locks(item);
    quote!(#item #errors)
}

/// Emits the mistakes and the function. Avoids two follow-up errors of rustc: that a function that awaits is not
/// `async`, and that an argument for the attribute is unused.
pub(crate) fn function(errors: Option<TokenStream>, function: &Function) -> TokenStream {
    let Function { inner_attrs, body, brace, .. } = function;
    let uses = match function.shape {
        // The arguments have other names outside of the future.
        Shape::AsyncTrait { .. } => Vec::new(),
        _ => arguments(function),
    };
    let uses = uses.iter().map(|name| quote_spanned!(Span::mixed_site()=> let _ = &#name;));
    let mut block = Group::new(Delimiter::Brace, quote!(#(#inner_attrs)* #(#uses)* #body));
    block.set_span(*brace);
    let head = awaiting(function);
    item(errors, quote!(#head #block))
}

/// Returns the names that arguments bind. An argument with a `cfg` may not exist.
fn arguments(function: &Function) -> Vec<Ident> {
    let mut names = Vec::new();
    for input in &function.sig.inputs {
        if let FnArg::Typed(argument) = input
            && !argument.attrs.iter().any(|attr| attr.path().is_ident("cfg"))
        {
            bound_names(&argument.pat, &mut names);
        }
    }
    names
}

/// Returns the head of the function, changed so that its body may await.
fn awaiting(function: &Function) -> TokenStream {
    let is_before_fn = |at: usize, tokens: &[TokenTree], word: &str| match &tokens[at] {
        TokenTree::Ident(ident) => ident == word && !tokens[..at].iter().any(is_fn),
        _ => false,
    };
    let mut tokens: Vec<TokenTree> = function.head.clone().into_iter().collect();
    let position = |tokens: &[TokenTree], word: &str| {
        (0..tokens.len()).find(|at| is_before_fn(*at, tokens, word))
    };
    if function.only_async_is_missing() && function::mentions(function.body.clone(), "await") {
        let first = ["unsafe", "extern", "fn"].iter().find_map(|word| position(&tokens, word));
        tokens.insert(first.unwrap_or(0), Ident::new("async", Span::mixed_site()).into());
    } else if function.sig.asyncness.is_some()
        && let Some(constness) = position(&tokens, "const")
    {
        tokens.remove(constness);
    }
    tokens.into_iter().collect()
}

fn is_fn(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == "fn")
}
