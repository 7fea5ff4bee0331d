//! The wrapper: what takes the lock, runs the body under it and frees the lock.

use proc_macro2::{Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};

use super::expansion::{Code, private};
use super::key::{self, Scope};
use super::return_type;
use super::tokens::{braced, ours};
use crate::check::Lock;
use crate::function::{Function, mentions};
use crate::future::{Frame, Shape};
use crate::key_call::KeyCall;

pub(crate) fn expand(lock: &Lock, function: &Function) -> TokenStream {
    let site = Span::mixed_site();
    let failed = quote_spanned!(site=> break '__failed __error);
    let code = Code::of(lock, function);
    let inner_attrs = &function.inner_attrs;
    let content = match &function.shape {
        Shape::AsyncTrait { frame, .. } => {
            let body = code.body(&ours(frame.body.stream(), frame.body.span()));
            let locked = code.locked(&code.request(&failed), &body);
            let Frame { pin, asyncness, prelude, .. } = &**frame;
            quote!(#pin(#asyncness { #prelude #locked }))
        }
        Shape::Future { boxed, .. } => code.returned_future(*boxed),
        Shape::Sync => {
            let block = ours(function.body.clone(), function.brace);
            code.blocking(&code.request(&failed), &block)
        }
        Shape::Async => {
            let body = code.body(&ours(function.body.clone(), function.brace));
            code.locked(&code.request(&failed), &body)
        }
    };
    let head = &function.head;
    let block = braced(function.brace, quote!(#(#inner_attrs)* #content));
    quote!(#head #block)
}

/// `key!`: the template's key, as an expression.
pub(crate) fn key_call(call: &KeyCall) -> TokenStream {
    let scope = Scope::Anywhere { literal: call.literal.span() };
    key::value(&call.key, &scope, &private(call.krate.as_ref()), ToTokens::to_token_stream)
}

impl Code<'_> {
    /// Takes the lock, runs `body` under it, frees the lock.
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
        let (fail, done) = (self.fail(), self.done(&quote_spanned!(site=> __output)));
        quote_spanned! {site=>
            let __error = '__failed: {
                #request
                #run
                match __result {
                    ::core::result::Result::Ok(__output) => {
                        #release
                        return #done;
                    }
                    ::core::result::Result::Err(__error) => __error,
                }
            };
            #fail
        }
    }

    /// `let __result = …;`, and the lock is free.
    ///
    /// The body is made before the lock is taken, which keeps the future small. The guard is declared
    /// before it: a cancelled call drops the body first, and unlocks last.
    fn run(&self, acquired: &TokenStream, body: &TokenStream) -> TokenStream {
        let site = Span::mixed_site();
        // That of a function that returns one is there already.
        let future = (!matches!(self.function.shape, Shape::Future { .. }))
            .then(|| quote_spanned!(site=> let __future = #body;));
        let unlocked = self.options.when.as_ref().map(|_| {
            let unlocked_value = self.done(&quote_spanned!(site=> __body.await));
            quote_spanned! {site=>
                let ::core::option::Option::Some(__request) = __request else {
                    return #unlocked_value;
                };
            }
        });
        let hold = self.output.hold(&self.private);
        quote_spanned! {site=>
            let mut __guard;
            #future
            let __body = ::core::pin::pin!(__future);
            #unlocked
            __guard = #acquired
            let __result = #hold;
        }
    }

    /// The same with a body that borrows the guard and so is made after it; and what frees the lock.
    fn run_with_guard(
        &self,
        guard: &Ident,
        acquired: &TokenStream,
        body: &TokenStream,
    ) -> (TokenStream, TokenStream) {
        let Self { private, .. } = self;
        let site = Span::mixed_site();
        // Where a guard that is borrowed for too long is shown.
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

    /// The function's own code makes the future, which is polled under the lock. Everything the
    /// options say is evaluated before, because that code may use up the arguments.
    fn returned_future(&self, boxed: bool) -> TokenStream {
        let Function { sig, body, brace, .. } = self.function;
        let Self { private, .. } = self;
        let site = Span::mixed_site();
        let missing = quote_spanned!(site=> break '__failed ::core::result::Result::Err(__error));
        let request = self.request(&missing);
        let made = ours(body.clone(), *brace);
        let ty = return_type::erased(&sig.output);
        let output = &self.output.ty;
        // A closure only where `return` needs one.
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

    /// The user's body as a future.
    fn body(&self, block: &Group) -> TokenStream {
        let site = Span::mixed_site();
        let edge = self.output.edge();
        let guard = self.options.guard.as_ref().map(|guard| {
            let private = &self.private;
            quote_spanned!(site=> let #guard: &#private::LockGuard = __lock;)
        });
        // Capturing by reference would ask for `Sync` arguments. But what happens after the body
        // may use arguments too: those that are not copied must stay then.
        // Shown as the body: what is wrong with its captures is not the attribute's fault.
        let shown = site.located_at(block.span());
        let capture = (!self.needs_arguments()).then(|| quote_spanned!(shown=> move));
        quote_spanned!(shown=> async #capture { #guard #edge #block })
    }
}
