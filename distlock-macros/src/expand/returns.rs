//! What the function returns: the body's value, or what its options and its type make of an error.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Expr, Type};

use super::expansion::Code;
use super::tokens::{ends, shown_at};
use crate::value::OnFail;

impl Code<'_> {
    /// The body's value as the function returns it.
    pub(super) fn done(&self, value: &TokenStream) -> TokenStream {
        let Self { private, .. } = self;
        if self.is_answer() {
            quote_spanned! {Span::mixed_site()=>
                ::core::result::Result::Ok::<_, #private::LockError>(#value)
            }
        } else {
            value.clone()
        }
    }

    /// What becomes of `__error`.
    pub(super) fn fail(&self) -> TokenStream {
        let Self { options, private, output, .. } = self;
        let site = Span::mixed_site();
        let ty = &output.ty;
        let map_err = |expr: &Expr| {
            let (map_err, expr) = (output.map_err(private), self.expr(expr));
            let arguments = quote_spanned!(output.last=> (#expr, __error));
            quote!(#map_err #arguments)
        };
        let apply = |expr: &Expr| {
            let (first, last) = ends(expr);
            let apply = Ident::new("apply", last);
            let (expr, private) = (self.expr(expr), shown_at(private, first));
            quote_spanned!(first=> #private::Output::<#ty>::#apply(#expr, __error))
        };
        // With `return`: some want it everywhere.
        let value = match (&options.on_fail, &options.map_err) {
            (None, None) if self.is_answer() => {
                quote_spanned!(site=> ::core::result::Result::Err(__error))
            }
            (None, None) => {
                let fail = output.fail(private);
                quote_spanned!(site=> #fail(__error))
            }
            (Some(OnFail::Function(expr)), _) => apply(expr),
            (None, Some(expr)) => map_err(expr),
            (Some(OnFail::Skip(word)), mapped) => {
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

    /// A response is returned as a `Result` of it: the body's `impl Trait` has one type, an error
    /// another, and both frameworks answer with either.
    fn is_answer(&self) -> bool {
        let Self { options, function, .. } = self;
        options.on_fail.is_none() && matches!(function.output(), Some(Type::ImplTrait(_)))
    }
}
