//! The expansion: a few calls of the runtime around the body, which stays where it was.
//!
//! Locals of ours have [`Span::mixed_site`] and a `__` in front: neither the user's arguments nor
//! their constants and unit structs can meet them.

use proc_macro2::{Group, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{
    GenericArgument, Ident, LitStr, Path, PathArguments, ReturnType, Type, TypeInfer,
    parse_quote_spanned,
};

use crate::check::Lock;
use crate::duration;
use crate::function::Function;
use crate::key::{self, Piece, Placeholder, Template};
use crate::options::{KeyCall, Time};

pub(crate) fn expand(lock: &Lock, function: &Function) -> TokenStream {
    let Function { head, inner_attrs, brace, .. } = function;
    let private = private(lock.krate.as_ref());
    let output = Output::of(function);
    let scope = Scope::Signature { names: function.bindings(), receiver: function.receiver() };

    let fail = output.fail(&private);
    let key = key_expr(&lock.template, &scope, &private);
    let request = request(lock, function, &private);
    let body = body(function, &output);
    let code = quote_spanned! {Span::mixed_site()=>
        #(#inner_attrs)*
        let __fail = #fail;
        let __key = #key;
        #request
        // Declared before the body and set after it: a cancelled call drops the body first, and
        // unlocks last.
        let __guard;
        let mut __body = ::core::pin::pin!(#body);
        __guard = match __request.acquire().await {
            ::core::result::Result::Ok(__guard) => __guard,
            ::core::result::Result::Err(__error) => return __fail(__error),
        };
        match #private::hold(&__guard, __body.as_mut()).await {
            ::core::result::Result::Ok(__output) => {
                #private::release(__guard).await;
                __output
            }
            ::core::result::Result::Err(__error) => __fail(__error),
        }
    };
    let mut block = Group::new(proc_macro2::Delimiter::Brace, code);
    block.set_span(*brace);
    quote!(#head #block)
}

/// `key!`: the template's key, as an expression.
pub(crate) fn key_call(call: &KeyCall) -> TokenStream {
    key_expr(&call.template, &Scope::Anywhere, &private(call.krate.as_ref()))
}

fn private(krate: Option<&Path>) -> TokenStream {
    match krate {
        Some(path) => quote!(#path::__private),
        None => quote!(::distlock::__private),
    }
}

fn request(lock: &Lock, function: &Function, private: &TokenStream) -> TokenStream {
    let name = function.sig.ident.unraw().to_string();
    let site = Span::mixed_site();
    let manager = match &lock.manager {
        Some(expr) => {
            let (first, _) = ends(expr);
            quote_spanned!(first=> #private::AsLockManager::lock_manager(&(#expr)))
        }
        None => quote_spanned! {site=>
            &match #private::global() {
                ::core::result::Result::Ok(__manager) => __manager,
                ::core::result::Result::Err(__error) => return __fail(__error),
            }
        },
    };
    let ttl = lock.ttl.as_ref().map(|time| (time_expr(time), "ttl"));
    let wait = lock.wait.as_ref().map(|time| (time_expr(time), "wait"));
    let renew = lock.renew.map(|renew| (renew.into_token_stream(), "renew"));
    let settings = [ttl, wait, renew].into_iter().flatten().map(|(value, method)| {
        let method = Ident::new(method, site);
        quote_spanned!(site=> .#method(#value))
    });
    quote_spanned! {site=>
        let __request = #private::request(
            #manager,
            __key,
            ::core::concat!(::core::module_path!(), "::", #name),
        ) #(#settings)*;
    }
}

fn time_expr(time: &Time) -> TokenStream {
    match time {
        Time::Literal(duration) => duration::tokens(*duration),
        Time::Expr(expr) => expr.to_token_stream(),
    }
}

/// The user's body as a future. `move`, because capturing by reference would ask for `Sync`
/// arguments.
fn body(function: &Function, output: &Output) -> TokenStream {
    let edge = output.edge();
    let mut block = Group::new(proc_macro2::Delimiter::Brace, function.body.clone());
    // With the user's own span rustc takes the block for superfluous braces and offers to delete
    // the function's.
    block.set_span(Span::call_site().located_at(function.brace));
    quote_spanned!(Span::mixed_site()=> async move { #edge #block })
}

/// The return type, with every `impl Trait` in it left to inference.
struct Output {
    ty: Type,
    /// Where a wrong return type is shown: from the type's first token to its last.
    first: Span,
    last: Span,
}

impl Output {
    fn of(function: &Function) -> Self {
        let mut ty = match &function.sig.output {
            ReturnType::Type(_, ty) => Type::clone(ty),
            // Nothing is written: the function's name stands for it.
            ReturnType::Default => parse_quote_spanned!(function.sig.ident.span()=> ()),
        };
        let (first, last) = ends(&ty);
        erase_impl_trait(&mut ty);
        Self { ty, first, last }
    }

    /// How a `LockError` becomes the return value, decided by a trait: aliases of `Result` work.
    fn fail(&self, private: &TokenStream) -> TokenStream {
        let Self { ty, first, last } = self;
        let method = quote_spanned!(*last=> >::from_lock_error);
        quote_spanned!(*first=> <#ty as #private::FromLockError #method)
    }

    /// Never runs. It tells rustc the body's type at the place where the user wrote it, so that
    /// `?`, `collect` and `into` are inferred, and type errors point, as in a plain function.
    fn edge(&self) -> TokenStream {
        let ty = &self.ty;
        quote_spanned! {Span::mixed_site()=>
            if let ::core::option::Option::Some(__return) = ::core::option::Option::None::<#ty> {
                return __return;
            }
        }
    }
}

fn erase_impl_trait(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => {
            *ty =
                Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token: Default::default() });
        }
        Type::Path(path) => path.path.segments.iter_mut().for_each(|segment| {
            if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                arguments.args.iter_mut().for_each(|argument| match argument {
                    GenericArgument::Type(ty) => erase_impl_trait(ty),
                    GenericArgument::AssocType(assoc) => erase_impl_trait(&mut assoc.ty),
                    _ => {}
                });
            }
        }),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(erase_impl_trait),
        Type::Array(array) => erase_impl_trait(&mut array.elem),
        Type::Slice(slice) => erase_impl_trait(&mut slice.elem),
        Type::Reference(reference) => erase_impl_trait(&mut reference.elem),
        Type::Ptr(pointer) => erase_impl_trait(&mut pointer.elem),
        Type::Paren(paren) => erase_impl_trait(&mut paren.elem),
        Type::Group(group) => erase_impl_trait(&mut group.elem),
        // Everywhere else `impl Trait` is not allowed.
        _ => {}
    }
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

/// Which names of a template are values to be encoded, and how they are reached.
enum Scope {
    /// In the attribute: what the signature binds. Other names are constants, statics and const
    /// generics, which are taken as they print.
    Signature { names: Vec<Ident>, receiver: Option<syn::Token![self]> },
    /// In `key!`, which sees no signature: everything not written like a constant.
    Anywhere,
}

impl Scope {
    /// The name as it is to be written at `span`, if it is a value.
    fn value(&self, name: &str, span: Span) -> Option<Ident> {
        match self {
            Self::Anywhere => {
                let constant =
                    !name.contains(char::is_lowercase) && name.contains(char::is_uppercase);
                (!constant).then(|| key::ident(name, span))
            }
            // With the hygiene of the place where it is bound, so that a template from one macro
            // finds an argument from another.
            Self::Signature { receiver, .. } if name == "self" => {
                let site = receiver.map_or(span, |receiver| receiver.span.located_at(span));
                Some(key::ident(name, site))
            }
            Self::Signature { names, .. } => {
                let binding = names.iter().find(|binding| binding.unraw() == name)?;
                Some(key::ident(name, binding.span().located_at(span)))
            }
        }
    }
}

/// Where every placeholder is a plain name, rustc gets the user's own text, and each value's name
/// is shadowed by a wrapper that encodes it: carets then point into the text.
fn key_expr(template: &Template, scope: &Scope, private: &TokenStream) -> TokenStream {
    let site = Span::mixed_site();
    let literal = &template.literal;
    let is_value = |name: &str| scope.value(name, site).is_some();
    let plain = |placeholder: &Placeholder| {
        placeholder.fields.is_empty()
            && placeholder.base != "self"
            && !placeholder.counts.iter().any(|count| is_value(count) && template.prints(count))
    };
    let (wrappers, arguments) = if template.placeholders().all(plain) {
        (shadows(template, scope), literal.to_token_stream())
    } else {
        (Vec::new(), rewritten(template, scope))
    };
    let encoded = template.placeholders().zip(template.separators());
    let separators = encoded
        .filter(|(placeholder, _)| !placeholder.fields.is_empty() || is_value(&placeholder.base))
        .map(|(_, separator)| match separator {
            Some(c) => quote!(::core::option::Option::Some(#c)),
            None => quote!(::core::option::Option::None),
        });
    // The template is only a text here: a plain copy of it, so that an invalid suffix or the like
    // is reported once.
    let text = LitStr::new(&literal.value(), site);
    quote_spanned! {site=>
        {
            let __text = #private::KeyText::new(&[#(#separators),*]);
            #(#wrappers)*
            __text.key(#text, ::core::format_args!(#arguments))
        }
    }
}

fn shadows(template: &Template, scope: &Scope) -> Vec<TokenStream> {
    let literal = template.literal.span();
    let mut names: Vec<&str> = template.placeholders().map(|p| p.base.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let shadow = |name: &str| {
        let value = scope.value(name, template.generated_span())?;
        let wrapper = key::ident(name, literal);
        // The wrapper has the literal's hygiene, so lints take it for the user's own. Only what is
        // needed is allowed: a crate that forbids a lint must not meet an `allow` of it.
        let style = name.contains(char::is_uppercase).then(|| quote!(non_snake_case,));
        Some(quote_spanned! {Span::mixed_site()=>
            #[allow(#style clippy::shadow_reuse)]
            let #wrapper = __text.part(&#value);
        })
    };
    names.into_iter().filter_map(shadow).collect()
}

/// `format_args!` knows no fields: `"{order.id:05}"` → `"{__0:05}", __0 = __text.part(&order.id)`.
fn rewritten(template: &Template, scope: &Scope) -> TokenStream {
    let span = template.generated_span();
    let mut text = String::new();
    let mut arguments = TokenStream::new();
    for (i, piece) in template.pieces.iter().enumerate() {
        let placeholder = match piece {
            Piece::Text(literal) => {
                text.push_str(&literal.replace('{', "{{").replace('}', "}}"));
                continue;
            }
            Piece::Placeholder(placeholder) => placeholder,
        };
        let Placeholder { base, fields, spec, .. } = placeholder;
        let value = match scope.value(base, span) {
            None if fields.is_empty() => {
                text.push_str(&format!("{{{base}{spec}}}"));
                continue;
            }
            value => value.unwrap_or_else(|| key::ident(base, span)),
        };
        let argument = Ident::new(&format!("__{i}"), span);
        let fields = fields.iter().map(|field| key::member(field, span));
        text.push_str(&format!("{{{argument}{spec}}}"));
        let site = Span::mixed_site().located_at(span);
        let part = quote_spanned!(site=> __text.part(&#value #(.#fields)*));
        arguments.extend(quote!(, #argument = #part));
    }
    let text = LitStr::new(&text, span);
    quote!(#text #arguments)
}
