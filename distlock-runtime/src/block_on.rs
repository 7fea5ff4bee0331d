//! Waiting for a future on a thread that does nothing else meanwhile.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use tokio::runtime::Handle;

/// Blocks this thread until `future` is done. It may be one of a runtime: the future is polled elsewhere
/// then, as timers and connections of that runtime stand still while its thread does.
pub(crate) fn block_on<F>(future: F) -> F::Output
where
    F: Future<Output: Send> + Send,
{
    if Handle::try_current().is_err() {
        return polled_here(future);
    }
    match thread::scope(|scope| scope.spawn(|| polled_here(future)).join()) {
        Ok(out) => out,
        Err(panic) => resume_unwind(panic),
    }
}

fn polled_here<F: Future>(future: F) -> F::Output {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(signal.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
            return out;
        }
        signal.wait();
    }
}

/// Not `thread::park`: its token belongs to the program, which may use it on this thread.
#[derive(Default)]
struct Signal {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn wait(&self) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(given, |given| !*given);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
