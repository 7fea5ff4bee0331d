//! Which recorder there is: that of the process, one of this thread alone, or none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whose recorder it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorder {
    /// There is none. One without any state is taken for none.
    None,
    /// It is there for as long as the process is, and every thread has it that has none of its own.
    OfProcess,
    /// It is this thread's, for a while.
    OfThread,
}

/// Where the recorder of the process is; zero before it is known.
static OF_PROCESS: AtomicUsize = AtomicUsize::new(0);
/// Where the last one was that is not the process's.
static OF_THREAD: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// There was one, somewhere.
static SEEN: AtomicBool = AtomicBool::new(false);
/// So many are remembered.
const REMEMBERED: usize = 64;

pub(super) fn with_recorder<T>(act: impl FnOnce(&dyn metrics::Recorder) -> T) -> T {
    metrics::with_recorder(act)
}

/// Where the recorder of this thread is; zero if it has none.
#[inline]
fn address() -> usize {
    metrics::with_recorder(|recorder| {
        let is_none = size_of_val(recorder) == 0;
        if is_none { 0 } else { std::ptr::from_ref(recorder).cast::<()>().addr() }
    })
}

#[inline]
pub(super) fn current() -> Recorder {
    match address() {
        0 => Recorder::None,
        address if address == OF_PROCESS.load(Ordering::Relaxed) => Recorder::OfProcess,
        address => find_out(address),
    }
}

/// Whether there was a recorder at any look so far.
#[inline]
pub(super) fn was_seen() -> bool {
    SEEN.load(Ordering::Relaxed)
}

#[cold]
fn find_out(here: usize) -> Recorder {
    SEEN.store(true, Ordering::Relaxed);
    // It is set once.
    if OF_PROCESS.load(Ordering::Relaxed) != 0 {
        return Recorder::OfThread;
    }
    let of_thread = || OF_THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if of_thread().contains(&here) {
        return Recorder::OfThread;
    }
    // A thread that has just begun has no recorder of its own.
    let elsewhere = std::thread::Builder::new().name("distlock-metrics".into()).spawn(address);
    let elsewhere = elsewhere.ok().and_then(|thread| thread.join().ok()).unwrap_or(0);
    if elsewhere != 0 {
        OF_PROCESS.store(elsewhere, Ordering::Relaxed);
    }
    if elsewhere == here {
        return Recorder::OfProcess;
    }
    let mut of_thread = of_thread();
    if of_thread.len() == REMEMBERED {
        of_thread.clear();
    }
    of_thread.push(here);
    Recorder::OfThread
}
