//! The options that a layer and a middleware share, each with its documentation.

/// Methods over `self.rule`, one for each option.
macro_rules! setters {
    () => {
        /// The length of the lease: how long the lock stays taken if this process dies. 10 ms to
        /// 365 days. Default: the manager's, 30 s.
        pub fn ttl(mut self, ttl: ::std::time::Duration) -> Self {
            self.rule.options.ttl = Some(ttl);
            self
        }

        /// How long a request waits while others hold the lock; zero is not to wait. Keep it below
        /// the timeouts of clients and proxies. Default: the manager's, zero.
        pub fn wait(mut self, wait: ::std::time::Duration) -> Self {
            self.rule.options.wait = Some(wait);
            self
        }

        /// Whether the lease is renewed while the handler runs. Default: true. With false the
        /// handler has the `ttl` and no more, and is then dropped.
        pub fn renew(mut self, renew: bool) -> Self {
            self.rule.options.renew = Some(renew);
            self
        }

        /// The longest time for which the lease is renewed, counted from when the lock was taken;
        /// then it counts as lost, and the handler is dropped. At least 10 ms. Default: the manager's,
        /// no limit.
        pub fn max_hold(mut self, max_hold: ::std::time::Duration) -> Self {
            self.rule.options.max_hold = Some(max_hold);
            self
        }

        /// The shortest time for which the lock stays taken, counted from when it was taken. The
        /// response does not wait for it. At most `max_hold` and 365 days. Default: none.
        pub fn min_hold(mut self, min_hold: ::std::time::Duration) -> Self {
            self.rule.options.min_hold = Some(min_hold);
            self
        }

        /// What becomes of the handler when the lease is lost. Default:
        /// [`OnLost::Cancel`](crate::OnLost::Cancel): it is dropped, and the response is a 500.
        pub fn on_lost(mut self, on_lost: $crate::OnLost) -> Self {
            self.rule.options.on_lost = Some(on_lost);
            self
        }

        /// Which requests may hold the lock at the same time: with
        /// [`LockMode::Read`](crate::LockMode::Read) any number of them, while none writes. Default:
        /// exclusive. Not together with [`permits`](Self::permits).
        pub fn mode(mut self, mode: $crate::LockMode) -> Self {
            self.rule.options.mode = Some(mode);
            self
        }

        /// How many requests may hold the lock at once, over all processes; at least 1. Default: one.
        /// For one key, and not together with [`mode`](Self::mode): see
        /// [`LockRequest::permits`](crate::LockRequest::permits).
        pub fn permits(mut self, permits: u32) -> Self {
            self.rule.options.permits = Some(permits);
            self
        }

        /// Whether the response waits until the store has confirmed the release. Default:
        /// [`Release::Wait`](crate::Release::Wait): a client that has its response finds the lock free.
        pub fn release(mut self, release: $crate::Release) -> Self {
            self.rule.options.release = Some(release);
            self
        }

        /// How many requests of this process may wait for one lock at a time; one that finds so many
        /// waiters is refused at once. 0 is not to wait. Default: the manager's, no limit.
        pub fn max_waiters(mut self, waiters: u32) -> Self {
            self.rule.options.max_waiters = Some(waiters);
            self
        }

        /// The namespace in the store; empty for none. Default: the manager's, `distlock`.
        pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
            self.rule.options.prefix = Some(prefix.as_ref().into());
            self
        }

        /// A label for errors and events. Default: file and line where this was made.
        pub fn name(mut self, name: impl Into<::std::borrow::Cow<'static, str>>) -> Self {
            self.rule.set_name(name.into());
            self
        }

        /// How long a handler may wait for the request's body, all its waits together. Default: 10 s.
        ///
        /// After that the handler is dropped, the response is a 408, and the lock is free. Without such a
        /// limit a client could keep a lock for as long as it liked, by not sending the rest of its
        /// request or by sending it byte by byte.
        ///
        /// Only the time counts in which the handler waits for the next piece of the body: not what it
        /// does before it reads and between two pieces, and nothing if it does not read.
        ///
        /// For uploads allow more, or read the body before the lock is taken: with the attribute, whose
        /// handler has its arguments first.
        pub fn body_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.rule.body_timeout = timeout;
            self
        }

        /// The HTTP status of the response when others hold the lock: 409, 423, 429 or 503. Default:
        /// the manager's, 423.
        pub fn busy_status(mut self, status: u16) -> Self {
            self.rule.busy_status = Some(status);
            self
        }

        /// How long clients are advised to wait before they try again: the `Retry-After` of a lock that is
        /// held and of a store that cannot be used, in whole seconds and at least 1. With jitter, between
        /// half and one and a half of it, so that clients do not come back in step. Default: the
        /// manager's, 1 s.
        pub fn retry_after(mut self, retry_after: ::std::time::Duration) -> Self {
            self.rule.retry_after = Some(retry_after);
            self
        }

        /// Returns itself if its options can be used. Without this call, a mistake in them shows as
        /// responses with the status 500 and in the log.
        ///
        /// # Errors
        ///
        /// [`InvalidOption`](crate::LockError::InvalidOption) says what is wrong, and how to fix it.
        pub fn checked(self) -> Result<Self, $crate::LockError>
        where
            Key: $crate::integrations::http::HasKey,
        {
            self.rule.check()?;
            Ok(self)
        }
    };
}

pub(crate) use setters;
