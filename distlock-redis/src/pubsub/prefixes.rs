//! Prefixes that requests have named besides the manager's. Each has a wake-up channel of its own, which is subscribed
//! as long as a lock under the prefix may be held or waited for. A prefix may be a tenant, so there are very many over
//! time and few at once (R13).

use std::collections::HashMap;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::collections::shrink;

/// How long a prefix is kept at least after its last use. A waiter polls every few seconds, which is a use.
const KEPT: Duration = Duration::from_secs(60);

/// Returns until when an entry is kept that is used now, for a lock with this ttl.
pub(crate) fn kept_until(now: Moment, ttl: Duration) -> Moment {
    now.after(ttl.max(KEPT))
}

/// The prefixes in use.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    known: HashMap<String, Prefix>,
}

/// The state of one prefix.
#[derive(Debug)]
struct Prefix {
    /// Whether its channel is subscribed.
    subscribed: bool,
    kept_until: Moment,
}

impl Prefixes {
    /// Notes that a prefix is used until then. Returns whether its channel is subscribed; `None` if it was unknown.
    pub(crate) fn used(&mut self, prefix: &str, until: Moment) -> Option<bool> {
        if let Some(known) = self.known.get_mut(prefix) {
            known.kept_until = known.kept_until.max(until);
            return Some(known.subscribed);
        }
        self.known.insert(prefix.to_owned(), Prefix { subscribed: false, kept_until: until });
        None
    }

    /// Whether the channel of a prefix is subscribed.
    pub(crate) fn is_subscribed(&self, prefix: &str) -> bool {
        self.known.get(prefix).is_some_and(|known| known.subscribed)
    }

    /// Returns at most `most` prefixes whose channels must be subscribed.
    pub(crate) fn unsubscribed(&self, most: usize) -> Vec<String> {
        let unsubscribed = self.known.iter().filter(|(_, prefix)| !prefix.subscribed);
        unsubscribed.take(most).map(|(name, _)| name.clone()).collect()
    }

    /// Notes that the channels of these prefixes were subscribed.
    pub(crate) fn mark_subscribed(&mut self, names: &[String]) {
        for name in names {
            if let Some(prefix) = self.known.get_mut(name) {
                prefix.subscribed = true;
            }
        }
    }

    /// Notes that no channel is subscribed any more. Returns the prefixes whose channels were.
    pub(crate) fn on_disconnect(&mut self) -> Vec<String> {
        let were = self.known.iter_mut().filter_map(|(name, prefix)| {
            std::mem::take(&mut prefix.subscribed).then(|| name.clone())
        });
        were.collect()
    }

    /// Removes a prefix that is no longer used here. Returns whether it was known.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.known.remove(name).is_some()
    }

    pub(crate) fn remove_all(&mut self) {
        self.known.clear();
    }

    /// Forgets the prefixes that were not used for long. Returns those whose channels must be unsubscribed.
    pub(crate) fn forget(&mut self, now: Moment) -> Vec<String> {
        let idle = self.known.extract_if(|_, prefix| prefix.kept_until < now);
        let left = idle.filter(|(_, prefix)| prefix.subscribed).map(|(name, _)| name).collect();
        shrink(&mut self.known);
        left
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: F11.
    #[test]
    fn a_prefix_is_forgotten_a_minute_after_its_last_use() {
        let mut prefixes = Prefixes::default();
        let start = Moment::from_nanos(0);
        let (short, long) = (Duration::from_millis(10), KEPT * 3);
        assert_eq!(prefixes.used("subscribed:", kept_until(start, short)), None);
        assert_eq!(prefixes.used("unsubscribed:", kept_until(start, short)), None);
        assert_eq!(prefixes.used("long:", kept_until(start, long)), None);
        prefixes.mark_subscribed(&["subscribed:".to_owned(), "long:".to_owned()]);
        assert_eq!(prefixes.unsubscribed(10), ["unsubscribed:"]);
        // A shorter use does not end a longer one.
        assert_eq!(prefixes.used("long:", kept_until(start, short)), Some(true));
        assert!(prefixes.forget(start.after(KEPT)).is_empty());
        assert_eq!(prefixes.forget(start.after(KEPT + short)), ["subscribed:"]);
        assert!(prefixes.unsubscribed(10).is_empty(), "it was forgotten as well");
        assert_eq!(prefixes.used("subscribed:", start), None, "it has to be subscribed again");
        assert_eq!(prefixes.forget(start.after(long + short)), ["long:"]);
        assert!(prefixes.is_empty());
    }

    /// Fault: F11.
    #[test]
    fn very_many_prefixes_leave_no_memory_behind() {
        let mut prefixes = Prefixes::default();
        for n in 0..20_000 {
            prefixes.used(&format!("tenant-{n}:"), Moment::from_nanos(n));
        }
        prefixes.forget(Moment::from_nanos(19_990));
        assert!(prefixes.known.len() == 10 && prefixes.known.capacity() < 100);
    }
}
