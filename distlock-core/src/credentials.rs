//! A user and a password that never appear in a text.

use std::fmt;

/// A user and a password to sign in with at a server.
///
/// `Debug` shows neither:
///
/// ```
/// use distlock_core::credentials::Credentials;
///
/// let credentials = Credentials { user: "app".to_owned(), password: "hunter2".to_owned() };
/// assert_eq!(format!("{credentials:?}"), "Credentials(…)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user. Empty for the server's default user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}
