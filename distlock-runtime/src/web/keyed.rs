//! Whether a layer or a middleware knows what to lock, as a type: one that does not is a mistake that the
//! compiler finds, and not the first request.

/// A layer or a middleware that knows what to lock.
#[derive(Debug, Clone, Copy)]
pub struct Keyed(());

/// A layer or a middleware that does not know yet what to lock. It protects nothing, so no route and no service
/// takes it: call `key`, `keys` or `key_fn` first.
#[derive(Debug, Clone, Copy)]
pub struct Unkeyed(());

/// Of a layer or a middleware: it knows what to lock. Only [`Keyed`] does.
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
