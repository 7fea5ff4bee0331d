//! What every part of an expansion needs.

use proc_macro2::{Delimiter, Group, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, Ident, Path};

use super::return_type::Output;
use super::tokens::{ends, renamed, with_span};
use crate::check::Lock;
use crate::function::Function;
use crate::keys::Keys;
use crate::options::Options;

pub(super) fn private(krate: Option<&Path>) -> TokenStream {
    match krate {
        Some(path) => quote!(#path::__private),
        None => quote!(::distlock::__private),
    }
}

/// What the parts of an expansion have in common.
pub(super) struct Code<'a> {
    pub(super) keys: &'a Keys,
    pub(super) options: &'a Options,
    pub(super) function: &'a Function,
    pub(super) private: TokenStream,
    pub(super) output: Output,
    /// What `self` is called where this code stands.
    pub(super) receiver: Option<Ident>,
}

impl<'a> Code<'a> {
    pub(super) fn of(lock: &'a Lock, function: &'a Function) -> Self {
        Self {
            keys: &lock.keys,
            options: &lock.options,
            function,
            private: private(lock.options.krate.as_ref()),
            output: Output::of(function),
            receiver: function.receiver(),
        }
    }

    /// A reference to what the user's expression comes to, shown as that expression.
    pub(super) fn borrowed(&self, expr: &Expr) -> TokenStream {
        let (first, last) = ends(expr);
        let group = with_span(Group::new(Delimiter::Parenthesis, self.expr(expr)), last);
        quote_spanned!(first=> &#group)
    }

    /// The user's expression, for the place where ours stands.
    pub(super) fn expr(&self, expr: &impl ToTokens) -> TokenStream {
        match &self.receiver {
            Some(receiver) if receiver != "self" => renamed(expr.to_token_stream(), receiver),
            _ => expr.to_token_stream(),
        }
    }
}
