//! What a layer or a middleware locks, from the path.

/// A key of a layer or a middleware: a template whose placeholders are path parameters with their
/// type, `order:{order_id:u64}`. Made by `route_key!`, which checks it while compiling, or from a
/// string, which is checked when the layer is made.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// let key = distlock::RouteKey::from("order:{order_id:u64}");
/// assert!(format!("{key:?}").contains("order_id"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RouteKey {
    pub(crate) source: &'static str,
}

impl RouteKey {
    /// What `route_key!` has checked.
    #[doc(hidden)]
    pub const fn checked(source: &'static str) -> Self {
        Self { source }
    }
}

impl From<&'static str> for RouteKey {
    fn from(source: &'static str) -> Self {
        Self { source }
    }
}
