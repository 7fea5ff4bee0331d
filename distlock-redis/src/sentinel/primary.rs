//! The primary, by the votes of the sentinels.
//!
//! A failover has a number, the *epoch* of the new configuration. A sentinel that names a server with a higher epoch
//! has news, whatever the others say. A sentinel with a lower epoch was asleep. If sentinels do not tell their epochs,
//! which needs a permission of its own, or count from the beginning again, the majority decides.

use std::collections::HashMap;

use distlock_core::store::{BackendKind, Fault};

use crate::addr::Addr;

/// The reply of a sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentinelReply {
    /// This server is the primary since the failover with this number; 0 if it is unknown.
    Names(Addr, u64),
    /// The sentinel knows no primary of that name.
    Unknown,
}

/// The outcome of the votes.
#[derive(Debug, Clone)]
pub(crate) enum PrimaryVerdict {
    /// Not all sentinels were heard, and those that were are too few.
    Open,
    /// This server is the primary. The number counts the changes.
    Primary(Addr, u64),
    /// There is no primary.
    NoPrimary(Fault),
}

impl PrimaryVerdict {
    /// Whether the other outcome is the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Open, Self::Open) => true,
            (Self::Primary(_, number), Self::Primary(_, other)) => number == other,
            (Self::NoPrimary(fault), Self::NoPrimary(other)) => fault == other,
            _ => false,
        }
    }
}

/// The votes of all sentinels.
pub(crate) struct PrimaryVotes {
    /// The name of the primary, as users say it.
    name: String,
    /// The last replies, by the sentinel's own name; `Err` with the reason if it does not reply.
    heard: HashMap<String, Result<SentinelReply, Fault>>,
    /// The number of sentinels, as far as it is known.
    known: usize,
    primary: Option<(Addr, u64)>,
    changes: u64,
}

impl PrimaryVotes {
    pub(crate) fn new(name: String, known: usize) -> Self {
        Self { name, heard: HashMap::new(), known, primary: None, changes: 0 }
    }

    /// Notes how many sentinels are known.
    pub(crate) fn known(&mut self, known: usize) {
        self.known = known;
    }

    /// Notes a reply of a sentinel, or that it does not reply. Returns the outcome.
    pub(crate) fn hear(
        &mut self,
        sentinel: &str,
        word: Result<SentinelReply, Fault>,
    ) -> PrimaryVerdict {
        self.heard.insert(sentinel.to_owned(), word);
        self.weigh()
    }

    /// Removes the vote of a sentinel that has another name, or is not asked any more.
    pub(crate) fn forget(&mut self, sentinel: &str) {
        self.heard.remove(sentinel);
    }

    /// Whether some sentinel replies.
    pub(crate) fn is_answered(&self) -> bool {
        self.heard.values().any(Result::is_ok)
    }

    fn weigh(&mut self) -> PrimaryVerdict {
        if let Some((addr, epoch)) = self.named() {
            let is_new = self.primary.as_ref().is_none_or(|(present, _)| *present != addr);
            self.changes += u64::from(is_new);
            self.primary = Some((addr, epoch));
        }
        match &self.primary {
            Some((addr, _)) => PrimaryVerdict::Primary(addr.clone(), self.changes),
            None => self.no_primary(),
        }
    }

    /// Returns the primary, if it is certain.
    fn named(&self) -> Option<(Addr, u64)> {
        let words = self.heard.values().filter_map(|word| word.as_ref().ok());
        let answering = words.clone().count();
        let mut named = HashMap::<&Addr, (u64, usize)>::new();
        for word in words {
            if let SentinelReply::Names(addr, epoch) = word {
                let (highest, votes) = named.entry(addr).or_default();
                *highest = (*highest).max(*epoch);
                *votes += 1;
            }
        }
        let stays = |addr: &Addr| self.primary.as_ref().is_some_and(|(present, _)| present == addr);
        // If several have the same number of votes, a new one wins.
        let rank = |(addr, (epoch, votes)): &(&Addr, (u64, usize))| (*epoch, *votes, !stays(addr));
        let (addr, (epoch, votes)) = named.into_iter().max_by_key(rank)?;
        let all_heard = self.heard.len() >= self.known;
        let is_certain = match &self.primary {
            None => all_heard || votes * 2 > self.known,
            Some((_, present)) if epoch > *present => true,
            Some((_, present)) if epoch == *present => votes * 2 > answering,
            // They count from the beginning again, or this one was asleep. A few votes are not enough.
            Some(_) => votes * 2 > self.known,
        };
        is_certain.then(|| (addr.clone(), epoch))
    }

    fn no_primary(&self) -> PrimaryVerdict {
        let unknown =
            self.heard.values().filter(|word| matches!(word, Ok(SentinelReply::Unknown))).count();
        if self.heard.len() < self.known && unknown * 2 <= self.known {
            return PrimaryVerdict::Open;
        }
        if unknown > 0 {
            let text = format!(
                "no sentinel knows a primary named `{}`: name the one of `sentinel monitor` in the URL, \
                 redis-sentinel://host,host/name (`SENTINEL MASTERS` lists them)",
                self.name
            );
            return PrimaryVerdict::NoPrimary(Fault::lasting(BackendKind::Other, text));
        }
        // A lasting fault says more than one that a server cannot be reached.
        let faults = self.heard.values().filter_map(|word| word.as_ref().err());
        let fault = faults.min_by_key(|fault| fault.passing);
        let silent = || Fault::passing(BackendKind::Unreachable, "no sentinel answers");
        PrimaryVerdict::NoPrimary(fault.cloned().unwrap_or_else(silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> Addr {
        Addr { host: "10.0.0.1".into(), port }
    }

    fn names(port: u16, epoch: u64) -> Result<SentinelReply, Fault> {
        Ok(SentinelReply::Names(addr(port), epoch))
    }

    fn silent() -> Result<SentinelReply, Fault> {
        Err(Fault::timed_out())
    }

    /// Returns the outcome after the last of these replies: the port, and how often it has changed.
    fn verdict(words: &[(&str, Result<SentinelReply, Fault>)]) -> Option<(u16, u64)> {
        let mut votes = PrimaryVotes::new("shop".to_owned(), 3);
        let mut last = PrimaryVerdict::Open;
        for (sentinel, word) in words {
            last = votes.hear(sentinel, word.clone());
        }
        match last {
            PrimaryVerdict::Primary(addr, changes) => Some((addr.port, changes)),
            PrimaryVerdict::Open | PrimaryVerdict::NoPrimary(_) => None,
        }
    }

    #[test]
    fn the_first_primary_is_named_by_a_majority_or_by_all_that_answer() {
        assert_eq!(verdict(&[("a", names(1, 4))]), None);
        assert_eq!(verdict(&[("a", names(1, 4)), ("b", names(1, 4))]), Some((1, 1)));
        assert_eq!(verdict(&[("a", names(1, 4)), ("b", silent())]), None);
        assert_eq!(verdict(&[("a", names(1, 4)), ("b", silent()), ("c", silent())]), Some((1, 1)));
        assert_eq!(
            verdict(&[("a", Ok(SentinelReply::Unknown)), ("b", silent()), ("c", names(1, 0))]),
            Some((1, 1))
        );
    }

    #[test]
    fn the_first_sentinel_that_tells_of_a_fail_over_is_believed() {
        let all = [("a", names(1, 4)), ("b", names(1, 4)), ("c", names(1, 4))];
        let then = |more: &[(&'static str, Result<SentinelReply, Fault>)]| {
            verdict(&[&all[..], more].concat())
        };
        assert_eq!(then(&[("a", names(2, 5))]), Some((2, 2)));
        // The others learn of it a moment later.
        assert_eq!(then(&[("a", names(2, 5)), ("b", names(1, 4))]), Some((2, 2)));
        // One that was asleep, alone with its old reply.
        let asleep = [("a", names(2, 5)), ("b", names(2, 5)), ("a", silent()), ("b", silent())];
        assert_eq!(then(&[&asleep[..], &[("c", names(1, 4))]].concat()), Some((2, 2)));
        // No sentinel replies: the last primary stays.
        assert_eq!(then(&[("a", silent()), ("b", silent()), ("c", silent())]), Some((1, 1)));
    }

    #[test]
    fn where_sentinels_tell_no_epoch_or_began_anew_the_majority_counts() {
        let all = [("a", names(1, 0)), ("b", names(1, 0)), ("c", names(1, 0))];
        let then = |more: &[(&'static str, Result<SentinelReply, Fault>)]| {
            verdict(&[&all[..], more].concat())
        };
        assert_eq!(then(&[("a", names(2, 0))]), Some((1, 1)));
        assert_eq!(then(&[("a", names(2, 0)), ("b", names(2, 0))]), Some((2, 2)));
        assert_eq!(then(&[("c", silent()), ("a", names(2, 0))]), Some((1, 1)));
        let anew = [("a", names(1, 7)), ("b", names(1, 7)), ("a", names(2, 0)), ("b", names(2, 0))];
        assert_eq!(verdict(&anew[..3]), Some((1, 1)));
        assert_eq!(verdict(&anew), Some((2, 2)));
    }

    #[test]
    fn a_name_that_no_sentinel_knows_is_an_error_once_all_were_heard() {
        let mut votes = PrimaryVotes::new("shpo".to_owned(), 2);
        assert!(matches!(votes.hear("a", Ok(SentinelReply::Unknown)), PrimaryVerdict::Open));
        let PrimaryVerdict::NoPrimary(fault) = votes.hear("b", silent()) else {
            panic!("a verdict")
        };
        assert!(!fault.passing && fault.to_string().contains("`shpo`"), "{fault}");
    }
}
