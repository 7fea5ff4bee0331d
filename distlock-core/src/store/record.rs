//! The record of this process where a store keeps one for each: which process holds a lock, for operators (R15).
//!
//! It is written on every new connection, and when the process uses a lock and has not written it for a while: a process
//! that is idle writes nothing, and is forgotten. Whatever goes wrong with it concerns no lock.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::ProcessInfo;
use crate::clock::{Clock, Moment};
use crate::select::until;
use crate::signal::Signal;

/// How long a record is kept.
pub const KEPT: Duration = Duration::from_secs(60);
/// How long it is good enough for a process that uses locks.
const FRESH: Duration = Duration::from_secs(20);

/// Where the records are kept.
pub trait Keeper: Send + Sync + 'static {
    /// Resolves when it is connected.
    fn is_up(&self) -> impl Future<Output = ()> + Send;
    /// Resolves when it is not.
    fn is_down(&self) -> impl Future<Output = ()> + Send;
    /// Writes what this process says of itself. Where that fails it is tried again when a lock is used, or with
    /// the next connection.
    fn write(&self, prefix: &str, info: &ProcessInfo) -> impl Future<Output = ()> + Send;
}

/// The record of this process.
pub struct Record {
    /// The prefix of the manager, with its separator.
    pub prefix: String,
    /// When it was written last; `NEVER` while it is not to be written.
    written: AtomicU64,
    /// It is to be written again.
    wanted: Signal,
    /// It was removed for good.
    removed: AtomicBool,
}

impl Record {
    /// Of no process, until it is [started](Self::start).
    pub fn new(prefix: String) -> Self {
        let (written, removed) = (Moment::NEVER.as_nanos().into(), AtomicBool::new(false));
        Self { prefix, written, wanted: Signal::default(), removed }
    }

    /// Writes the record from now on, whenever its keeper is connected, for as long as the future is polled.
    pub fn start<K: Keeper>(
        self: &Arc<Self>,
        info: &ProcessInfo,
        keeper: &Arc<K>,
    ) -> impl Future<Output = ()> + Send + use<K> {
        self.written.store(0, Ordering::Relaxed);
        let (record, info, keeper) = (self.clone(), info.clone(), keeper.clone());
        async move { record.supervise(&info, &*keeper).await }
    }

    /// The process takes, awaits or renews a lock.
    pub fn used(&self, now: Moment) {
        let written = Moment::from_nanos(self.written.load(Ordering::Relaxed));
        // Later than now, if it is not to be written.
        if now.since(written) > FRESH {
            self.written.store(now.as_nanos(), Ordering::Relaxed);
            self.wanted.notify();
        }
    }

    async fn supervise(&self, info: &ProcessInfo, keeper: &impl Keeper) {
        loop {
            keeper.is_up().await;
            if self.removed.load(Ordering::Acquire) {
                return;
            }
            self.written.store(Clock::Boottime.now().as_nanos(), Ordering::Relaxed);
            keeper.write(&self.prefix, info).await;
            until(self.wanted.notified(), keeper.is_down()).await;
        }
    }

    /// It is not written any more, and is to be removed.
    pub fn end(&self) {
        self.written.store(Moment::NEVER.as_nanos(), Ordering::Relaxed);
        self.removed.store(true, Ordering::Release);
        self.wanted.notify();
    }
}
