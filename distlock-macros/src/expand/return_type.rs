//! The return type, and the conversion of an error to it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{
    GenericArgument, Path, PathArguments, ReturnType, Type, TypeInfer, TypeParamBound,
    parse_quote_spanned,
};

use super::tokens::ends;
use crate::function::Function;

/// The return type, with every `impl Trait` in it left to inference.
pub(super) struct ErasedReturnType {
    pub(super) ty: Type,
    /// Whether the type contains no `impl Trait`.
    named: bool,
    /// Diagnostics show a wrong return type from here to `last`, its first and its last token.
    first: Span,
    pub(super) last: Span,
}

impl ErasedReturnType {
    pub(super) fn of(function: &Function) -> Self {
        let mut ty = match function.output() {
            Some(ty) => ty.clone(),
            // Without a return type, diagnostics show the function's name.
            None => parse_quote_spanned!(function.sig.ident.span()=> ()),
        };
        let (first, last) = ends(&ty);
        let named = !erase_impl_trait(&mut ty);
        Self { ty, named, first, last }
    }

    /// Polls the body under the lock, and releases the lock.
    pub(super) fn hold(&self, private: &TokenStream) -> TokenStream {
        // In braces, so that the `use`, which may be unused, is generated code and not part of the user's path.
        let (site, ty) = (Span::mixed_site(), &self.ty);
        match self.named {
            true => quote_spanned! {site=>
                {
                    use #private::{LetGo as _};
                    #private::Output::<#ty>::hold(&mut __guard, __body).await
                }
            },
            false => quote_spanned!(site=> #private::hold(&mut __guard, __body).await),
        }
    }

    /// Names the function that makes the return value of a `LockError`. A trait decides, so aliases of `Result` work.
    pub(super) fn convert_error(&self, private: &TokenStream) -> TokenStream {
        self.method(private, "FromLockError", "from_lock_error")
    }

    /// Names the function that applies `map_err` to make an `Err`.
    pub(super) fn map_err(&self, private: &TokenStream) -> TokenStream {
        self.method(private, "IsResult", "map_err")
    }

    /// Returns `<R as Trait>::method`; rustc shows its errors at the return type.
    fn method(&self, private: &TokenStream, name: &str, method: &str) -> TokenStream {
        let Self { ty, first, last, .. } = self;
        let (name, method) = (Ident::new(name, *first), Ident::new(method, *last));
        let method = quote_spanned!(*last=> >::#method);
        quote_spanned!(*first=> <#ty as #private::#name #method)
    }

    /// Returns code that never runs but tells rustc the body's type, at the place where the user wrote it. So `?`,
    /// `collect` and `into` are inferred, and type errors are shown, as in a plain function.
    pub(super) fn infer(&self) -> TokenStream {
        let ty = &self.ty;
        quote_spanned! {Span::mixed_site()=>
            if let ::core::option::Option::Some(__return) = ::core::option::Option::None::<#ty> {
                return __return;
            }
        }
    }
}

/// Replaces every `impl Trait` by `_`. Returns whether there was one.
fn erase_impl_trait(ty: &mut Type) -> bool {
    match ty {
        Type::ImplTrait(_) => {
            *ty =
                Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token: Default::default() });
            true
        }
        Type::Path(path) => erase_in_path(&mut path.path),
        Type::TraitObject(object) => any(object.bounds.iter_mut().map(|bound| match bound {
            TypeParamBound::Trait(bound) => erase_in_path(&mut bound.path),
            _ => false,
        })),
        Type::Tuple(tuple) => any(tuple.elems.iter_mut().map(erase_impl_trait)),
        Type::Array(array) => erase_impl_trait(&mut array.elem),
        Type::Slice(slice) => erase_impl_trait(&mut slice.elem),
        Type::Reference(reference) => erase_impl_trait(&mut reference.elem),
        Type::Ptr(pointer) => erase_impl_trait(&mut pointer.elem),
        Type::Paren(paren) => erase_impl_trait(&mut paren.elem),
        Type::Group(group) => erase_impl_trait(&mut group.elem),
        // `impl Trait` is not allowed in any other type.
        _ => false,
    }
}

fn erase_in_path(path: &mut Path) -> bool {
    any(path.segments.iter_mut().map(|segment| match &mut segment.arguments {
        PathArguments::AngleBracketed(arguments) => {
            any(arguments.args.iter_mut().map(|argument| match argument {
                GenericArgument::Type(ty) => erase_impl_trait(ty),
                GenericArgument::AssocType(assoc) => erase_impl_trait(&mut assoc.ty),
                _ => false,
            }))
        }
        _ => false,
    }))
}

/// Whether one of them is true. Unlike `Iterator::any` it evaluates all of them.
fn any(all: impl Iterator<Item = bool>) -> bool {
    all.fold(false, |any, one| any | one)
}

/// Returns the function's return type for a `let`; `None` if the type has no name.
pub(super) fn erased(output: &ReturnType) -> Option<Type> {
    match output {
        ReturnType::Type(_, ty) if !matches!(**ty, Type::ImplTrait(_)) => {
            let mut ty = Type::clone(ty);
            erase_impl_trait(&mut ty);
            Some(ty)
        }
        _ => None,
    }
}
