//! The expansion: a few calls of the runtime around the body, which stays where it was.
//!
//! Locals of ours have [`Span::mixed_site`] and a `__` in front: neither the user's arguments nor
//! their constants and unit structs can meet them.

mod key;
mod output;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Expr, FnArg, Ident, Pat, Path, Receiver, ReceiverKind, Type};

use crate::check::Lock;
use crate::duration;
use crate::function::{Function, mentions, mentions_value};
use crate::future::{Frame, Shape};
use crate::key_value::{KeyValue, Keys};
use crate::options::{KeyCall, Settings};
use crate::value::{OnFail, OnLost, Release, Time};
use key::Scope;
use output::Output;

pub(crate) fn expand(lock: &Lock, function: &Function) -> TokenStream {
    let site = Span::mixed_site();
    let failed = quote_spanned!(site=> break '__failed __error);
    let code = Code {
        lock,
        function,
        private: private(lock.krate.as_ref()),
        output: Output::of(function),
        receiver: function.receiver(),
    };
    let inner_attrs = &function.inner_attrs;
    let content = match &function.shape {
        Shape::AsyncTrait { frame, .. } => {
            let body = code.body(&ours(frame.body.stream(), frame.body.span()));
            let locked = code.locked(&code.request(&failed), &body);
            let Frame { pin, asyncness, prelude, .. } = &**frame;
            quote!(#pin(#asyncness { #prelude #locked }))
        }
        Shape::Future { boxed, .. } => code.returned_future(*boxed),
        Shape::Async | Shape::Sync => {
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

fn private(krate: Option<&Path>) -> TokenStream {
    match krate {
        Some(path) => quote!(#path::__private),
        None => quote!(::distlock::__private),
    }
}

struct Code<'a> {
    lock: &'a Lock,
    function: &'a Function,
    private: TokenStream,
    output: Output,
    /// What `self` is called where this code stands.
    receiver: Option<Ident>,
}

impl Code<'_> {
    /// Takes the lock, runs `body` under it, gives the lock back.
    fn locked(&self, request: &TokenStream, body: &TokenStream) -> TokenStream {
        let Self { private, lock, .. } = self;
        let site = Span::mixed_site();
        let acquired = quote_spanned! {site=>
            match __request.acquire().await {
                ::core::result::Result::Ok(__guard) => __guard,
                ::core::result::Result::Err(__error) => break '__failed __error,
            };
        };
        let unlocked = lock.when.as_ref().map(|_| {
            let unlocked_value = self.done(&quote_spanned!(site=> __body.await));
            quote_spanned! {site=>
                let ::core::option::Option::Some(__request) = __request else {
                    return #unlocked_value;
                };
            }
        });
        // Where a guard that is borrowed for too long is shown.
        let shown = lock.guard.as_ref().map_or(site, |guard| site.located_at(guard.span()));
        let (run, release) = if lock.guard.is_some() {
            // The body borrows the guard, so it is made after it.
            let lend = quote_spanned!(shown=> let __lock = &__guard;);
            let run = quote_spanned! {site=>
                let __guard = #acquired
                let __result = {
                    #lend
                    #private::run(__lock, #body).await
                };
            };
            (run, Some(quote_spanned!(shown=> #private::release(__guard).await;)))
        } else {
            // That of a function that returns one is there already.
            let future = (!matches!(self.function.shape, Shape::Future { .. }))
                .then(|| quote_spanned!(site=> let __future = #body;));
            // The body is made before the lock is taken, which keeps the future small. The guard
            // is declared before it: a cancelled call drops the body first, and unlocks last.
            let hold = self.output.hold(private);
            let run = quote_spanned! {site=>
                let mut __guard;
                #future
                let __body = ::core::pin::pin!(__future);
                #unlocked
                __guard = #acquired
                let __result = #hold;
            };
            (run, None)
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

    /// The function's own code makes the future, which is polled under the lock. Everything the
    /// options say is evaluated before, because that code may use up the arguments.
    fn returned_future(&self, boxed: bool) -> TokenStream {
        let Function { sig, body, brace, .. } = self.function;
        let Self { private, .. } = self;
        let site = Span::mixed_site();
        let missing = quote_spanned!(site=> break '__failed ::core::result::Result::Err(__error));
        let request = self.request(&missing);
        let made = ours(body.clone(), *brace);
        let ty = output::erased(&sig.output);
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

    /// `let __request = …;`, with `missing` where there is no manager.
    fn request(&self, missing: &TokenStream) -> TokenStream {
        let Self { lock, function, private, .. } = self;
        let site = Span::mixed_site();
        let manager = match &lock.manager {
            Some(expr) => {
                let (first, _) = ends(expr);
                let expr = self.borrowed(expr);
                quote_spanned!(first=> #private::AsLockManager::lock_manager(#expr))
            }
            None => quote_spanned! {site=>
                &match #private::global() {
                    ::core::result::Result::Ok(__manager) => __manager,
                    ::core::result::Result::Err(__error) => #missing,
                }
            },
        };
        let name = match &lock.settings.name {
            Some(name) => name.to_token_stream(),
            None => {
                let name = function.sig.ident.unraw().to_string();
                quote_spanned! {site=>
                    ::core::concat!(::core::module_path!(), "::", #name)
                }
            }
        };
        let scope = Scope::Signature {
            function,
            names: function.bindings(),
            receiver: self.receiver.clone(),
        };
        let one = |key: &KeyValue| key::value(key, &scope, private, |expr| self.expr(expr));
        let (keys, make) = match &lock.keys {
            Keys::Array(keys) => match &keys[..] {
                [key] => (one(key), "request"),
                keys => {
                    let keys = keys.iter().map(one);
                    (quote_spanned!(site=> [#(#keys),*]), "request_all")
                }
            },
            Keys::Expr(expr) => {
                let (first, last) = ends(expr);
                let (expr, keys) = (self.expr(expr), Ident::new("keys", last));
                (quote_spanned!(first=> #private::#keys(#expr)), "request_all")
            }
        };
        let make = Ident::new(make, site);
        let settings = settings(&lock.settings, |expr| self.expr(expr), private);
        let request = quote_spanned! {site=>
            #private::#make(#manager, __key, #name) #settings
        };
        let request = match &lock.settings.prefix {
            None => request,
            Some(prefix) => {
                let (first, last) = ends(prefix);
                let prefixed = Ident::new("prefixed", last);
                let prefix = self.borrowed(prefix);
                quote_spanned!(first=> #private::#prefixed(#request, #prefix))
            }
        };
        match &lock.when {
            None => quote_spanned! {site=>
                let __key = #keys;
                let __request = #request;
            },
            Some(when) => {
                let when = self.expr(when);
                quote_spanned! {site=>
                    let __when: ::core::primitive::bool = #when;
                    let __request = if __when {
                        let __key = #keys;
                        ::core::option::Option::Some(#request)
                    } else {
                        ::core::option::Option::None
                    };
                }
            }
        }
    }

    /// A response is returned as a `Result` of it: the body's `impl Trait` has one type, an error
    /// another, and both frameworks answer with either.
    fn is_answer(&self) -> bool {
        let Self { lock, function, .. } = self;
        lock.on_fail.is_none() && matches!(function.output(), Some(Type::ImplTrait(_)))
    }

    /// The body's value as the function returns it.
    fn done(&self, value: &TokenStream) -> TokenStream {
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
    fn fail(&self) -> TokenStream {
        let Self { lock, private, output, .. } = self;
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
        let value = match (&lock.on_fail, &lock.map_err) {
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
                        return __skipping.skip();
                    }
                    return #rest;
                };
            }
        };
        quote_spanned!(site=> return #value;)
    }

    /// The user's body as a future.
    fn body(&self, block: &Group) -> TokenStream {
        let site = Span::mixed_site();
        let edge = self.output.edge();
        let guard = self.lock.guard.as_ref().map(|guard| {
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

    /// `on_fail` or `map_err` uses arguments that moving into the body would take away.
    fn needs_arguments(&self) -> bool {
        let on_fail = match &self.lock.on_fail {
            Some(OnFail::Function(expr)) => Some(expr),
            _ => None,
        };
        let function = self.function;
        [on_fail, self.lock.map_err.as_ref()].into_iter().flatten().any(|expr| {
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

    /// A reference to what the user's expression comes to, shown as that expression.
    fn borrowed(&self, expr: &Expr) -> TokenStream {
        let (first, last) = ends(expr);
        let group = with_span(Group::new(Delimiter::Parenthesis, self.expr(expr)), last);
        quote_spanned!(first=> &#group)
    }

    /// The user's expression, for the place where ours stands.
    fn expr(&self, expr: &impl ToTokens) -> TokenStream {
        match &self.receiver {
            Some(receiver) if receiver != "self" => renamed(expr.to_token_stream(), receiver),
            _ => expr.to_token_stream(),
        }
    }
}

fn settings(
    settings: &Settings,
    expr: impl Fn(&Expr) -> TokenStream,
    private: &TokenStream,
) -> TokenStream {
    // No `..`: an option added later does not compile until it is dealt with here. Name and prefix
    // are dealt with where the request is made.
    let Settings {
        ttl,
        wait,
        renew,
        max_hold,
        min_hold,
        on_lost,
        release,
        reentrant,
        name: _,
        prefix: _,
    } = settings;
    let site = Span::mixed_site();
    let time = |time: &Time| match time {
        Time::Literal(duration, _) => duration::tokens(*duration),
        Time::Expr(time) => expr(time),
    };
    let on_lost = on_lost.map(|on_lost| match on_lost {
        OnLost::Cancel => quote_spanned!(site=> #private::OnLost::Cancel),
        OnLost::Continue => quote_spanned!(site=> #private::OnLost::Continue),
    });
    let release = release.map(|release| match release {
        Release::Wait => quote_spanned!(site=> #private::Release::Wait),
        Release::Background => quote_spanned!(site=> #private::Release::Background),
    });
    [
        ("ttl", ttl.as_ref().map(time)),
        ("wait", wait.as_ref().map(time)),
        ("renew", renew.map(|renew| renew.to_token_stream())),
        ("max_hold", max_hold.as_ref().map(time)),
        ("min_hold", min_hold.as_ref().map(time)),
        ("on_lost", on_lost),
        ("release", release),
        ("reentrant", reentrant.map(|reentrant| reentrant.to_token_stream())),
    ]
    .into_iter()
    .filter_map(|(method, value)| {
        let (method, value) = (Ident::new(method, site), value?);
        Some(quote_spanned!(site=> .#method(#value)))
    })
    .collect()
}

/// An argument with a plain name that is copied, not moved, as far as its type shows.
fn copied_argument(argument: &FnArg) -> Option<String> {
    match argument {
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(pat) if is_copy(&argument.ty) => Some(pat.ident.unraw().to_string()),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    }
}

/// `&self`.
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

/// `self` → the name it has in this place.
fn renamed(tokens: TokenStream, receiver: &Ident) -> TokenStream {
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
fn ours(content: TokenStream, brace: Span) -> Group {
    braced(Span::call_site().located_at(brace), content)
}

fn braced(span: Span, content: TokenStream) -> Group {
    with_span(Group::new(Delimiter::Brace, content), span)
}

fn with_span(mut group: Group, span: Span) -> Group {
    group.set_span(span);
    group
}

/// The same tokens, shown elsewhere.
fn shown_at(tokens: &TokenStream, span: Span) -> TokenStream {
    let shown = |mut token: TokenTree| {
        token.set_span(token.span().located_at(span));
        token
    };
    tokens.clone().into_iter().map(shown).collect()
}

/// Spans of the first and the last token. They show the user's code without counting as it, which
/// keeps lints and machine fixes for the user's code away from ours.
fn ends(tokens: &impl ToTokens) -> (Span, Span) {
    let mut spans = tokens.to_token_stream().into_iter().map(|token| token.span());
    let first = spans.next().unwrap_or_else(Span::call_site);
    let last = spans.last().unwrap_or(first);
    let ours = |span: Span| Span::mixed_site().located_at(span);
    (ours(first), ours(last))
}
