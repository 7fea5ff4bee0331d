//! The stand-in for `metrics.rs` without the feature `metrics`. It compiles to nothing.

use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::name::LockName;

use super::observer::{Acquired, Refused, Verb};
use crate::error::LostReason;

#[derive(Debug, Clone, Default)]
pub(super) struct Metrics(());

#[derive(Debug, Default)]
pub(super) struct Hold(());

#[derive(Debug, Default)]
pub(crate) struct InLine(());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecorderScope {
    None,
}

#[allow(clippy::unused_self)]
impl Metrics {
    pub(super) fn started(&self, _store: &'static str) {}

    #[inline(always)]
    pub(super) fn recorder(&self) -> RecorderScope {
        RecorderScope::None
    }

    #[inline(always)]
    pub(super) fn has_been_on(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn waiting(&self, _lock: &LockName) -> InLine {
        InLine(())
    }

    pub(super) fn acquired(
        &self,
        _lock: &LockName,
        _recorder: RecorderScope,
        _hold: &Hold,
        _event: &Acquired,
    ) {
    }

    pub(super) fn refused(&self, _lock: &LockName, _event: &Refused<'_>) {}

    #[inline(always)]
    pub(super) fn ended(&self, _hold: &Hold, _since: Moment, _held: Duration) {}

    pub(super) fn lost(&self, _lock: &LockName, _hold: &Hold, _reason: LostReason) {}

    pub(super) fn renewed(&self, _lock: &LockName, _ok: bool) {}

    pub(super) fn lasts(&self, _hold: &Hold, _since: Moment, _age: Duration) {}

    pub(super) fn released_late(&self, _lock: &LockName) {}

    pub(super) fn command(
        &self,
        _recorder: RecorderScope,
        _verb: Verb,
        _took: Duration,
        _ok: bool,
    ) {
    }

    pub(super) fn link(&self, _was_up: Option<bool>, _is_up: Option<bool>) {}
}

#[allow(clippy::unused_self)]
impl InLine {
    #[inline(always)]
    pub(crate) fn is_counted(&self) -> bool {
        false
    }
}

impl Hold {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        true
    }
}
