//! The sentinels that are followed. Each is followed once, at whatever address it was found, because a sentinel has
//! only one vote.

use crate::addr::Addr;
use crate::sentinel::primary::PrimaryVotes;

/// The sentinels that are followed, and their votes.
pub(crate) struct KnownSentinels {
    pub(crate) votes: PrimaryVotes,
    /// The sentinels that are followed, and their own names once they have told them.
    followed: Vec<(Addr, Option<String>)>,
    /// Other addresses of sentinels that are followed: a URL names hosts, and sentinels name each other by IP address.
    aliases: Vec<Addr>,
}

impl KnownSentinels {
    pub(crate) fn new(votes: PrimaryVotes) -> Self {
        Self { votes, followed: Vec::new(), aliases: Vec::new() }
    }

    /// Whether the sentinel at this address must be followed from now on.
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

    /// Stops following a sentinel.
    pub(crate) fn leave(&mut self, addr: &Addr, name: &str) {
        self.followed.retain(|(other, _)| other != addr);
        self.votes.forget(name);
        self.votes.known(self.followed.len());
    }

    /// Forgets all other addresses, because some address may not be reachable any more. Then a sentinel may be followed
    /// at another one.
    pub(crate) fn forget_aliases(&mut self) {
        self.aliases.clear();
    }

    /// Notes the name of the sentinel at this address. Returns `false` if it is followed at another address already.
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

/// A sentinel at one address.
pub(crate) struct FollowedSentinel {
    pub(crate) addr: Addr,
    /// The sentinel's own name, or else its address.
    pub(crate) name: String,
    /// Whether the URL names the sentinel.
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
