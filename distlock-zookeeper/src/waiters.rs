//! The waiters and holders of this process: the commands that were sent for each token, and the end of its lease.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use distlock_core::clock::{Clock, Moment};
use distlock_core::select::either;
use distlock_core::store::{Fault, Owner};
use tokio::sync::Notify;

use crate::nodes;
use crate::session::ManagedSession;

/// The number of every session to an owner. A new session ends all commands of the earlier one, so to an owner they are
/// one connection.
const SESSION: u64 = 1;

/// Notes that a command is about to be sent that may give the lock to an owner. Returns the moment from which the lease
/// counts. Fails if the release has begun, because nothing that could create the lock is sent after it. // R7
pub(crate) fn sending(owner: &Owner, ttl: Duration) -> Result<Moment, Fault> {
    let sent = Clock::Boottime.now();
    if !owner.may_send(sent, ttl, SESSION) {
        return Err(Fault::given_up());
    }
    owner.leaves_a_trace();
    Ok(sent)
}

/// Notes that the command of [`sending`] was answered.
pub(crate) fn answered(owner: &Owner) {
    owner.answered(SESSION);
}

/// A token of this process that waits for a lock or holds it.
pub(crate) struct LocalToken {
    pub(crate) owner: Arc<Owner>,
    /// The node of the lock.
    pub(crate) directory: String,
    /// The token's node while it holds the lock.
    pub(crate) holder: String,
    /// The token's node while it waits, up to the number.
    pub(crate) waiter: String,
    sent: Mutex<TokenProgress>,
}

/// The commands that were sent for a token. The mutex is locked while another command is sent, so that none is
/// sent after the release.
#[derive(Default)]
pub(crate) struct TokenProgress {
    /// The release has begun.
    pub(crate) gone: bool,
    /// The session of the holder's node, once a command was sent over it.
    pub(crate) session: Option<Arc<ManagedSession>>,
    /// More than a try was asked for. A try that fails then must not remove the token's nodes.
    pub(crate) stays: bool,
    /// The token may have a node in the queue.
    pub(crate) may_wait: bool,
    /// The number of the token's node in the queue, if it is known.
    pub(crate) number: Option<i32>,
    /// The number of commands so far that create a node in the queue.
    pub(crate) queued: u64,
    /// Others wait after this token.
    pub(crate) contended: bool,
    /// The nodes that have a watch for this token.
    pub(crate) watched: HashSet<String>,
    /// The end of the lease, when the lock is released unless it is renewed.
    until: Option<Instant>,
}

impl TokenProgress {
    /// Notes that the token has no node in the queue.
    pub(crate) fn left_queue(&mut self) {
        (self.may_wait, self.number) = (false, None);
    }

    /// Notes that the first `queued` commands left no node in the queue. A later command may have created one.
    pub(crate) fn not_queued_by(&mut self, queued: u64) {
        if self.queued == queued {
            self.left_queue();
        }
    }
}

impl LocalToken {
    /// Returns a token for which nothing was sent yet.
    fn new(owner: &Arc<Owner>, directory: String) -> Self {
        let (token, limit) = (&owner.token, owner.limit);
        let holder = nodes::holder(&directory, token, limit.is_alone());
        let waiter = nodes::waiter(&directory, token, limit.is_read());
        Self { owner: owner.clone(), directory, holder, waiter, sent: Mutex::default() }
    }

    /// Locks the commands that were sent.
    pub(crate) fn sent(&self) -> MutexGuard<'_, TokenProgress> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the release has begun.
    pub(crate) fn is_gone(&self) -> bool {
        self.sent().gone
    }

    /// Returns whether the token holds the lock exclusively.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.owner.limit.is_alone()
    }

    /// Returns the token's node in the queue.
    pub(crate) fn waiter_node(&self, number: i32) -> String {
        format!("{}{}", self.waiter, nodes::number(number))
    }
}

/// All tokens of this process that may have nodes.
#[derive(Default)]
pub(crate) struct LocalTokens {
    index: Mutex<TokenIndex>,
    /// Notified when a lease may end before the first one so far.
    sooner: Notify,
}

/// The tokens by text and by the ends of their leases.
#[derive(Default)]
struct TokenIndex {
    by_token: HashMap<String, Arc<LocalToken>>,
    ends: BTreeSet<(Instant, String)>,
}

impl LocalTokens {
    fn index(&self) -> MutexGuard<'_, TokenIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a token of this process.
    pub(crate) fn get(&self, token: &str) -> Option<Arc<LocalToken>> {
        self.index().by_token.get(token).cloned()
    }

    /// Returns the token of an owner that a command is about to be sent for. `stays` says that the command is more than
    /// a try.
    pub(crate) fn get_or_insert(
        &self,
        owner: &Arc<Owner>,
        stays: bool,
        directory: String,
    ) -> Arc<LocalToken> {
        let mut index = self.index();
        let new = || Arc::new(LocalToken::new(owner, directory));
        let token = index.by_token.entry(owner.token.clone()).or_insert_with(new);
        token.sent().stays |= stays;
        token.clone()
    }

    /// Forgets a token whose try has failed and left no node. If another command has come for the same token in
    /// the meantime, the token stays: with a second entry it would get a second node in the queue.
    pub(crate) fn forget_try(&self, token: &LocalToken) {
        let mut index = self.index();
        if !token.sent().stays {
            index.by_token.remove(&token.owner.token);
        }
    }

    /// Forgets a token that has no nodes any more.
    pub(crate) fn forget(&self, token: &LocalToken) {
        let mut index = self.index();
        index.by_token.remove(&token.owner.token);
        if let Some(until) = token.sent().until.take() {
            index.ends.remove(&(until, token.owner.token.clone()));
        }
    }

    /// Extends the lease to at least `until`. Returns false if the release has begun.
    pub(crate) fn extend(&self, token: &LocalToken, until: Instant) -> bool {
        let mut index = self.index();
        let mut sent = token.sent();
        if sent.gone || sent.until.is_some_and(|before| before >= until) {
            return !sent.gone;
        }
        index.set_end(&mut sent, token, until);
        drop((sent, index));
        self.sooner.notify_one();
        true
    }

    /// Sets the end of the last lease, which is not extended again.
    pub(crate) fn set_last_end(&self, token: &LocalToken, until: Instant) {
        self.index().set_end(&mut token.sent(), token, until);
        self.sooner.notify_one();
    }

    /// Begins the release. The caller may stop waiting for it while the session continues. The nodes that are left
    /// at `then`, or at the end of the lease, are therefore removed in the background.
    pub(crate) fn begin_release(&self, token: &LocalToken, then: Instant) {
        let mut index = self.index();
        let mut sent = token.sent();
        sent.gone = true;
        if sent.until.is_none() {
            index.set_end(&mut sent, token, then);
            drop((sent, index));
            self.sooner.notify_one();
        }
    }

    /// Waits for the next lease to end, and returns its token.
    pub(crate) async fn next_expired(&self) -> Arc<LocalToken> {
        loop {
            let first = self.index().ends.first().map(|(until, _)| *until);
            let Some(first) = first else {
                self.sooner.notified().await;
                continue;
            };
            if first > Instant::now() {
                // Leases that begin in the meantime mostly end later.
                let sleep = tokio::time::sleep_until(first.into());
                let _ = either(sleep, self.sooner.notified()).await;
                continue;
            }
            if let Some(token) = self.index().take_expired(Instant::now()) {
                return token;
            }
        }
    }
}

impl TokenIndex {
    /// Sets the end of a lease.
    fn set_end(&mut self, sent: &mut TokenProgress, token: &LocalToken, until: Instant) {
        if let Some(before) = sent.until.replace(until) {
            self.ends.remove(&(before, token.owner.token.clone()));
        }
        self.ends.insert((until, token.owner.token.clone()));
    }

    /// Returns a token whose lease has ended, with its release begun.
    fn take_expired(&mut self, now: Instant) -> Option<Arc<LocalToken>> {
        let (until, token) = self.ends.pop_first()?;
        if until > now {
            self.ends.insert((until, token));
            return None;
        }
        let token = self.by_token.get(&token)?.clone();
        let mut sent = token.sent();
        sent.until = None;
        sent.gone = true;
        drop(sent);
        Some(token)
    }
}
