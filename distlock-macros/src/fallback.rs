//! What is emitted when something is wrong: every mistake at once, and the function as it was.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Error;

use crate::function;

/// The mistakes found so far.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn extend(&mut self, errors: impl IntoIterator<Item = Error>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    /// The value, or `None` and the mistake noted.
    pub(crate) fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn into_compile_errors(self) -> Option<TokenStream> {
        self.0.map(Error::into_compile_error)
    }

    #[cfg(test)]
    pub(crate) fn messages(self) -> Vec<String> {
        self.0.into_iter().flatten().map(|e| e.to_string()).collect()
    }
}

/// The mistakes, and the item unchanged: calls of the function still resolve, so no second error
/// hides the first, and completion works while the attribute is being typed.
pub(crate) fn fallback(errors: Option<TokenStream>, item: TokenStream) -> TokenStream {
    // A second `#[redis_lock]` would report its own mistakes on top of the one about stacking.
    let item = function::without_locks(item);
    quote!(#item #errors)
}
