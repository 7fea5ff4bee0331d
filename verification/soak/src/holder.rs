//! A body that notes when it was polled and when its lease was over.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::LockManager;

/// What is known of one body.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    polls: AtomicU64,
    late: Mutex<Vec<Duration>>,
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
        // The same lease: a nested call joins it and sends nothing.
        let lease = manager.lock(key).reentrant(true).acquire().await.expect("it is held here");
        let mut body = pin!(body);
        poll_fn(|cx| {
            self.polls.fetch_add(1, SeqCst);
            let (now, remaining) = (Instant::now(), lease.remaining());
            let mut deadline = self.deadline.lock().expect("no panic");
            match *deadline {
                Some(over) if remaining.is_zero() => {
                    self.late.lock().expect("no panic").push(now.saturating_duration_since(over));
                }
                _ => *deadline = Some(now + remaining),
            }
            drop(deadline);
            body.as_mut().poll(cx)
        })
        .await
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(SeqCst)
    }

    /// How late polls were that were seen after the deadline. One that was allowed just before it is
    /// seen a moment later.
    pub(crate) fn late(&self) -> Vec<Duration> {
        self.late.lock().expect("no panic").clone()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock().expect("no panic")
    }
}
