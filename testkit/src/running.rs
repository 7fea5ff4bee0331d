//! Whether something is still there.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// True from its making until it is dropped, as a body's locals are.
pub struct Running<'a>(&'a AtomicBool);

impl<'a> Running<'a> {
    /// Sets `flag` until the end of this.
    pub fn new(flag: &'a AtomicBool) -> Self {
        flag.store(true, SeqCst);
        Self(flag)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}
