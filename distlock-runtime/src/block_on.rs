//! Blocks a thread until a future is done.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use tokio::runtime::Handle;

/// Blocks this thread until `future` is done. On a thread of a runtime the future is polled on another thread, because
/// timers and connections of the runtime may be frozen while its thread is blocked.
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

/// Polls the future on this thread.
fn polled_here<F: Future>(future: F) -> F::Output {
    let signal = Arc::new(ThreadWaker::default());
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

/// Blocks a thread until it is woken. It does not use `thread::park`, whose token belongs to the program.
#[derive(Default)]
struct ThreadWaker {
    given: Mutex<bool>,
    changed: Condvar,
}

impl ThreadWaker {
    fn wait(&self) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(given, |given| !*given);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
