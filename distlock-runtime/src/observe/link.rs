//! Tracks whether a connection is up while it is wanted, and logs its outages.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use distlock_core::store::{LinkWatch, StoreEvents};
use tracing::Level;

use super::log;
use super::observer::Connection;
use super::observers::Observers;

/// Shorter outages are not logged, because a connection that was closed is usually back by then.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// The state of one connection as it was last reported. Dropping it reports that the connection is no longer wanted.
#[derive(Debug)]
struct LinkReport {
    observers: Observers,
    is_up: Option<bool>,
    outage: Option<Arc<LinkOutage>>,
}

/// An outage of the connection. The reporter's thread shares it and logs it once it has lasted long enough.
#[derive(Debug)]
struct LinkOutage {
    since: Instant,
    logged: Mutex<Logged>,
}

/// The part of an outage that was logged.
#[derive(Debug)]
enum Logged {
    /// Nothing yet. These are the fields of its line.
    NotYet { node: String, why: String },
    /// Its beginning.
    Begun,
    /// The outage has ended, or the connection is no longer wanted.
    Over,
}

impl LinkReport {
    fn change(&mut self, is_up: Option<bool>) {
        let was_up = std::mem::replace(&mut self.is_up, is_up);
        if was_up != is_up {
            self.observers.link(was_up, is_up);
        }
    }
}

impl StoreEvents for Observers {
    fn watch_link(&self) -> Box<dyn LinkWatch> {
        Box::new(LinkReport { observers: self.clone(), is_up: None, outage: None })
    }

    fn denied(&self, error: String) {
        self.connection(Connection::Denied { error });
    }

    fn may_evict(&self, policy: String) {
        self.connection(Connection::MayEvict { policy });
    }

    fn quorum_waits(&self, wait: Duration) {
        log::quorum_waits(wait);
    }
}

impl LinkWatch for LinkReport {
    fn up(&mut self, node: &str) {
        if let Some(outage) = self.outage.take()
            && outage.ends()
        {
            let (node, lasted) = (node.to_owned(), outage.since.elapsed());
            log::report(move || log::link_up(&node, lasted));
        }
        self.change(Some(true));
    }

    fn down(&mut self, node: &str, why: &dyn Display) {
        match &self.outage {
            Some(outage) => outage.continues(node, why),
            None if log::is_logged(Level::WARN) => self.outage = Some(LinkOutage::begin(node, why)),
            None => {}
        }
        self.change(Some(false));
    }
}

impl Drop for LinkReport {
    fn drop(&mut self) {
        if let Some(outage) = &self.outage {
            outage.ends();
        }
        self.change(None);
    }
}

impl LinkOutage {
    fn begin(node: &str, why: &dyn Display) -> Arc<Self> {
        let logged = Logged::NotYet { node: node.to_owned(), why: why.to_string() };
        let outage = Arc::new(Self { since: Instant::now(), logged: Mutex::new(logged) });
        let lasting = outage.clone();
        log::report_after(WORTH_A_LINE, move || {
            if let Some((node, why)) = lasting.begins() {
                log::link_down(&node, &why);
            }
        });
        outage
    }

    /// Notes that another attempt to connect has failed. Until the outage is logged, the latest reason replaces the former
    /// one.
    fn continues(&self, of: &str, because: &dyn Display) {
        if let Logged::NotYet { node, why } = &mut *self.logged() {
            *why = because.to_string();
            if !of.is_empty() {
                of.clone_into(node);
            }
        }
    }

    /// Returns the fields to log now, unless the outage is over.
    fn begins(&self) -> Option<(String, String)> {
        let mut logged = self.logged();
        match std::mem::replace(&mut *logged, Logged::Begun) {
            Logged::NotYet { node, why } => Some((node, why)),
            Logged::Begun => None,
            Logged::Over => {
                *logged = Logged::Over;
                None
            }
        }
    }

    /// Ends the outage, and returns whether its beginning was logged.
    fn ends(&self) -> bool {
        matches!(std::mem::replace(&mut *self.logged(), Logged::Over), Logged::Begun)
    }

    fn logged(&self) -> MutexGuard<'_, Logged> {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
