//! The wrapper around the user's body: it acquires the lock, runs the body and releases the lock.

use proc_macro2::{Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};

use super::expansion::Expansion;
use super::key::{self, NameScope};
use super::return_type;
use super::tokens::{braced, generated_braces, private};
use crate::check::CheckedLock;
use crate::function::{AsyncTraitFrame, Function, Shape, mentions};
use crate::keys::KeyCall;

/// Expands `#[redis_lock]`.
pub(crate) fn expand(lock: &CheckedLock, function: &Function) -> TokenStream {
    let site = Span::mixed_site();
    let failed = quote_spanned!(site=> break '__failed __error);
    let expansion = Expansion::of(lock, function);
    let inner_attrs = &function.inner_attrs;
    let content = match &function.shape {
        Shape::AsyncTrait { frame, .. } => {
            let body = expansion.body(&generated_braces(frame.body.stream(), frame.body.span()));
            let locked = expansion.locked(&expansion.request(&failed), &body);
            let AsyncTraitFrame { pin, asyncness, prelude, .. } = &**frame;
            quote!(#pin(#asyncness { #prelude #locked }))
        }
        Shape::Future { boxed, .. } => expansion.returned_future(*boxed),
        Shape::Sync => {
            let block = generated_braces(function.body.clone(), function.brace);
            expansion.blocking(&expansion.request(&failed), &block)
        }
        Shape::Async => {
            let body = expansion.body(&generated_braces(function.body.clone(), function.brace));
            expansion.locked(&expansion.request(&failed), &body)
        }
    };
    let head = &function.head;
    let block = braced(function.brace, quote!(#(#inner_attrs)* #content));
    quote!(#head #block)
}

/// Expands `key!`: the key as an expression.
pub(crate) fn key_call(call: &KeyCall) -> TokenStream {
    let scope = NameScope::Anywhere { literal: call.literal.span() };
    key::value(&call.key, &scope, &private(call.krate.as_ref()), ToTokens::to_token_stream)
}

impl Expansion<'_> {
    /// Acquires the lock, awaits `body` under it and releases the lock.
    fn locked(&self, request: &TokenStream, body: &TokenStream) -> TokenStream {
        let site = Span::mixed_site();
        let acquired = quote_spanned! {site=>
            match __request.acquire().await {
                ::core::result::Result::Ok(__guard) => __guard,
                ::core::result::Result::Err(__error) => break '__failed __error,
            };
        };
        let (run, release) = match &self.options.guard {
            Some(guard) => {
                let (run, release) = self.run_with_guard(guard, &acquired, body);
                (run, Some(release))
            }
            None => (self.run(&acquired, body), None),
        };
        let returned = self.returned(&quote_spanned!(site=> __output));
        let return_error = self.return_error();
        quote_spanned! {site=>
            let __error = '__failed: {
                #request
                #run
                match __result {
                    ::core::result::Result::Ok(__output) => {
                        #release
                        return #returned;
                    }
                    ::core::result::Result::Err(__error) => __error,
                }
            };
            #return_error
        }
    }

    /// Declares `__result`, after which the lock is released.
    ///
    /// The body's future is made before the lock is acquired, which keeps the function's future small. The guard is
    /// declared before the body, so a cancelled call drops the body first and releases the lock last.
    fn run(&self, acquired: &TokenStream, body: &TokenStream) -> TokenStream {
        let site = Span::mixed_site();
        // A function that returns a future has made `__future` already.
        let future = (!matches!(self.function.shape, Shape::Future { .. }))
            .then(|| quote_spanned!(site=> let __future = #body;));
        let unlocked = self.options.when.as_ref().map(|_| {
            let unlocked_value = self.returned(&quote_spanned!(site=> __body.await));
            quote_spanned! {site=>
                let ::core::option::Option::Some(__request) = __request else {
                    return #unlocked_value;
                };
            }
        });
        let hold = self.return_type.hold(&self.private);
        quote_spanned! {site=>
            let mut __guard;
            #future
            let __body = ::core::pin::pin!(__future);
            #unlocked
            __guard = #acquired
            let __result = #hold;
        }
    }

    /// Declares `__result` with a body that borrows the guard, and so is made after it. Also returns the code that
    /// releases the lock.
    fn run_with_guard(
        &self,
        guard: &Ident,
        acquired: &TokenStream,
        body: &TokenStream,
    ) -> (TokenStream, TokenStream) {
        let Self { private, .. } = self;
        let site = Span::mixed_site();
        // Here rustc shows a guard that is borrowed for too long.
        let shown = site.located_at(guard.span());
        let lend = quote_spanned!(shown=> let __lock = &__guard;);
        let run = quote_spanned! {site=>
            let __guard = #acquired
            let __result = {
                #lend
                #private::run(__lock, #body).await
            };
        };
        (run, quote_spanned!(shown=> #private::release(__guard).await;))
    }

    /// Lets the function's own code make the future, and polls that future under the lock. All options are
    /// evaluated before, because the function's code may use up the arguments.
    fn returned_future(&self, boxed: bool) -> TokenStream {
        let Function { sig, body, brace, .. } = self.function;
        let Self { private, .. } = self;
        let site = Span::mixed_site();
        let missing = quote_spanned!(site=> break '__failed ::core::result::Result::Err(__error));
        let request = self.request(&missing);
        let made = generated_braces(body.clone(), *brace);
        let ty = return_type::erased(&sig.output);
        let output = &self.return_type.ty;
        // Only a `return` needs a closure.
        let made = match (mentions(body.clone(), "return"), &ty) {
            (false, Some(ty)) => quote_spanned!(site=> let __future: #ty = #made;),
            (false, None) => quote_spanned! {site=>
                let __future = #private::Output::<#output>::future(#made);
            },
            (true, Some(ty)) => {
                quote_spanned!(site=> let __future = #private::call(move || -> #ty #made);)
            }
            (true, None) => quote_spanned! {site=>
                let __future = #private::Output::<#output>::made(move || #made);
            },
        };
        let opened = quote_spanned! {site=>
            let __request = match __request {
                ::core::result::Result::Ok(__request) => __request,
                ::core::result::Result::Err(__error) => break '__failed __error,
            };
        };
        let locked = self.locked(&opened, &quote_spanned!(site=> __future));
        let future = quote_spanned!(site=> async move { #locked });
        let future = match boxed {
            true => quote_spanned!(site=> ::std::boxed::Box::pin(#future)),
            false => future,
        };
        quote_spanned! {site=>
            let __request = '__failed: {
                #request
                ::core::result::Result::Ok::<_, #private::LockError>(__request)
            };
            #made
            #future
        }
    }

    /// Makes a future of the user's body.
    fn body(&self, block: &Group) -> TokenStream {
        let site = Span::mixed_site();
        let infer = self.return_type.infer();
        let guard = self.options.guard.as_ref().map(|guard| {
            let private = &self.private;
            quote_spanned!(site=> let #guard: &#private::LockGuard = __lock;)
        });
        // Shown as the body, because errors in its captures are not the attribute's fault.
        let shown = site.located_at(block.span());
        // Capturing by reference would require the arguments to be `Sync`. But if the code after the body uses
        // arguments, those that are not copied have to stay.
        let capture = (!self.needs_arguments()).then(|| quote_spanned!(shown=> move));
        quote_spanned!(shown=> async #capture { #guard #infer #block })
    }

    /// Acquires the lock, runs the body of a `blocking` function on the caller's thread and releases the lock.
    fn blocking(&self, request: &TokenStream, block: &Group) -> TokenStream {
        let Self { options, private, return_type, .. } = self;
        let site = Span::mixed_site();
        let ty = &return_type.ty;
        let shown = site.located_at(block.span());
        let capture = (!self.needs_arguments()).then(|| quote_spanned!(shown=> move));
        let infer = return_type.infer();
        let (made, run) = match &options.guard {
            Some(guard) => {
                let body = quote_spanned! {shown=>
                    #capture |#guard: &#private::LockGuard| -> #ty { #infer #block }
                };
                (None, quote_spanned!(site=> #private::run_blocking(__request, #body)))
            }
            None => {
                let body = quote_spanned!(shown=> #capture || -> #ty { #infer #block });
                let unlocked = options.when.as_ref().map(|_| {
                    let value = self.returned(&quote_spanned!(site=> __body()));
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
        let returned = self.returned(&quote_spanned!(site=> __output));
        let return_error = self.return_error();
        quote_spanned! {site=>
            let __error = '__failed: {
                #request
                #made
                match #run {
                    ::core::result::Result::Ok(__output) => return #returned,
                    ::core::result::Result::Err(__error) => __error,
                }
            };
            #return_error
        }
    }
}
