//! Why a command did not do what it should.

use distlock::LockError;

use crate::exit;

/// What to say, and the exit code.
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: exit::USAGE }
    }

    /// This program failed.
    pub(crate) fn own(error: impl ToString) -> Self {
        Self { text: error.to_string(), code: exit::FAILED }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self { text: describe(&error), code: exit::of(&error) }
    }
}

/// What an error says, and why, without the label of a lock: the user who typed the key knows it.
pub(crate) fn describe(error: &LockError) -> String {
    match error {
        LockError::Backend { kind, cause: Some(cause), .. } => format!("{kind}: {cause}"),
        LockError::Backend { kind, .. } => kind.to_string(),
        LockError::InvalidKey { reason, .. } => format!("the key cannot be used: {reason}"),
        LockError::InvalidOption { .. } => as_options(&error.to_string()),
        _ => error.to_string(),
    }
}

/// The library's names of options, as they are written here.
fn as_options(text: &str) -> String {
    let Some((name, rest)) = text.split_once(": ") else { return text.to_owned() };
    match name {
        "ttl" | "wait" | "permits" | "min_hold" | "max_hold" => {
            let rest = rest.replace("max_hold", "--max-hold").replace("min_hold", "--min-hold");
            format!("--{}: {rest}", name.replace('_', "-"))
        }
        _ => text.to_owned(),
    }
}
