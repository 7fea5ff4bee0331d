//! Locks whose series begin before their first call.

use std::sync::{Mutex, PoisonError};

use super::handles::OfLock;
use super::metric_table;
use super::recorder::{self, Recorder, with_recorder};

/// So many names have series of their own in one manager.
pub(super) const MOST_NAMES: usize = 500;

/// Has the series of these locks begin at zero, with the recorder that is installed and with one that will
/// be: by the names that the locks have. Otherwise they begin with the first call, and an alert on an
/// increase misses it.
///
/// ```
/// # use distlock_runtime as distlock;
/// // Before or after the recorder is installed.
/// distlock::metrics::register(["orders::pay", "nightly"]);
/// ```
///
/// A lock's name is the `name` of its attribute or request, and otherwise the function's path as
/// `module_path!()` has it, or the file and line of a request. A call with names that are known already does
/// nothing. At most 500 names; further ones are ignored.
pub fn register<N: Into<String>>(names: impl IntoIterator<Item = N>) {
    let mut new = Vec::new();
    {
        let mut known = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names.into_iter().map(Into::into).take(MOST_NAMES) {
            if known.len() < MOST_NAMES && !known.contains(&name) {
                known.push(name.clone());
                new.push(name);
            }
        }
    }
    if recorder::current() != Recorder::None {
        with_recorder(|recorder| {
            metric_table::describe(recorder);
            new.iter().for_each(|name| drop(OfLock::register(recorder, name)));
        });
    }
}

/// By the names of the locks.
pub(super) static REGISTERED: Mutex<Vec<String>> = Mutex::new(Vec::new());
