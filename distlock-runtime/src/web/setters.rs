//! The options that a layer and a middleware share, each with its documentation.

/// Methods over `self.rule`, one for each option.
macro_rules! setters {
    () => {
        /// How long the lock may outlive a process that died. At least 10 ms. Default: the
        /// manager's.
        pub fn ttl(mut self, ttl: ::std::time::Duration) -> Self {
            self.rule.options.ttl = Some(ttl);
            self
        }

        /// How long a request waits while others hold the lock; zero is not to wait. Keep it below
        /// the time-outs of clients and proxies. Default: the manager's.
        pub fn wait(mut self, wait: ::std::time::Duration) -> Self {
            self.rule.options.wait = Some(wait);
            self
        }

        /// Whether the lease is extended while the handler runs. Default: true. With false the
        /// handler has `ttl` and no more.
        pub fn renew(mut self, renew: bool) -> Self {
            self.rule.options.renew = Some(renew);
            self
        }

        /// Never extend the lease past this time after the lock was taken; then it counts as lost.
        /// Default: the manager's, no limit.
        pub fn max_hold(mut self, max_hold: ::std::time::Duration) -> Self {
            self.rule.options.max_hold = Some(max_hold);
            self
        }

        /// Do not free the lock before this time after it was taken. Default: none.
        pub fn min_hold(mut self, min_hold: ::std::time::Duration) -> Self {
            self.rule.options.min_hold = Some(min_hold);
            self
        }

        /// What becomes of the handler when the lease is lost. Default:
        /// [`OnLost::Cancel`](crate::OnLost::Cancel): it is dropped, and the answer is a 500.
        pub fn on_lost(mut self, on_lost: $crate::OnLost) -> Self {
            self.rule.options.on_lost = Some(on_lost);
            self
        }

        /// Whether the answer waits for the store to confirm the release. Default:
        /// [`Release::Wait`](crate::Release::Wait).
        pub fn release(mut self, release: $crate::Release) -> Self {
            self.rule.options.release = Some(release);
            self
        }

        /// How many requests of this process may wait for one lock at a time: who comes when so many
        /// wait is answered at once. 0 is not to wait. Default: the manager's, no limit.
        pub fn max_waiters(mut self, waiters: u32) -> Self {
            self.rule.options.max_waiters = Some(waiters);
            self
        }

        /// The namespace in the store; empty for none. Default: the manager's.
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
        /// A handler that reads at once waits from the grant on. What else it does, before it reads and
        /// between two pieces, does not count: a client cannot send what nobody reads. When it has
        /// waited for so long, the handler is dropped, the answer is 408, and the lock is free: whoever
        /// sends a request could otherwise hold everybody's lock by not sending the rest of it, or by
        /// sending it byte by byte. A body that has come, and one that is not read, are no matter.
        ///
        /// For uploads take more, or read the body before the lock is taken: under the attribute
        /// instead of here.
        pub fn body_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.rule.body_timeout = timeout;
            self
        }

        /// The status of an answer to a lock that is held: 409, 423, 429 or 503. Default: the
        /// manager's, 423.
        pub fn busy_status(mut self, status: u16) -> Self {
            self.rule.busy_status = Some(status);
            self
        }

        /// About how long a client is told to stay away, in the `Retry-After` of a lock that is held
        /// and of a store that cannot be used: drawn between half and one and a half of it, in whole
        /// seconds and at least one, so that clients do not come back in step. Default: the
        /// manager's, 1 s.
        pub fn retry_after(mut self, retry_after: ::std::time::Duration) -> Self {
            self.rule.retry_after = Some(retry_after);
            self
        }

        /// Passes itself on if its options can be used. Without this call a mistake shows as 500
        /// answers and in the log.
        ///
        /// # Errors
        ///
        /// [`InvalidOption`](crate::LockError::InvalidOption) says what is wrong, and how to mend it.
        pub fn checked(self) -> Result<Self, $crate::LockError> {
            self.rule.check()?;
            Ok(self)
        }
    };
}

pub(super) use setters;
