//! The engine's thread, and the runtime that is made and dropped on it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};

use tokio::runtime::Handle;

/// What a thread runs, once, to its end.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A thread with a runtime of its own, which waits for its work. It ends when this is dropped without.
pub(crate) struct Thread {
    handle: Handle,
    work: Sender<Work>,
}

impl Thread {
    /// The runtime is made and dropped on the new thread: the caller's may be one of another runtime,
    /// where that would panic.
    pub(super) fn start() -> io::Result<Self> {
        let (made, runtime) = channel();
        let (work, given) = channel::<Work>();
        std::thread::Builder::new().name("distlock".into()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let sent = made.send(Ok(runtime.handle().clone()));
                    if let (Ok(()), Ok(work)) = (sent, given.recv()) {
                        runtime.block_on(work);
                    }
                }
                Err(error) => drop(made.send(Err(error))),
            }
        })?;
        let handle = runtime.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { handle, work })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn run(self, work: Work) {
        // It waits for this, unless something is very wrong: then its runtime is gone, too.
        let _ = self.work.send(work);
    }
}
