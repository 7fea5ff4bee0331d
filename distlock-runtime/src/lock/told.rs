//! How much observers know of a call: its end is reported once, by the code that sees it first.

/// What observers know of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing.
    Nothing,
    /// It waits.
    Waits,
    /// It waits, and its end is reported when it is dropped.
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
