//! Exit codes, and the failures that end the program with them.
//!
//! The codes follow conventions where there are some: sysexits(3), timeout(1) and env(1).

use distlock::LockError;

pub(crate) const OK: u8 = 0;
/// `release` found nothing to release, or `doctor` gave a warning.
pub(crate) const NOTHING: u8 = 1;
/// `doctor` found that locks do not work, or are not safe.
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
/// Shells add this to the number of the signal that ended a command.
const SIGNALLED: u8 = 128;

/// Returns the exit code for a command that a signal ended.
pub(crate) fn signalled(signal: i32) -> u8 {
    u8::try_from(signal).unwrap_or(0).saturating_add(SIGNALLED)
}

/// Returns the exit code for an error of the library.
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

/// The reason for the end of the program: a message and the exit code.
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl Failure {
    /// Reports a mistake in the command line or in the environment.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: USAGE }
    }

    /// Reports a failure of this program itself.
    pub(crate) fn internal(error: impl ToString) -> Self {
        Self { text: error.to_string(), code: FAILED }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self { text: describe(&error), code: of(&error) }
    }
}

/// Describes an error and its cause. Omits the label of the lock, because the user typed the key.
pub(crate) fn describe(error: &LockError) -> String {
    match error {
        LockError::Backend { kind, cause: Some(cause), .. } => format!("{kind}: {cause}"),
        LockError::Backend { kind, .. } => kind.to_string(),
        LockError::InvalidKey { reason, .. } => format!("the key cannot be used: {reason}"),
        LockError::InvalidOption { .. } => with_command_line_options(&error.to_string()),
        _ => error.to_string(),
    }
}

/// Replaces the library's names of options by those of the command line.
fn with_command_line_options(text: &str) -> String {
    let Some((name, rest)) = text.split_once(": ") else { return text.to_owned() };
    match name {
        "ttl" | "wait" | "permits" | "min_hold" | "max_hold" => {
            let rest = rest.replace("max_hold", "--max-hold").replace("min_hold", "--min-hold");
            format!("--{}: {rest}", name.replace('_', "-"))
        }
        _ => text.to_owned(),
    }
}
