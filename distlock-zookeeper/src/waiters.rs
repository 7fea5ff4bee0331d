//! What this process knows of its tokens: what was sent for each, and until when its lock is kept.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::nodes;
use crate::session::ManagedSession;

/// One token of this process.
pub(crate) struct LocalToken {
    /// The name of the lock.
    pub(crate) name: String,
    pub(crate) token: String,
    /// The node of the lock.
    pub(crate) directory: String,
    /// Its own, once it holds the lock.
    pub(crate) holder: String,
    /// Its own while it waits, up to the number.
    pub(crate) waiter: String,
    pub(crate) alone: bool,
    sent: Mutex<TokenProgress>,
}

/// What was sent for a token. It is locked while more is sent, so that nothing is sent behind its release.
#[derive(Default)]
pub(crate) struct TokenProgress {
    /// Its release was begun.
    pub(crate) gone: bool,
    /// The session that its lock belongs to, once one was asked for it.
    pub(crate) link: Option<Arc<ManagedSession>>,
    /// More than a try was asked for: what a try that fails would take back is that one's.
    pub(crate) stays: bool,
    /// It may have a node in the queue.
    pub(crate) may_wait: bool,
    /// Where it stands, if that is known.
    pub(crate) number: Option<i32>,
    /// How many nodes in the queue were asked for.
    pub(crate) asked_for: u64,
    /// Others wait behind it.
    pub(crate) behind: bool,
    /// The nodes that are watched for it already.
    pub(crate) watched: HashSet<String>,
    /// When the lock is given back if it is not renewed.
    until: Option<Instant>,
}

impl TokenProgress {
    /// It has no node in the queue.
    pub(crate) fn stands_nowhere(&mut self) {
        (self.may_wait, self.number) = (false, None);
    }

    /// None was made of those that were asked for until then: what was asked for later may be.
    pub(crate) fn stood_nowhere(&mut self, asked_for: u64) {
        if self.asked_for == asked_for {
            self.stands_nowhere();
        }
    }
}

impl LocalToken {
    pub(crate) fn new(
        directory: String,
        name: &str,
        token: &str,
        alone: bool,
        reads: bool,
    ) -> Self {
        let (holder, waiter) =
            (nodes::holder(&directory, token, alone), nodes::waiter(&directory, token, reads));
        let (name, token) = (name.to_owned(), token.to_owned());
        Self { name, token, directory, holder, waiter, alone, sent: Mutex::default() }
    }

    pub(crate) fn sent(&self) -> MutexGuard<'_, TokenProgress> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.sent().gone
    }

    /// Its node in the queue.
    pub(crate) fn waits_at(&self, number: i32) -> String {
        format!("{}{}", self.waiter, nodes::number(number))
    }
}

/// All tokens of this process that something may be stored of.
#[derive(Default)]
pub(crate) struct LocalTokens {
    places: Mutex<TokenIndex>,
    sooner: Notify,
}

#[derive(Default)]
struct TokenIndex {
    by_token: HashMap<String, Arc<LocalToken>>,
    ends: BTreeSet<(Instant, String)>,
}

impl LocalTokens {
    fn known(&self) -> MutexGuard<'_, TokenIndex> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, token: &str) -> Option<Arc<LocalToken>> {
        self.known().by_token.get(token).cloned()
    }

    /// The one of a token that is asked for; `stays` if that is more than a try.
    pub(crate) fn asked(
        &self,
        token: &str,
        stays: bool,
        make: impl FnOnce() -> LocalToken,
    ) -> Arc<LocalToken> {
        let mut known = self.known();
        let place = known.by_token.entry(token.to_owned()).or_insert_with(|| Arc::new(make()));
        place.sent().stays |= stays;
        place.clone()
    }

    /// A try has failed and left nothing. A question of the same token that has come meanwhile goes on with
    /// what is known here: with two places it would stand in the queue twice.
    pub(crate) fn forget_try(&self, place: &LocalToken) {
        let mut known = self.known();
        if !place.sent().stays {
            known.by_token.remove(&place.token);
        }
    }

    /// Nothing is stored of it any more.
    pub(crate) fn forget(&self, place: &LocalToken) {
        let mut known = self.known();
        known.by_token.remove(&place.token);
        if let Some(until) = place.sent().until.take() {
            known.ends.remove(&(until, place.token.clone()));
        }
    }

    /// The lock is kept until then at least; not if it was given back already.
    pub(crate) fn keep(&self, place: &LocalToken, until: Instant) -> bool {
        let mut known = self.known();
        let mut sent = place.sent();
        if sent.gone || sent.until.is_some_and(|before| before >= until) {
            return !sent.gone;
        }
        known.set(&mut sent, place, until);
        drop((sent, known));
        self.sooner.notify_one();
        true
    }

    /// The lock is kept until then and no longer, and it is its last use.
    pub(crate) fn keep_last(&self, place: &LocalToken, until: Instant) {
        self.known().set(&mut place.sent(), place, until);
        self.sooner.notify_one();
    }

    /// Its release is begun. Its sender may give up on it while its session goes on: so what is left of it is
    /// given back then, or when its lease is over.
    pub(crate) fn leave(&self, place: &LocalToken, then: Instant) {
        let mut known = self.known();
        let mut sent = place.sent();
        sent.gone = true;
        if sent.until.is_none() {
            known.set(&mut sent, place, then);
            drop((sent, known));
            self.sooner.notify_one();
        }
    }

    /// The next place whose time is over, when it is.
    pub(crate) async fn over(&self) -> Arc<LocalToken> {
        loop {
            let first = self.known().ends.first().map(|(until, _)| *until);
            let Some(first) = first else {
                self.sooner.notified().await;
                continue;
            };
            if first > Instant::now() {
                // Those that come in between are later, most of the time.
                let sleep = tokio::time::sleep_until(first.into());
                crate::session::either(sleep, self.sooner.notified()).await;
                continue;
            }
            if let Some(place) = self.known().take_over(Instant::now()) {
                return place;
            }
        }
    }
}

impl TokenIndex {
    fn set(&mut self, sent: &mut TokenProgress, place: &LocalToken, until: Instant) {
        if let Some(before) = sent.until.replace(until) {
            self.ends.remove(&(before, place.token.clone()));
        }
        self.ends.insert((until, place.token.clone()));
    }

    fn take_over(&mut self, now: Instant) -> Option<Arc<LocalToken>> {
        let (until, token) = self.ends.pop_first()?;
        if until > now {
            self.ends.insert((until, token));
            return None;
        }
        let place = self.by_token.get(&token)?.clone();
        let mut sent = place.sent();
        sent.until = None;
        sent.gone = true;
        drop(sent);
        Some(place)
    }
}
