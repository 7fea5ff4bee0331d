//! The mistakes of one attribute, which are reported together.

use proc_macro2::TokenStream;
use syn::Error;

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
