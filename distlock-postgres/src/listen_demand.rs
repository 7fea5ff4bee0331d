//! Decides when this process listens for messages.
//!
//! Every message costs the server time for each session that listens, so an idle process does not listen. A
//! process listens in three cases: while it waits for a lock; while it holds one for longer than a moment, so
//! that it receives messages of waiters and questions; and while it may be answered. Locks that are held only for a
//! moment are released before others would send a message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::store::Owner;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::pool::PostgresPool;

/// Listen for locks that are held for longer than this. It is shorter than the time after which a waiter sends
/// its first message to the holders.
const MOMENT: Duration = Duration::from_millis(20);
/// The interval at which the demand is checked. Listening stops after two checks without a demand, so a process
/// that returns again and again keeps listening.
const CHECK: Duration = Duration::from_millis(500);
/// The longest time after which an answer arrives.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The demand for messages in this process.
pub(crate) struct ListenDemand {
    pool: Weak<PostgresPool>,
    handle: Handle,
    tokens: Mutex<DemandingTokens>,
    /// The moment until which answers may arrive.
    answers_until: AtomicU64,
    /// The URL allows the process to listen.
    is_allowed: bool,
}

/// The tokens for which messages may arrive.
#[derive(Default)]
struct DemandingTokens {
    /// Tokens for which the process listens.
    listening: Vec<Weak<Owner>>,
    /// Tokens that were granted a lock a moment ago.
    recent: Vec<Weak<Owner>>,
    /// A task checks when listening can stop.
    is_watched: bool,
    /// A task checks the recent tokens.
    is_timed: bool,
}

impl ListenDemand {
    pub(crate) fn new(pool: &Arc<PostgresPool>, handle: &Handle) -> Self {
        Self {
            pool: Arc::downgrade(pool),
            handle: handle.clone(),
            tokens: Mutex::default(),
            answers_until: AtomicU64::new(0),
            is_allowed: pool.may_listen(),
        }
    }

    fn tokens(&self) -> MutexGuard<'_, DemandingTokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Demands messages for this token until its release. They arrive once [`PostgresPool::listen`] returns true.
    pub(crate) fn add(self: &Arc<Self>, owner: &Arc<Owner>) {
        if !self.is_allowed {
            return;
        }
        let mut tokens = self.tokens();
        let is_new = !tokens.listening.iter().any(|one| std::ptr::eq(one.as_ptr(), &**owner));
        if is_new {
            tokens.listening.push(Arc::downgrade(owner));
        }
        self.watch(tokens);
    }

    /// Demands messages for a while, because answers may arrive.
    pub(crate) fn add_answers(self: &Arc<Self>) {
        let until = Clock::Boottime.now().after(ANSWER_TIME);
        self.answers_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        self.watch(self.tokens());
    }

    fn watch(self: &Arc<Self>, mut tokens: MutexGuard<'_, DemandingTokens>) {
        if !std::mem::replace(&mut tokens.is_watched, true) {
            self.handle.spawn(listen_while_demanded(self.clone()));
        }
    }

    /// Demands messages for a token that was granted its lock, unless it is released within a moment.
    pub(crate) fn add_granted(self: &Arc<Self>, owner: &Arc<Owner>) {
        if !self.is_allowed {
            return;
        }
        let mut tokens = self.tokens();
        tokens.recent.push(Arc::downgrade(owner));
        if !std::mem::replace(&mut tokens.is_timed, true) {
            drop(tokens);
            self.handle.spawn(promote_recent(self.clone()));
        }
    }

    fn is_demanded(&self, tokens: &mut DemandingTokens) -> bool {
        tokens.listening.retain(is_in_use);
        let until = Moment::from_nanos(self.answers_until.load(Ordering::Acquire));
        !tokens.listening.is_empty() || Clock::Boottime.now() < until
    }
}

fn is_in_use(owner: &Weak<Owner>) -> bool {
    owner.upgrade().is_some_and(|owner| !owner.is_retired())
}

/// Makes the pool listen until no message is demanded any more.
async fn listen_while_demanded(demand: Arc<ListenDemand>) {
    let mut idle_checks = 0;
    loop {
        let Some(pool) = demand.pool.upgrade() else { return };
        if idle_checks == 0 {
            pool.listen().await;
        }
        sleep(CHECK).await;
        let mut tokens = demand.tokens();
        idle_checks = if demand.is_demanded(&mut tokens) { 0 } else { idle_checks + 1 };
        if idle_checks == 2 {
            // The mutex is held: a caller that demands messages after this starts a new task.
            tokens.is_watched = false;
            pool.stop_listening();
            return;
        }
    }
}

/// Demands messages for the recent tokens that hold their locks for longer than a moment.
async fn promote_recent(demand: Arc<ListenDemand>) {
    let mut before = Vec::new();
    loop {
        sleep(MOMENT).await;
        let held: Vec<_> = before.iter().filter(|owner| is_in_use(owner)).cloned().collect();
        held.iter().filter_map(Weak::upgrade).for_each(|owner: Arc<Owner>| demand.add(&owner));
        let mut tokens = demand.tokens();
        before = std::mem::take(&mut tokens.recent);
        if before.is_empty() {
            tokens.is_timed = false;
            return;
        }
    }
}
