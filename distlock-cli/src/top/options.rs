//! What `distlock top` is asked for.

use std::time::Duration;

pub(crate) struct TopOptions {
    pub(crate) interval: Duration,
    pub(crate) once: bool,
    pub(crate) json: bool,
}
