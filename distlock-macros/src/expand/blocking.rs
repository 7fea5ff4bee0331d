//! Functions that are not `async`, with `blocking`.

use proc_macro2::{Group, Span, TokenStream};
use quote::quote_spanned;

use super::expansion::Code;

impl Code<'_> {
    /// Takes the lock, runs the body on the caller's thread, frees the lock.
    pub(super) fn blocking(&self, request: &TokenStream, block: &Group) -> TokenStream {
        let Self { options, private, output, .. } = self;
        let site = Span::mixed_site();
        let ty = &output.ty;
        let shown = site.located_at(block.span());
        let capture = (!self.needs_arguments()).then(|| quote_spanned!(shown=> move));
        let edge = output.edge();
        let (made, run) = match &options.guard {
            Some(guard) => {
                let body = quote_spanned! {shown=>
                    #capture |#guard: &#private::LockGuard| -> #ty { #edge #block }
                };
                (None, quote_spanned!(site=> #private::run_blocking(__request, #body)))
            }
            None => {
                let body = quote_spanned!(shown=> #capture || -> #ty { #edge #block });
                let unlocked = options.when.as_ref().map(|_| {
                    let value = self.done(&quote_spanned!(site=> __body()));
                    quote_spanned! {site=>
                        let ::core::option::Option::Some(__request) = __request else {
                            return #value;
                        };
                    }
                });
                let made = quote_spanned!(site=> let __body = #body; #unlocked);
                (Some(made), quote_spanned!(site=> #private::run_blocking(__request, |_| __body())))
            }
        };
        let (fail, done) = (self.fail(), self.done(&quote_spanned!(site=> __output)));
        quote_spanned! {site=>
            let __error = '__failed: {
                #request
                #made
                match #run {
                    ::core::result::Result::Ok(__output) => return #done,
                    ::core::result::Result::Err(__error) => __error,
                }
            };
            #fail
        }
    }
}
