//! Prefixes that requests have named besides the manager's: each has a channel of its own, for as
//! long as somebody may have something to tell there. A prefix may be a tenant, of whom there are
//! very many in time and few at once.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::shrink::shrink;

/// For how long a prefix is remembered after its last use, at least. Whoever waits looks every few
/// seconds, which is a use.
const KEPT: Duration = Duration::from_secs(60);

/// How long after `now` something is remembered that is used for a lock of this ttl.
pub(super) fn kept_until(now: Moment, ttl: Duration) -> Moment {
    now.after(ttl.max(KEPT))
}

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    known: HashMap<String, Prefix>,
}

#[derive(Debug)]
struct Prefix {
    /// Its channel is subscribed.
    heard: bool,
    kept_until: Moment,
}

impl Prefixes {
    /// A prefix is used until then: whether its channel is subscribed, or `None` if it was not known.
    pub(super) fn used(&mut self, prefix: &str, until: Moment) -> Option<bool> {
        if let Some(known) = self.known.get_mut(prefix) {
            known.kept_until = known.kept_until.max(until);
            return Some(known.heard);
        }
        self.known.insert(prefix.to_owned(), Prefix { heard: false, kept_until: until });
        None
    }

    /// Some, at most so many, whose channels are to be subscribed.
    pub(super) fn unheard(&self, most: usize) -> Vec<String> {
        let unheard = self.known.iter().filter(|(_, prefix)| !prefix.heard);
        unheard.take(most).map(|(name, _)| name.clone()).collect()
    }

    /// The channels of these are subscribed.
    pub(super) fn hear(&mut self, names: &[String]) {
        for name in names {
            if let Some(prefix) = self.known.get_mut(name) {
                prefix.heard = true;
            }
        }
    }

    /// No channel is subscribed any more.
    pub(super) fn went_deaf(&mut self) {
        self.known.values_mut().for_each(|prefix| prefix.heard = false);
    }

    /// Forgets those that nobody has used for long; answers with those whose channels are to be left.
    pub(super) fn forget(&mut self, now: Moment) -> Vec<String> {
        let idle = self.known.extract_if(|_, prefix| prefix.kept_until < now);
        let left = idle.filter(|(_, prefix)| prefix.heard).map(|(name, _)| name).collect();
        shrink(&mut self.known);
        left
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_forgotten_a_minute_after_its_last_use() {
        let mut prefixes = Prefixes::default();
        let start = Moment::from_nanos(0);
        let (short, long) = (Duration::from_millis(10), KEPT * 3);
        assert_eq!(prefixes.used("heard:", kept_until(start, short)), None);
        assert_eq!(prefixes.used("unheard:", kept_until(start, short)), None);
        assert_eq!(prefixes.used("long:", kept_until(start, long)), None);
        prefixes.hear(&["heard:".to_owned(), "long:".to_owned()]);
        assert_eq!(prefixes.unheard(10), ["unheard:"]);
        // A shorter use does not end a longer one.
        assert_eq!(prefixes.used("long:", kept_until(start, short)), Some(true));
        assert!(prefixes.forget(start.after(KEPT)).is_empty());
        assert_eq!(prefixes.forget(start.after(KEPT + short)), ["heard:"]);
        assert!(prefixes.unheard(10).is_empty(), "it was forgotten as well");
        assert_eq!(prefixes.used("heard:", start), None, "it has to be subscribed again");
        assert_eq!(prefixes.forget(start.after(long + short)), ["long:"]);
        assert!(prefixes.is_empty());
    }

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
