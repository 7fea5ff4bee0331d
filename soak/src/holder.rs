//! A body that notes when it was polled and when its lease was over.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use distlock::LockManager;

/// What is known of one body.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    polls: AtomicU64,
    late: AtomicU64,
    /// As of the last poll; stands from then on if nothing can be renewed.
    deadline: Mutex<Option<Instant>>,
}

impl Holder {
    /// Runs `body` inside a body that runs under the lock of `key`.
    pub(crate) async fn body<T>(
        &self,
        manager: &LockManager,
        key: &str,
        body: impl Future<Output = T>,
    ) -> T {
        // The same lease: a nested call joins it and asks nobody.
        let lease = manager.lock(key).reentrant(true).acquire().await.expect("it is held here");
        let mut body = pin!(body);
        poll_fn(|cx| {
            self.polls.fetch_add(1, SeqCst);
            if !lease.is_held() {
                self.late.fetch_add(1, SeqCst);
            }
            *self.deadline.lock().expect("no panic") = Some(Instant::now() + lease.remaining());
            body.as_mut().poll(cx)
        })
        .await
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(SeqCst)
    }

    /// Polls after the deadline.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(SeqCst)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock().expect("no panic")
    }
}
