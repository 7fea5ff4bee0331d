//! How much observers know of a call: its end is told once, by whoever sees it.

/// What observers know of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing.
    Nothing,
    /// It waits.
    Waits,
    /// It waits, and whoever drops it has its end told.
    WaitsFor,
    /// How it ended.
    End,
}

impl Told {
    /// That it waits.
    pub(super) fn queued(self) -> bool {
        matches!(self, Self::Waits | Self::WaitsFor)
    }
}
