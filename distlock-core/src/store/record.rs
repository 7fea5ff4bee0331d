//! The record of this process in a store, for operators who ask which process holds a lock (R15). Several stores implement
//! [`ProcessDirectory::introduce`](super::ProcessDirectory::introduce) with it.
//!
//! The record is written on every new connection, and when the process uses a lock and has not written the record for a
//! while. An idle process writes nothing, and its record expires. Failures concern no lock.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::process_info::ProcessInfo;
use crate::select::until;
use crate::signal::Signal;

/// How long the store keeps a record after it was written.
pub const KEPT: Duration = Duration::from_secs(60);
/// How old a record may be when its process uses a lock, before it is written again.
const FRESH: Duration = Duration::from_secs(20);

/// The connection of a store that keeps records.
pub trait RecordKeeper: Send + Sync + 'static {
    /// Resolves when it is connected; at once if it is.
    fn is_up(&self) -> impl Future<Output = ()> + Send;
    /// Resolves when it is not connected; at once if it is not.
    fn is_down(&self) -> impl Future<Output = ()> + Send;
    /// Writes the record, to be kept for [`KEPT`]. Does not report a failure: the record is written again when the process
    /// uses a lock, or with the next connection.
    fn write(&self, prefix: &str, info: &ProcessInfo) -> impl Future<Output = ()> + Send;
}

/// The record of this process.
pub struct ProcessRecord {
    /// The prefix of the manager, with its separator.
    pub prefix: String,
    /// When it was last written. `NEVER` before it is started and after it has ended.
    written: AtomicU64,
    /// Makes the supervisor write it again.
    wanted: Signal,
    /// Whether it has ended.
    removed: AtomicBool,
}

impl ProcessRecord {
    /// Returns a record that is not written before it is [started](Self::start).
    pub fn new(prefix: String) -> Self {
        let (written, removed) = (Moment::NEVER.as_nanos().into(), AtomicBool::new(false));
        Self { prefix, written, wanted: Signal::default(), removed }
    }

    /// Returns a future that writes the record whenever its keeper is connected. It resolves after [`end`](Self::end).
    pub fn start<K: RecordKeeper>(
        self: &Arc<Self>,
        info: &ProcessInfo,
        keeper: &Arc<K>,
    ) -> impl Future<Output = ()> + Send + use<K> {
        self.written.store(0, Ordering::Relaxed);
        let (record, info, keeper) = (self.clone(), info.clone(), keeper.clone());
        async move { record.supervise(&info, &*keeper).await }
    }

    /// Notes that the process acquires, awaits or renews a lock. Has an old record written again.
    pub fn used(&self, now: Moment) {
        let written = Moment::from_nanos(self.written.load(Ordering::Relaxed));
        // A record that is not to be written has a time after `now`.
        if now.since(written) > FRESH {
            self.written.store(now.as_nanos(), Ordering::Relaxed);
            self.wanted.notify();
        }
    }

    async fn supervise(&self, info: &ProcessInfo, keeper: &impl RecordKeeper) {
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

    /// Ends the record: it is not written any more. The caller then removes it from the store.
    pub fn end(&self) {
        self.written.store(Moment::NEVER.as_nanos(), Ordering::Relaxed);
        self.removed.store(true, Ordering::Release);
        self.wanted.notify();
    }
}
