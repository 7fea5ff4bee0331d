//! Tracks whether a connection is up while it is wanted, and logs its outages.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

use distlock_core::store::{LinkWatch, StoreEvents};

use super::{Connection, Observers, log, reporter};

/// Shorter outages are not logged, because a connection that was closed is usually back by then.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// The state of one connection as it was last reported. Dropped, the connection is not wanted any more.
#[derive(Debug)]
pub(super) struct LinkReport {
    observers: Observers,
    is_up: Option<bool>,
    outage: Option<Arc<Outage>>,
}

/// An outage of the connection. The reporter's thread shares it and logs it once it has lasted long enough.
#[derive(Debug)]
struct Outage {
    since: Instant,
    told: Mutex<Told>,
}

#[derive(Debug)]
enum Told {
    /// The outage is not logged yet. These are the fields of its line.
    NotYet {
        node: String,
        why: String,
    },
    Begun,
    /// The outage has ended, or the connection is no longer wanted.
    Over,
}

impl LinkReport {
    /// Nothing is known of it yet.
    fn new(observers: Observers) -> Self {
        Self { observers, is_up: None, outage: None }
    }

    fn change(&mut self, is_up: Option<bool>) {
        let was_up = std::mem::replace(&mut self.is_up, is_up);
        if was_up != is_up {
            self.observers.link(was_up, is_up);
        }
    }
}

impl StoreEvents for Observers {
    fn watch_link(&self) -> Box<dyn LinkWatch> {
        Box::new(LinkReport::new(self.clone()))
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
            reporter::report(move || log::link_up(&node, lasted));
        }
        self.change(Some(true));
    }

    fn down(&mut self, node: &str, why: &dyn Display) {
        match &self.outage {
            Some(outage) => outage.goes_on(node, why),
            None if reporter::is_logged(Level::WARN) => {
                self.outage = Some(Outage::begin(node, why))
            }
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

impl Outage {
    fn begin(node: &str, why: &dyn Display) -> Arc<Self> {
        let told = Told::NotYet { node: node.to_owned(), why: why.to_string() };
        let outage = Arc::new(Self { since: Instant::now(), told: Mutex::new(told) });
        let lasting = outage.clone();
        reporter::report_after(WORTH_A_LINE, move || {
            if let Some((node, why)) = lasting.begins() {
                log::link_down(&node, &why);
            }
        });
        outage
    }

    /// Another attempt to connect has failed. Until the outage is logged, the latest reason replaces the former
    /// one.
    fn goes_on(&self, of: &str, because: &dyn Display) {
        if let Told::NotYet { node, why } = &mut *self.told() {
            *why = because.to_string();
            if !of.is_empty() {
                of.clone_into(node);
            }
        }
    }

    /// Returns the fields to log now, unless the outage is over.
    fn begins(&self) -> Option<(String, String)> {
        let mut told = self.told();
        match std::mem::replace(&mut *told, Told::Begun) {
            Told::NotYet { node, why } => Some((node, why)),
            Told::Begun => None,
            Told::Over => {
                *told = Told::Over;
                None
            }
        }
    }

    /// Whether the beginning of the outage was logged.
    fn ends(&self) -> bool {
        matches!(std::mem::replace(&mut *self.told(), Told::Over), Told::Begun)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
