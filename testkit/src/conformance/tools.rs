//! What the promises have in common.

use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock_runtime::{LockManager, LockStatus};

use super::Subject;
use crate::{LONG, ms, wait_for};

/// Runs all of them at the same time.
pub(super) async fn all_of(futures: impl IntoIterator<Item = impl Future<Output = ()>>) {
    let mut left: Vec<_> = futures.into_iter().map(Box::pin).collect();
    poll_fn(|cx| {
        left.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Waits until so many processes wait for the lock of `key`.
pub(super) async fn until_waiting(manager: &LockManager, key: &str, n: usize) {
    wait_for("they wait", async || {
        matches!(manager.inspect(key).await, Ok(LockStatus::Held { waiting, .. }) if waiting == n)
    })
    .await;
}

/// Waits until nothing is stored of any lock.
pub(super) async fn nothing_is_left(subject: &impl Subject) {
    let start = Instant::now();
    loop {
        let left = subject.left();
        if left.is_empty() {
            return;
        }
        // Postgres sweeps once a minute.
        assert!(start.elapsed() < LONG, "after {:?} there is still {left:?}", start.elapsed());
        tokio::time::sleep(ms(20)).await;
    }
}

/// A number in a file, that processes share: read, wait and write, so that what another one writes in
/// between is lost.
pub(super) struct Number(PathBuf);

impl Number {
    /// A new one, in a file of its own.
    pub(super) fn zero() -> Self {
        let number = Self(crate::process::temp_path("number"));
        number.set(0);
        number
    }

    /// The one of the process that started this one.
    pub(super) fn at(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    pub(super) fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }

    pub(super) fn get(&self) -> usize {
        let text = std::fs::read_to_string(&self.0).expect("read the number");
        // Without a lock it may be read in the middle of a write.
        text.trim().parse().unwrap_or(0)
    }

    pub(super) fn set(&self, number: usize) {
        std::fs::write(&self.0, format!("{number}\n")).expect("write the number");
    }

    pub(super) async fn add_one(&self) {
        let number = self.get();
        tokio::time::sleep(ms(1)).await;
        self.set(number + 1);
    }

    pub(super) fn remove(self) {
        std::fs::remove_file(self.0).expect("remove the number");
    }
}

/// How many are inside at the same time.
#[derive(Default)]
pub(super) struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Inside {
    /// Comes in, and leaves after `stay`. Says how many were inside with it when it came.
    pub(super) async fn visit(&self, stay: Duration) -> usize {
        let inside = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(inside, SeqCst);
        tokio::time::sleep(stay).await;
        self.now.fetch_sub(1, SeqCst);
        inside
    }

    /// The most there were.
    pub(super) fn most(&self) -> usize {
        self.most.load(SeqCst)
    }

    /// How many there are.
    pub(super) fn now(&self) -> usize {
        self.now.load(SeqCst)
    }
}
