//! Exit codes. Where there is a convention it is kept: sysexits(3), timeout(1), env(1).

use distlock::LockError;

pub(crate) const OK: u8 = 0;
/// `release`: there was nothing to release. `doctor`: something should be looked at.
pub(crate) const NOTHING: u8 = 1;
/// `doctor`: locks do not work, or are not safe.
pub(crate) const BROKEN: u8 = 2;
/// EX_USAGE.
pub(crate) const USAGE: u8 = 64;
/// EX_UNAVAILABLE: the store cannot be reached, or refuses.
pub(crate) const STORE: u8 = 69;
/// EX_TEMPFAIL: the lock is held elsewhere.
pub(crate) const BUSY: u8 = 75;
/// The lease was lost, and the command was ended.
pub(crate) const LOST: u8 = 79;
/// This program failed.
pub(crate) const FAILED: u8 = 125;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;
/// What shells add to the number of the signal that ended a command.
const SIGNALLED: u8 = 128;

/// Of a command that a signal ended.
pub(crate) fn signalled(signal: i32) -> u8 {
    u8::try_from(signal).unwrap_or(0).saturating_add(SIGNALLED)
}

/// Of what a lock could not be taken for.
pub(crate) fn of(error: &LockError) -> u8 {
    match error {
        LockError::Busy { .. } => BUSY,
        LockError::Lost { .. } => LOST,
        LockError::Backend { .. } => STORE,
        LockError::InvalidKey { .. }
        | LockError::InvalidOption { .. }
        | LockError::NotConfigured => USAGE,
        _ => FAILED,
    }
}
