//! Parts of the texts of errors.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::name::LockName;

/// What a loss means for what was done under the lock.
pub(super) struct Aftermath(pub(super) bool);

impl fmt::Display for Aftermath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            true => "the body was stopped, and what it had begun must be checked",
            false => "what was done under it must be checked",
        })
    }
}

/// How long the present holder's lease still runs.
pub(super) struct LeaseRemaining(pub(super) Option<Duration>);

impl fmt::Display for LeaseRemaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Tenths of a second: a lease's rest is an estimate, more digits would pretend otherwise.
            Some(rest) => write!(f, " (its lease runs for another {:.1} s)", rest.as_secs_f64()),
            None => Ok(()),
        }
    }
}

/// The reason, in the words of the store or of the network.
pub(super) struct Because<'a>(pub(super) Option<&'a (dyn Error + Send + Sync)>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

/// Which lock, in front of what is wrong.
pub(super) struct Of<'a>(pub(super) Option<&'a LockName>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(lock) => write!(f, "{lock}: "),
            None => Ok(()),
        }
    }
}
