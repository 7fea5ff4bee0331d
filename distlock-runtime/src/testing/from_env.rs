//! The same tests in memory and on a real server.

use super::Locks;
use super::backing::Backing;
use super::real::{Real, VARIABLE, resume};

impl Locks {
    /// On the server that `DISTLOCK_TEST_URL` names, under a random prefix of this call's own; without
    /// the variable in memory, as [`new`](Self::new). So the same tests run on both:
    ///
    /// ```text
    /// cargo test
    /// DISTLOCK_TEST_URL=redis://127.0.0.1:6379 cargo test
    /// ```
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::from_env();
    /// let guard = locks.replica("a").manager().lock("order:7").acquire().await?;
    /// assert!(locks.lose("order:7"));
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// locks.assert_never_together("order:7");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A server's time cannot be paused: on one, the test's clock goes on if it was, and every lease, wait
    /// and `sleep` takes as long as it says. Choose short ones for such tests. What a test does to its
    /// store works as in memory, with these differences:
    ///
    /// - The locks of a replica that was [killed](super::Replica::kill) are free when their leases end, which
    ///   is at most one `ttl` later, and not exactly one.
    /// - [`lose`](Self::lose) and [`held_elsewhere`](Self::held_elsewhere) ask the server, and block the
    ///   test's thread until it has answered.
    /// - A `prefix` of a request, or of the attribute, is used as it is: such a lock is the same in all tests.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime; if the variable's value cannot be used, or the server does not answer.
    pub fn from_env() -> Self {
        let url = match std::env::var(VARIABLE) {
            Ok(url) if !url.is_empty() && url != "memory://" => url,
            Ok(_) | Err(std::env::VarError::NotPresent) => return Self::new(),
            Err(error) => panic!("{VARIABLE}: {error}"),
        };
        match Real::connect(url) {
            Ok(real) => {
                resume();
                Self::of(Backing::Real(real))
            }
            Err(error) => panic!(
                "{VARIABLE}: {error}; start that server, or unset the variable to test in memory"
            ),
        }
    }
}
