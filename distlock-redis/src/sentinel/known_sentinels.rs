//! Which sentinels are followed, each of them once, wherever it is found: what one says twice is one vote.

use crate::addr::Addr;
use crate::sentinel::primary::PrimaryVotes;

/// What was heard, and from which sentinels.
pub(crate) struct KnownSentinels {
    pub(crate) votes: PrimaryVotes,
    /// The sentinels that are followed, and their own names once they have said them.
    followed: Vec<(Addr, Option<String>)>,
    /// Other places of sentinels that are followed: a URL names hosts, and sentinels name each other by address.
    aliases: Vec<Addr>,
}

impl KnownSentinels {
    pub(crate) fn new(votes: PrimaryVotes) -> Self {
        Self { votes, followed: Vec::new(), aliases: Vec::new() }
    }

    /// Whether the sentinel at this place is to be followed from now on.
    pub(crate) fn is_new(&mut self, addr: &Addr) -> bool {
        let known = self.followed.iter().any(|(other, _)| other == addr);
        let is_new = !known && !self.aliases.contains(addr);
        if is_new {
            self.followed.push((addr.clone(), None));
            self.votes.known(self.followed.len());
        }
        is_new
    }

    pub(crate) fn addrs(&self) -> Vec<Addr> {
        self.followed.iter().map(|(addr, _)| addr.clone()).collect()
    }

    /// Not followed any more.
    pub(crate) fn leave(&mut self, addr: &Addr, name: &str) {
        self.followed.retain(|(other, _)| other != addr);
        self.votes.forget(name);
        self.votes.known(self.followed.len());
    }

    /// Some place may not be reached any more: a sentinel may be followed at another of its own.
    pub(crate) fn forget_aliases(&mut self) {
        self.aliases.clear();
    }

    /// The sentinel at this place has this name; false if it is followed at another place already.
    pub(crate) fn is_named(&mut self, addr: &Addr, before: &str, name: &str) -> bool {
        let same = |other: &Option<String>| other.as_deref() == Some(name);
        if self.followed.iter().any(|(other, named)| other != addr && same(named)) {
            self.leave(addr, before);
            self.aliases.push(addr.clone());
            return false;
        }
        if before != name {
            self.votes.forget(before);
        }
        let own = self.followed.iter_mut().find(|(other, _)| other == addr);
        if let Some((_, named)) = own {
            *named = Some(name.to_owned());
        }
        true
    }
}

/// A sentinel at one place.
pub(crate) struct FollowedSentinel {
    pub(crate) addr: Addr,
    /// As it says itself, or else as its place.
    pub(crate) name: String,
    /// The URL names it.
    pub(crate) is_seed: bool,
}

#[cfg(test)]
mod tests {
    use super::KnownSentinels;
    use crate::addr::Addr;
    use crate::sentinel::primary::{PrimaryVerdict, PrimaryVotes, SentinelReply};

    fn addr(host: &str) -> Addr {
        Addr { host: host.into(), port: 26379 }
    }

    /// The URL has names, and sentinels name each other by address.
    #[test]
    fn a_sentinel_with_several_places_has_one_vote() {
        let mut heard = KnownSentinels::new(PrimaryVotes::new("shop".to_owned(), 3));
        for host in ["one", "two", "three", "10.0.0.2", "10.0.0.3"] {
            assert!(heard.is_new(&addr(host)));
            assert!(!heard.is_new(&addr(host)));
        }
        for (host, name, is_one_more) in
            [("one", "a", true), ("two", "b", true), ("10.0.0.2", "b", false)]
        {
            let before = format!("{host}:26379");
            assert_eq!(heard.is_named(&addr(host), &before, name), is_one_more);
        }
        assert!(!heard.is_new(&addr("10.0.0.2")), "it is known as one of `b`");
        assert!(heard.is_named(&addr("two"), "b", "b"), "on a new connection");
        let word = SentinelReply::Names(addr("primary"), 1);
        assert!(matches!(heard.votes.hear("a", Ok(word.clone())), PrimaryVerdict::Open));
        assert!(!heard.is_named(&addr("10.0.0.3"), "10.0.0.3:26379", "a"));
        let verdict = heard.votes.hear("b", Ok(word));
        assert!(matches!(verdict, PrimaryVerdict::Primary(..)), "two of three");
        heard.forget_aliases();
        assert!(heard.is_new(&addr("10.0.0.2")));
    }
}
