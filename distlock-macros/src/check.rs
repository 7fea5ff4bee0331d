//! Options × function: every rule that needs both, or the whole of one.

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Error, Expr, Path, ReturnType, Type};

use crate::fallback::Errors;
use crate::function::{Function, is_lock, mentions};
use crate::key::{Piece, Template};
use crate::options::{Options, Time};
use crate::suggest;

/// What to expand, once nothing is wrong.
pub(crate) struct Lock {
    pub(crate) template: Template,
    pub(crate) ttl: Option<Time>,
    pub(crate) wait: Option<Time>,
    pub(crate) renew: Option<bool>,
    pub(crate) manager: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

pub(crate) fn check(
    options: Options,
    function: Option<&Function>,
    errors: &mut Errors,
) -> Option<Lock> {
    // No `..`: an option added later does not compile until it is dealt with here.
    let Options { key, key_given, ttl, wait, renew, manager, krate } = options;
    if !key_given {
        errors.push(missing_key(function));
    }
    if let Some(function) = function {
        if let Some(error) = wrong_place(function) {
            errors.push(error);
        } else if let Some(error) = wrong_return(function) {
            errors.push(error);
        }
        if let Some(template) = &key {
            foreign_placeholders(template, function, errors);
            if !errors.is_empty() {
                unknown_names(template, function, errors);
            }
        }
    }
    Some(Lock { template: key?, ttl, wait, renew, manager, krate })
}

fn missing_key(function: Option<&Function>) -> Error {
    let names = function.map(Function::bindings).unwrap_or_default();
    let example = match (function, names.first()) {
        (Some(function), Some(name)) => {
            format!("{}:{{{}}}", function.sig.ident.unraw(), name.unraw())
        }
        (Some(function), None) => function.sig.ident.unraw().to_string(),
        (None, _) => "order:{order_id}".to_owned(),
    };
    Error::new(
        Span::call_site(),
        format!("`key` is missing: say what to lock, for example `key = \"{example}\"`"),
    )
}

fn wrong_place(function: &Function) -> Option<Error> {
    let sig = &function.sig;
    if function.attrs.iter().any(is_lock) {
        let second = function.attrs.iter().find(|attr| is_lock(attr));
        return Some(Error::new_spanned(
            second,
            "two `#[redis_lock]` on one function would be taken one after the other and could \
             deadlock: one attribute with `keys = [\"…\", \"…\"]` takes all or none",
        ));
    }
    if let Some(constness) = &sig.constness {
        return Some(Error::new(
            constness.span,
            "a `const fn` runs while compiling, where there is nothing to lock: make it an `async fn`",
        ));
    }
    if let Some(abi) = &sig.abi {
        return Some(Error::new_spanned(
            abi,
            "a function with a foreign ABI is called by code that cannot await: put \
             `#[redis_lock]` on an `async fn` that it calls",
        ));
    }
    if sig.asyncness.is_none() {
        return Some(Error::new(sig.fn_token.span, sync_message(function)));
    }
    None
}

fn sync_message(function: &Function) -> &'static str {
    let is_test = |attr: &syn::Attribute| {
        attr.path().segments.last().is_some_and(|segment| segment.ident == "test")
    };
    // What `#[tokio::main]` and `#[tokio::test]` leave of an `async fn`.
    if function.sig.ident == "main"
        || function.attrs.iter().any(is_test)
        || mentions(function.body.clone(), "block_on")
    {
        return "this function is no longer `async`: `#[tokio::main]`, `#[tokio::test]` and their \
                like take that away from what stands below them; put `#[redis_lock]` above them";
    }
    match &function.sig.output {
        ReturnType::Type(_, _) if returns_a_future(function) => {
            "functions that return a future are not supported yet: make it an `async fn`"
        }
        _ => "a lock is awaited, so the function must be `async`: write `async fn`",
    }
}

/// `impl Future`, `Pin<Box<dyn Future>>`, `BoxFuture`: also what `#[async_trait]` makes.
fn returns_a_future(function: &Function) -> bool {
    let output = function.sig.output.to_token_stream();
    ["Future", "BoxFuture", "LocalBoxFuture"].iter().any(|name| mentions(output.clone(), name))
}

fn wrong_return(function: &Function) -> Option<Error> {
    let ReturnType::Type(_, ty) = &function.sig.output else {
        return None;
    };
    match &**ty {
        Type::ImplTrait(ty) => Some(Error::new_spanned(
            ty,
            "a `LockError` cannot be made into an unknown type: return a `Result` of it, for \
             example `Result<impl Sized, E>` where `E: From<LockError>`",
        )),
        Type::Never(ty) => Some(Error::new_spanned(
            ty,
            "a function that never returns cannot say that the lock was not taken or was lost: \
             return `Result<std::convert::Infallible, E>`",
        )),
        _ => None,
    }
}

/// `${id}`, `#id` and `%s`: placeholders of other libraries, which would lock one and the same key
/// for every argument.
fn foreign_placeholders(template: &Template, function: &Function, errors: &mut Errors) {
    let names: Vec<String> =
        function.bindings().iter().map(|name| name.unraw().to_string()).collect();
    let mut report = |wrong: &str, name: &str| {
        let message = format!("`{wrong}` is plain text here: write `{{{name}}}` for the argument");
        errors.push(Error::new(template.literal.span(), message));
    };
    for pair in template.pieces.windows(2) {
        if let [Piece::Text(text), Piece::Placeholder(placeholder)] = pair
            && text.ends_with('$')
            && names.contains(&placeholder.base)
        {
            let path = placeholder.path();
            report(&format!("${{{path}}}"), &path);
        }
    }
    let [Piece::Text(text)] = &template.pieces[..] else {
        return;
    };
    for name in &names {
        let after = text.split_once(&format!("#{name}")).map(|(_, after)| after);
        if after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        {
            report(&format!("#{name}"), name);
        }
    }
    if let (Some(wrong), Some(name)) =
        (["%s", "%d"].into_iter().find(|wrong| text.contains(wrong)), names.first())
    {
        report(wrong, name);
    }
}

/// rustc reports a name that does not exist, with its caret in the text, but only in code that is
/// expanded. Next to other mistakes it is reported here; constants (by their case) are left alone.
fn unknown_names(template: &Template, function: &Function, errors: &mut Errors) {
    let names: Vec<String> =
        function.bindings().iter().map(|name| name.unraw().to_string()).collect();
    let generics = function.sig.generics.to_token_stream();
    for placeholder in template.placeholders() {
        let base = placeholder.base.as_str();
        let known = base == "self" || names.iter().any(|name| name == base);
        if known || base.contains(char::is_uppercase) || mentions(generics.clone(), base) {
            continue;
        }
        let mut message =
            format!("`{{{base}}}`: `{}` has no argument `{base}`", function.sig.ident);
        if let Some(name) = suggest::nearest(base, names.iter().map(String::as_str)) {
            message.push_str(&format!(", did you mean `{{{name}}}`?"));
        }
        errors.push(Error::new(template.literal.span(), message));
    }
}
