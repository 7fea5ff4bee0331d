//! The options of a lock: one struct for the request, the manager's builder and the layers of web frameworks.
//!
//! An option that was not set is `None`. Only [`LockOptions::resolve`] knows the defaults: it takes the value of the call,
//! or else that of its manager, or else the default.
//!
//! To add an option:
//!
//! 1. a field of [`LockOptions`], and of [`Resolved`] with its default;
//! 2. a setter of [`LockRequest`](crate::LockRequest) in `request.rs`, and of
//!    [`LockManagerBuilder`](crate::LockManagerBuilder) if a manager may have a default for it;
//! 3. a setter in the macro of `integrations/http/rule.rs`, for layers and middleware;
//! 4. a row in the table of options in `distlock-macros/src/options.rs`.

use std::time::Duration;

use distlock_core::limit::Limit;
use distlock_core::store::Term;

use crate::error::LockError;
use crate::ranges::{check_hold, check_ttl};

/// The behaviour when the lease of a body is lost: see
/// [`LockRequest::on_lost`](crate::LockRequest::on_lost).
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::{LockManager, OnLost};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = LockManager::in_memory();
/// let taken_away = || async {
///     locks.force_release("import").await.unwrap();
///     tokio::task::yield_now().await;
///     "finished"
/// };
///
/// let stopped = locks.lock("import").run(taken_away()).await;
/// assert!(stopped.is_err_and(|error| error.is_lost()));
///
/// let finished = locks.lock("import").on_lost(OnLost::Continue).run(taken_away()).await;
/// assert_eq!(finished?, "finished");
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLost {
    /// The body is dropped at its next await, and the caller gets [`LockError::Lost`]. The default, because a lock is to
    /// prevent work without it.
    #[default]
    Cancel,
    /// The body runs to its end and its result is returned. The loss is logged, and
    /// [`LockGuard::lost`](crate::LockGuard::lost) resolves. For work that is worse half done than done
    /// twice.
    Continue,
}

/// The moment at which the caller of [`LockRequest::run`](crate::LockRequest::run), or of a function with the
/// attribute, gets its result: see [`LockRequest::release`](crate::LockRequest::release).
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::{LockManager, Release};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = LockManager::in_memory();
/// let request = locks.lock("counter").release(Release::Background);
/// assert_eq!(request.run(async { 1 + 1 }).await?, 2);
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// After the store has confirmed that the lock is free. The default.
    #[default]
    Wait,
    /// As soon as the release is sent, which saves a round trip for each call. A later acquire over the same
    /// manager reaches the store after this release. If the release fails, it is reported as the event
    /// `released_late`, and retried until the lock has expired by itself.
    /// [`LockManager::close`](crate::LockManager::close) waits for it.
    Background,
}

/// The mode of a lock, which decides who may hold it together: see
/// [`LockRequest::mode`](crate::LockRequest::mode).
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::{LockManager, LockMode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = LockManager::in_memory();
/// let one = locks.lock("report").mode(LockMode::Read).acquire().await?;
/// let other = locks.lock("report").mode(LockMode::Read).acquire().await?;
/// assert!(locks.lock("report").mode(LockMode::Write).try_acquire().await?.is_none());
///
/// one.release().await?;
/// other.release().await?;
/// assert!(locks.lock("report").mode(LockMode::Write).try_acquire().await?.is_some());
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LockMode {
    /// One holder alone. The default; the same as [`Write`](Self::Write).
    #[default]
    Exclusive,
    /// Any number of readers hold the lock at once, in any number of processes, while there is no writer.
    Read,
    /// One holder alone: no readers and no other writer.
    Write,
}

/// The options that were set: of a request, or of a manager for all of its locks.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockOptions {
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) renew: Option<bool>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) on_lost: Option<OnLost>,
    pub(crate) reentrant: Option<bool>,
    pub(crate) mode: Option<LockMode>,
    pub(crate) permits: Option<u32>,
    pub(crate) release: Option<Release>,
    pub(crate) max_waiters: Option<u32>,
    pub(crate) prefix: Option<Box<str>>,
}

/// The options of one call, with every default filled in. The prefix is missing, because it is a part of the lock's
/// name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolved {
    pub(crate) term: Term,
    /// The limit that results from `mode` and `permits`.
    pub(crate) limit: Limit,
    pub(crate) wait: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) reentrant: bool,
    pub(crate) release: Release,
    pub(crate) max_waiters: Option<u32>,
}

impl LockOptions {
    /// The default `ttl`: long enough for a holder to survive a failover, and short enough for others to wait for after a
    /// holder died.
    pub(crate) const TTL: Duration = Duration::from_secs(30);

    /// Fills in the options of the manager, and the defaults.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](LockError::InvalidOption) for a value out of its range.
    pub(crate) fn resolve(&self, manager: &Self) -> Result<Resolved, LockError> {
        let ttl = self.ttl.or(manager.ttl).unwrap_or(Self::TTL);
        check_ttl(ttl)?;
        let max_hold = self.max_hold.or(manager.max_hold);
        let min_hold = self.min_hold.or(manager.min_hold);
        check_hold(max_hold, min_hold)?;
        let renewed = self.renew.or(manager.renew).unwrap_or(true);
        Ok(Resolved {
            term: Term { ttl, renewed, max_hold, min_hold },
            limit: self.limit()?,
            wait: self.wait.or(manager.wait).unwrap_or_default(),
            on_lost: self.on_lost.or(manager.on_lost).unwrap_or_default(),
            reentrant: self.reentrant.or(manager.reentrant).unwrap_or_default(),
            release: self.release.or(manager.release).unwrap_or_default(),
            max_waiters: self.max_waiters.or(manager.max_waiters),
        })
    }

    /// Does the same as [`resolve`](Self::resolve) if the result for a call without options is known (`usual`). A call
    /// whose options have no range needs no checks then.
    #[inline]
    pub(crate) fn resolve_over(
        &self,
        manager: &Self,
        usual: &Resolved,
    ) -> Result<Resolved, LockError> {
        let holds_as_usual = self.ttl.is_none()
            && self.renew.is_none()
            && self.max_hold.is_none()
            && self.min_hold.is_none()
            && self.mode.is_none()
            && self.permits.is_none();
        if !holds_as_usual {
            return self.resolve(manager);
        }
        Ok(Resolved {
            wait: self.wait.unwrap_or(usual.wait),
            on_lost: self.on_lost.unwrap_or(usual.on_lost),
            reentrant: self.reentrant.unwrap_or(usual.reentrant),
            release: self.release.unwrap_or(usual.release),
            max_waiters: self.max_waiters.or(usual.max_waiters),
            term: usual.term,
            limit: usual.limit,
        })
    }

    /// Returns the limit on the holders.
    #[inline]
    fn limit(&self) -> Result<Limit, LockError> {
        match (self.mode, self.permits) {
            (None | Some(LockMode::Exclusive | LockMode::Write), None) => Ok(Limit::ALONE),
            (Some(LockMode::Read), None) => Ok(Limit::READ),
            (None, Some(permits)) => Limit::permits(permits).ok_or_else(|| {
                LockError::invalid_option(
                    "permits: 0 would let no caller in; give at least 1, which is an exclusive lock",
                )
            }),
            (Some(_), Some(_)) => Err(LockError::invalid_option(
                "permits: not together with mode; permits alone says how many may hold the lock at once, \
                 and mode lets readers in together",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_goes_before_the_manager_and_the_manager_before_the_default() {
        let second = Duration::from_secs(1);
        let manager =
            LockOptions { ttl: Some(second), wait: Some(second), ..LockOptions::default() };
        let call = LockOptions { wait: Some(2 * second), ..LockOptions::default() };
        let resolved = call.resolve(&manager).expect("all are in range");
        assert_eq!((resolved.term.ttl, resolved.wait), (second, 2 * second));
        assert!(resolved.term.renewed && !resolved.reentrant);
        assert_eq!((resolved.on_lost, resolved.release), (OnLost::Cancel, Release::Wait));
    }

    #[test]
    fn mode_and_permits_come_to_one_limit() {
        let limit = |mode, permits| {
            let options = LockOptions { mode, permits, ..LockOptions::default() };
            options.resolve(&LockOptions::default()).map(|resolved| resolved.limit)
        };
        for mode in [None, Some(LockMode::Exclusive), Some(LockMode::Write)] {
            assert_eq!(limit(mode, None).ok(), Some(Limit::ALONE), "{mode:?}");
        }
        assert_eq!(limit(Some(LockMode::Read), None).ok(), Some(Limit::READ));
        assert_eq!(limit(None, Some(1)).ok(), Some(Limit::ALONE));
        assert_eq!(limit(None, Some(5)).ok(), Limit::permits(5));
        for (mode, permits, mend) in
            [(None, 0, "at least 1"), (Some(LockMode::Read), 5, "not together with mode")]
        {
            let refused = limit(mode, Some(permits)).expect_err(mend).to_string();
            assert!(refused.starts_with("permits: ") && refused.contains(mend), "{refused}");
        }
    }

    #[test]
    fn a_call_comes_to_the_same_whether_it_is_known_what_is_usual_or_not() {
        let second = Duration::from_secs(1);
        let none = LockOptions::default;
        let (ttl, wait) = (Some(second), Some(2 * second));
        let managers =
            [none(), LockOptions { ttl, wait, max_waiters: Some(7), renew: Some(false), ..none() }];
        let calls = [
            none(),
            LockOptions { wait: Some(3 * second), ..none() },
            LockOptions { on_lost: Some(OnLost::Continue), reentrant: Some(true), ..none() },
            LockOptions { release: Some(Release::Background), max_waiters: Some(1), ..none() },
            LockOptions { ttl: Some(4 * second), ..none() },
            LockOptions { max_hold: Some(4 * second), ..none() },
            LockOptions { min_hold: Some(second / 2), ..none() },
            LockOptions { renew: Some(true), ..none() },
            LockOptions { mode: Some(LockMode::Read), ..none() },
            LockOptions { permits: Some(3), ..none() },
            LockOptions { ttl: Some(Duration::ZERO), ..none() },
        ];
        for manager in &managers {
            let usual = none().resolve(manager).expect("all are in range");
            for call in &calls {
                let known = call.resolve_over(manager, &usual).map_err(|error| error.to_string());
                let again = call.resolve(manager).map_err(|error| error.to_string());
                assert_eq!(format!("{known:?}"), format!("{again:?}"), "{call:?}");
            }
        }
    }

    #[test]
    fn a_range_is_checked_wherever_the_value_came_from() {
        let short =
            LockOptions { max_hold: Some(Duration::from_secs(1)), ..LockOptions::default() };
        let long = LockOptions { min_hold: Some(Duration::from_secs(2)), ..LockOptions::default() };
        let refused = long.resolve(&short).expect_err("longer than it may be held");
        assert!(refused.to_string().contains("min_hold"), "{refused}");
        let none = LockOptions { ttl: Some(Duration::ZERO), ..LockOptions::default() };
        assert!(none.resolve(&LockOptions::default()).is_err());
        assert!(LockOptions::default().resolve(&none).is_err());
    }
}
