//! A signal to one task, like tokio's `Notify`, for a crate that does not know tokio.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A signal for the one task that waits for it. A signal that is sent while no task waits is kept for the next wait.
/// Several signals are kept as one.
#[derive(Debug, Default)]
pub struct Signal(Mutex<SignalState>);

#[derive(Debug, Default)]
struct SignalState {
    is_set: bool,
    waiting: Option<Waker>,
}

impl Signal {
    /// Sends the signal.
    pub fn notify(&self) {
        let waiting = {
            let mut state = self.state();
            state.is_set = true;
            state.waiting.take()
        };
        // The task is woken once the mutex is free, because a waker may poll its task at once.
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Resolves after a signal, and takes it. If this future is dropped before, the signal is left for the next wait.
    pub async fn notified(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if std::mem::take(&mut state.is_set) {
                return Poll::Ready(());
            }
            match &mut state.waiting {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }

    fn state(&self) -> MutexGuard<'_, SignalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_signal_is_kept_until_it_is_taken_and_wakes_the_task_that_waits() {
        let (signal, woken) = (Signal::default(), Arc::new(Counted(AtomicUsize::new(0))));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        signal.notify();
        signal.notify();
        assert!(pin!(signal.notified()).poll(&mut cx).is_ready(), "it was kept");
        {
            let mut waits = pin!(signal.notified());
            assert!(waits.as_mut().poll(&mut cx).is_pending(), "two are kept as one");
            signal.notify();
            assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        }
        assert!(pin!(signal.notified()).poll(&mut cx).is_ready(), "a dropped wait leaves it");
    }
}
