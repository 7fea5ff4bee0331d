//! Whether the body may take its arguments with it.

use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{FnArg, Ident, Pat, Receiver, ReceiverKind, Type};

use super::expansion::Code;
use crate::function::mentions_value;
use crate::value::OnFail;

impl Code<'_> {
    /// `on_fail` or `map_err` uses arguments that moving into the body would take away.
    pub(super) fn needs_arguments(&self) -> bool {
        let on_fail = match &self.options.on_fail {
            Some(OnFail::Function(expr)) => Some(expr),
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
