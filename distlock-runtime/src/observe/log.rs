//! The log: events of `tracing`. Their names and fields are a contract: dashboards and alerts depend on
//! them, and the guide lists them. Keys never appear.
//!
//! As an [`Observer`] it writes what is lost or fails in the background; what happens at the very end of
//! a call is written there and then, in the caller's spans.

use std::fmt;
#[cfg(any(
    feature = "redis",
    feature = "postgres",
    feature = "etcd",
    feature = "zookeeper",
    test
))]
use std::time::Duration;

use super::{Connection, Lost, Observer, ReleasedLate};
use crate::error::LockError;
use crate::name::LockName;
use crate::shield::shield;

/// An event about a lock.
macro_rules! about {
    ($level:ident, $label:expr, $event:literal, $($fields:tt)*) => {{
        let (name, template) = $label;
        tracing::$level!(
            target: "distlock",
            { lock.name = name, lock.template = template, $($fields)* },
            $event
        );
    }};
}

/// Writes events, on the thread that reports them.
pub(super) struct Log;

impl Observer for Log {
    fn lost(&self, lock: &LockName, event: &Lost) {
        let Lost { fencing_token, reason, .. } = event;
        about!(warn, label(lock), "lost", fencing_token, reason = %reason);
    }

    fn released_late(&self, lock: &LockName, event: &ReleasedLate) {
        let error = &event.error;
        match event.given_up {
            false => about!(warn, label(lock), "released_late", error = %error),
            true => about!(warn, label(lock), "release_given_up", error = %error),
        }
    }

    fn connection(&self, event: &Connection) {
        match event {
            Connection::Denied { error } => tracing::warn!(
                target: "distlock",
                error = %error,
                "wake_ups_denied: waiters poll up to once a second instead of being notified; allow HELLO, SUBSCRIBE, PUBLISH and PUBSUB|NUMSUB, and the channels `<prefix>:wake:*`"
            ),
            Connection::MayEvict { policy } => tracing::warn!(
                target: "distlock",
                policy,
                "may_evict: the server may throw away locks that are held; set `maxmemory-policy noeviction`"
            ),
            Connection::Connected | Connection::Disconnected => {}
        }
    }
}

/// A connection has been down for a second. `node` may be empty if no node was found.
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd", feature = "zookeeper", test))]
pub(super) fn link_down(node: &str, error: &str) {
    tracing::warn!(target: "distlock", node, error, "link_down");
}

/// The connection is back, after this time.
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd", feature = "zookeeper", test))]
pub(super) fn link_up(node: &str, after: Duration) {
    let seconds = after.as_secs_f64();
    tracing::info!(target: "distlock", node, seconds, "link_up");
}

/// A renewal failed; it is tried again while the lease lasts.
pub(super) fn renew_failed(lock: &LockName, error: &impl fmt::Display) {
    about!(debug, label(lock), "renew_failed", error = %error);
}

/// A locked function skipped its body for another reason than that the lock is held elsewhere, and
/// its return type has no place for an error.
pub(crate) fn not_returned(error: &LockError) {
    let named = error.lock().map_or(("", None), label);
    write_here(|| about!(error, named, "not_returned", error = %error));
}

/// A locked function did not run because the lock is held elsewhere, and returned as if it had nothing to do.
pub(crate) fn skipped(error: &LockError) {
    let named = error.lock().map_or(("", None), label);
    write_here(|| about!(debug, named, "skipped",));
}

/// The servers of a quorum do not count before this time has passed: no process has watched them for as long as
/// `restart_guard`.
#[cfg(feature = "redis")]
pub(crate) fn quorum_waits(wait: Duration) {
    let seconds = wait.as_secs() + 1;
    write_here(|| tracing::warn!(target: "distlock", seconds, "quorum_waits"));
}

/// A leader's body has ended with an error, or a campaign cannot succeed.
pub(crate) fn term_failed(name: &impl std::fmt::Display, error: &str) {
    write_here(|| tracing::error!(target: "distlock", { lock.name = %name, error }, "term_failed"));
}

/// A request was answered with an error of its lock. What a client can do something about is not
/// worth an operator's time. `count` is how many since the last such event.
#[cfg(any(feature = "axum", feature = "actix"))]
pub(crate) fn answered(error: &LockError, name: &str, status: u16, count: u64) {
    let named = (name, error.lock().and_then(LockName::template));
    write_here(|| match error {
        LockError::Busy { .. } | LockError::InvalidKey { .. } => {
            about!(debug, named, "answered", status, error = %error);
        }
        _ => {
            about!(error, named, "answered", status, count, error = %error);
        }
    });
}

/// A request was answered with 408: its body did not come, and its lock is free for others.
#[cfg(any(feature = "axum", feature = "actix"))]
pub(crate) fn body_too_late(name: &str) {
    write_here(
        || tracing::debug!(target: "distlock", { lock.name = name, status = 408 }, "answered"),
    );
}

/// A manager has locks of more names than there are labels for.
#[cfg(any(feature = "metrics", test))]
pub(super) fn too_many_names(limit: usize) {
    tracing::warn!(
        target: "distlock",
        limit,
        "too_many_names: further ones have the label `other` in metrics; give locks names that do not contain values"
    );
}

/// The log was too slow for so many events. Written here and now: by the reporter.
pub(super) fn events_dropped(count: u64) {
    tracing::warn!(target: "distlock", count, "events_dropped");
}

/// Writes an event on the caller's thread, in the caller's spans. A panic of the log ends here.
fn write_here(write: impl FnOnce()) {
    shield(write);
}

fn label(lock: &LockName) -> (&str, Option<&'static str>) {
    (lock.name(), lock.template())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Debug;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};

    use super::super::{Account, LostReason, Observers};
    use super::*;
    use crate::clock::Moment;
    use crate::key_encoding::KeyText;
    use crate::name::Label;
    use crate::namespace::Namespace;
    use crate::store::Fault;

    /// Level and fields of each event, by its name.
    type Events = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Events>>);

    #[derive(Default)]
    struct Fields {
        event: String,
        names: BTreeSet<String>,
    }

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            match field.name() {
                "message" => self.event = format!("{value:?}"),
                name => drop(self.names.insert(name.to_owned())),
            }
        }
    }

    impl tracing::Subscriber for Log {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            let name = fields.event.split(':').next().unwrap_or_default().to_owned();
            let mut events = self.0.lock().expect("no panic");
            let (levels, names) = events.entry(name).or_default();
            levels.insert(event.metadata().level().as_str().to_lowercase());
            names.extend(fields.names);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// What the guide says.
    fn table() -> Events {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/observability.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let (_, section) = page.split_once("# Events").expect("the section");
        let section = section.split("\n# ").next().unwrap_or_default();
        let mut table = Events::new();
        for line in section.lines() {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let [_, event, levels, fields, _, _] = cells[..] else { continue };
            let Some(event) = event.strip_prefix('`').and_then(|event| event.strip_suffix('`'))
            else {
                continue;
            };
            let words = levels.split(|c: char| !c.is_alphabetic());
            let levels = words.filter(|word| ["error", "warn", "info", "debug"].contains(word));
            let fields = fields.split('`').filter(|field| field.chars().any(char::is_alphabetic));
            let said = (levels.map(str::to_owned).collect(), fields.map(str::to_owned).collect());
            assert!(table.insert(event.to_owned(), said).is_none(), "{event} has two rows");
        }
        table
    }

    #[test]
    fn r1_every_event_and_its_fields_are_in_the_guide() {
        let lock = Namespace::new("distlock").expect("a prefix");
        let key = KeyText::new(&[]).key("k", format_args!("k"));
        let lock = lock.name(Label::Given("name".into()), key).expect("a key");
        let fault = Fault::timed_out();
        let error = || fault.clone().into_error(Some(&lock));
        let log = Log::default();
        let expected = table();
        #[cfg(not(any(feature = "axum", feature = "actix")))]
        let expected: Events =
            expected.into_iter().filter(|(event, _)| event != "answered").collect();
        // With one subscriber known, an event that another test writes for the first time meanwhile, on a
        // thread without any, counts as one that no subscriber wants.
        let _second = tracing::Dispatch::new(log.clone());
        tracing::subscriber::with_default(log.clone(), || {
            let observers = Observers::default();
            let now = Moment::from_nanos(1);
            observers.lost(&lock, &Account::new(now), (LostReason::Expired, 1), now);
            observers.renew_failed(&lock, fault.clone());
            observers.connection(Connection::Denied { error: "NOPERM".to_owned() });
            observers.connection(Connection::MayEvict { policy: "allkeys-lru".to_owned() });
            observers.released_late(&lock, error(), false);
            observers.released_late(&lock, error(), true);
            link_down("host:6379", "no answer");
            link_up("host:6379", Duration::from_secs(2));
            events_dropped(1);
            too_many_names(1);
            not_returned(&error());
            skipped(&error());
            term_failed(&"name", "the body has failed");
            #[cfg(feature = "redis")]
            quorum_waits(Duration::from_secs(3));
            #[cfg(any(feature = "axum", feature = "actix"))]
            {
                answered(&error(), "name", 503, 1);
                let (lock, lease_remaining) = (Box::new((*lock).clone()), None);
                answered(&LockError::Busy { lock, lease_remaining }, "name", 423, 1);
                body_too_late("name");
            }
            let seen = || log.0.lock().expect("no panic").clone();
            for _ in 0..3000 {
                if seen().len() >= expected.len() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(seen(), expected);
        });
    }
}
