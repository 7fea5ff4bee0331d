//! The state that all parts of an expansion share, and the code that returns the result.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Expr, FnArg, Pat, Receiver, ReceiverKind, Type};

use super::return_type::ErasedReturnType;
use super::tokens::{ends, private, renamed, shown_at, with_span};
use crate::check::CheckedLock;
use crate::function::{Function, mentions_value};
use crate::keys::KeySources;
use crate::options::AttributeOptions;
use crate::value::OnFailValue;

/// One attribute on one function.
pub(super) struct Expansion<'a> {
    pub(super) keys: &'a KeySources,
    pub(super) options: &'a AttributeOptions,
    pub(super) function: &'a Function,
    pub(super) private: TokenStream,
    pub(super) return_type: ErasedReturnType,
    /// The name of `self` where the generated code stands.
    pub(super) receiver: Option<Ident>,
}

impl<'a> Expansion<'a> {
    pub(super) fn of(lock: &'a CheckedLock, function: &'a Function) -> Self {
        Self {
            keys: &lock.keys,
            options: &lock.options,
            function,
            private: private(lock.options.krate.as_ref()),
            return_type: ErasedReturnType::of(function),
            receiver: function.receiver(),
        }
    }

    /// Returns a reference to the value of the user's expression, shown as that expression.
    pub(super) fn borrowed(&self, expr: &Expr) -> TokenStream {
        let (first, last) = ends(expr);
        let group = with_span(Group::new(Delimiter::Parenthesis, self.expr(expr)), last);
        quote_spanned!(first=> &#group)
    }

    /// Adapts the user's expression to the place of the generated code.
    pub(super) fn expr(&self, expr: &impl ToTokens) -> TokenStream {
        match &self.receiver {
            Some(receiver) if receiver != "self" => renamed(expr.to_token_stream(), receiver),
            _ => expr.to_token_stream(),
        }
    }

    /// Converts the body's value to the value that the function returns.
    pub(super) fn returned(&self, value: &TokenStream) -> TokenStream {
        let Self { private, .. } = self;
        if self.is_response() {
            quote_spanned! {Span::mixed_site()=>
                ::core::result::Result::Ok::<_, #private::LockError>(#value)
            }
        } else {
            value.clone()
        }
    }

    /// Returns from the function with the value that the options or the return type make of `__error`.
    pub(super) fn return_error(&self) -> TokenStream {
        let Self { options, private, return_type, .. } = self;
        let site = Span::mixed_site();
        let ty = &return_type.ty;
        let map_err = |expr: &Expr| {
            let (map_err, expr) = (return_type.map_err(private), self.expr(expr));
            let arguments = quote_spanned!(return_type.last=> (#expr, __error));
            quote!(#map_err #arguments)
        };
        let apply = |expr: &Expr| {
            let (first, last) = ends(expr);
            let apply = Ident::new("apply", last);
            let (expr, private) = (self.expr(expr), shown_at(private, first));
            quote_spanned!(first=> #private::Output::<#ty>::#apply(#expr, __error))
        };
        // With `return`, because some crates deny `clippy::implicit_return`.
        let value = match (&options.on_fail, &options.map_err) {
            (None, None) if self.is_response() => {
                quote_spanned!(site=> ::core::result::Result::Err(__error))
            }
            (None, None) => {
                let convert_error = return_type.convert_error(private);
                quote_spanned!(site=> #convert_error(__error))
            }
            (Some(OnFailValue::Function(expr)), _) => apply(expr),
            (None, Some(expr)) => map_err(expr),
            (Some(OnFailValue::Skip(word)), mapped) => {
                let at = site.located_at(word.span());
                let skipping = quote_spanned!(at=> #private::skipping::<#ty>());
                let rest = match mapped {
                    Some(expr) => map_err(expr),
                    None => quote_spanned! {site=>
                        {
                            use #private::{OrLog as _, OrReturn as _};
                            __skipping.return_or_log(__error)
                        }
                    },
                };
                return quote_spanned! {site=>
                    let __skipping = &#skipping;
                    if #private::LockError::is_busy(&__error) {
                        return __skipping.skip_held(&__error);
                    }
                    return #rest;
                };
            }
        };
        quote_spanned!(site=> return #value;)
    }

    /// Whether the function returns `impl Trait`, which becomes a `Result` here: the body's `impl Trait` has one type
    /// and an error another, and both web frameworks accept a `Result` of the two as a response.
    fn is_response(&self) -> bool {
        let Self { options, function, .. } = self;
        options.on_fail.is_none() && matches!(function.output(), Some(Type::ImplTrait(_)))
    }

    /// Whether `on_fail` or `map_err` uses arguments, which a body that moves its captures would take away.
    pub(super) fn needs_arguments(&self) -> bool {
        let on_fail = match &self.options.on_fail {
            Some(OnFailValue::Function(expr)) => Some(expr),
            _ => None,
        };
        let function = self.function;
        [on_fail, self.options.map_err.as_ref()].into_iter().flatten().any(|expr| {
            let tokens = expr.to_token_stream();
            let is_used = |name: &Ident| mentions_value(tokens.clone(), &name.unraw().to_string());
            let is_receiver_used = function.receiver().is_some()
                && mentions_value(tokens.clone(), "self")
                && !function.sig.receiver().is_some_and(is_shared);
            let copied: Vec<String> =
                function.sig.inputs.iter().filter_map(copied_argument).collect();
            let is_moved = |name: &Ident| !copied.contains(&name.unraw().to_string());
            is_receiver_used
                || function.bindings().iter().any(|name| is_moved(name) && is_used(name))
        })
    }
}

/// Returns the name of an argument that is copied and not moved, as far as its type shows.
fn copied_argument(argument: &FnArg) -> Option<String> {
    match argument {
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(pat) if is_copy(&argument.ty) => Some(pat.ident.unraw().to_string()),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    }
}

/// Whether the receiver is `&self`.
fn is_shared(receiver: &Receiver) -> bool {
    match &receiver.kind {
        ReceiverKind::Reference(_, _, mutability) => mutability.is_none(),
        ReceiverKind::Typed(_, ty) => is_copy(ty),
        _ => false,
    }
}

fn is_copy(ty: &Type) -> bool {
    const PRIMITIVES: [&str; 16] = [
        "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16",
        "u32", "u64", "u128", "usize",
    ];
    match ty {
        Type::Reference(reference) => reference.mutability.is_none(),
        Type::Path(path) => PRIMITIVES.iter().any(|name| path.path.is_ident(name)),
        Type::Group(ty) => is_copy(&ty.elem),
        Type::Paren(ty) => is_copy(&ty.elem),
        _ => false,
    }
}
