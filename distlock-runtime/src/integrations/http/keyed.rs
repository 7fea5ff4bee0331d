//! Whether a layer or a middleware has a key, as a type parameter. A layer without a key is a compile error, and not
//! an error of the first request.

/// Marks a layer or a middleware that has a key.
///
/// `key`, `keys` and `key_fn` return such a layer. Routes and services accept it.
#[derive(Debug, Clone, Copy)]
pub struct Keyed(());

/// Marks a layer or a middleware that has no key yet.
///
/// It protects nothing, so no route and no service accepts it. Call `key`, `keys` or `key_fn` first.
#[derive(Debug, Clone, Copy)]
pub struct Unkeyed(());

/// Implemented by [`Keyed`] alone, so that only a layer with a key can be used.
///
/// The compiler's message for a layer without a key is the note below.
#[diagnostic::on_unimplemented(
    message = "this layer does not say what to lock",
    label = "it has no key",
    note = "add `.key(\"order:{{order_id:u64}}\")`, whose placeholders are path parameters, or `.key_fn(|request| …)`, before the layer is given to a route or a service"
)]
pub trait HasKey: sealed::Sealed {}

impl HasKey for Keyed {}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Keyed {}
    impl Sealed for super::Unkeyed {}
}
