//! What `distlock run` is asked for.

use std::ffi::OsString;
use std::time::Duration;

use crate::messages::Volume;

pub(crate) struct RunOptions {
    pub(crate) keys: Vec<String>,
    pub(crate) command: Vec<OsString>,
    pub(crate) shared: bool,
    pub(crate) permits: Option<u32>,
    pub(crate) wait: Duration,
    pub(crate) ttl: Duration,
    pub(crate) busy_code: u8,
    pub(crate) skip_if_held: bool,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) end_on_loss: bool,
    pub(crate) foreground: bool,
    pub(crate) name: Option<String>,
    pub(crate) volume: Volume,
    pub(crate) json: bool,
}
