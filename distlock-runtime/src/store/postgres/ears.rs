//! Decides when this process listens for messages.
//!
//! Every message costs the server time for each session that listens, so an idle process does not listen. A
//! process listens in three cases: while it waits for a lock; while it holds one for longer than a moment, so
//! that it hears of waiters and of questions; and while it may be answered. Locks that are held only for a
//! moment are released before others would send a message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use distlock_postgres::Table;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::clock::{Clock, Moment};
use crate::store::owner::Owner;

/// Listen for locks that are held for longer than this. It is shorter than the time after which a waiter sends
/// its first message to the holders.
const MOMENT: Duration = Duration::from_millis(20);
/// How often to check whether messages are still needed. Listening stops after two checks without a need, so a
/// process that returns again and again keeps listening.
const LOOK: Duration = Duration::from_millis(500);
/// How long an answer may take to arrive.
const ANSWERED: Duration = Duration::from_secs(5);

/// The tokens for which messages may arrive.
pub(super) struct Ears {
    table: Weak<Table>,
    handle: Handle,
    needs: Mutex<Needs>,
    answers_until: AtomicU64,
    /// Whether messages are wanted at all.
    is_used: bool,
}

#[derive(Default)]
struct Needs {
    /// Tokens for which the process listens.
    tokens: Vec<Weak<Owner>>,
    /// Tokens that were granted a lock a moment ago.
    young: Vec<Weak<Owner>>,
    /// A task checks when listening can stop.
    watched: bool,
    /// A task checks the young tokens.
    timed: bool,
}

impl Ears {
    pub(super) fn new(table: &Arc<Table>, handle: &Handle) -> Self {
        let (needs, answers_until) = (Mutex::default(), AtomicU64::new(0));
        let is_used = table.may_listen();
        let (table, handle) = (Arc::downgrade(table), handle.clone());
        Self { table, handle, needs, answers_until, is_used }
    }

    fn needs(&self) -> MutexGuard<'_, Needs> {
        self.needs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears messages for this token until its release. They arrive once [`Table::hear`] returns true.
    pub(super) fn need(self: &Arc<Self>, owner: &Arc<Owner>) {
        if !self.is_used {
            return;
        }
        let mut needs = self.needs();
        let is_new = !needs.tokens.iter().any(|one| std::ptr::eq(one.as_ptr(), &**owner));
        if is_new {
            needs.tokens.push(Arc::downgrade(owner));
        }
        self.watch(needs);
    }

    /// Answers may arrive for a while.
    pub(super) fn need_answers(self: &Arc<Self>) {
        let until = Clock::Boottime.now().after(ANSWERED);
        self.answers_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        self.watch(self.needs());
    }

    fn watch(self: &Arc<Self>, mut needs: MutexGuard<'_, Needs>) {
        if !std::mem::replace(&mut needs.watched, true) {
            self.handle.spawn(until_not_needed(self.clone()));
        }
    }

    /// The token was granted its lock. Listen for it unless it is released within a moment.
    pub(super) fn granted(self: &Arc<Self>, owner: &Arc<Owner>) {
        if !self.is_used {
            return;
        }
        let mut needs = self.needs();
        needs.young.push(Arc::downgrade(owner));
        if !std::mem::replace(&mut needs.timed, true) {
            drop(needs);
            self.handle.spawn(until_grown(self.clone()));
        }
    }

    fn is_needed(&self, needs: &mut Needs) -> bool {
        needs.tokens.retain(is_in_use);
        let until = Moment::from_nanos(self.answers_until.load(Ordering::Acquire));
        !needs.tokens.is_empty() || Clock::Boottime.now() < until
    }
}

fn is_in_use(owner: &Weak<Owner>) -> bool {
    owner.upgrade().is_some_and(|owner| !owner.is_retired())
}

/// Makes the table listen until no message is needed any more.
async fn until_not_needed(ears: Arc<Ears>) {
    let mut idle = 0;
    loop {
        let Some(table) = ears.table.upgrade() else { return };
        if idle == 0 {
            table.hear().await;
        }
        sleep(LOOK).await;
        let mut needs = ears.needs();
        idle = if ears.is_needed(&mut needs) { 0 } else { idle + 1 };
        if idle == 2 {
            // Under the lock: a caller that needs messages after this starts a new task.
            needs.watched = false;
            table.need_not_hear();
            return;
        }
    }
}

/// Promotes the tokens that hold their locks for longer than a moment.
async fn until_grown(ears: Arc<Ears>) {
    let mut before = Vec::new();
    loop {
        sleep(MOMENT).await;
        let held: Vec<_> = before.iter().filter(|owner| is_in_use(owner)).cloned().collect();
        held.iter().filter_map(Weak::upgrade).for_each(|owner: Arc<Owner>| ears.need(&owner));
        let mut needs = ears.needs();
        before = std::mem::take(&mut needs.young);
        if before.is_empty() {
            needs.timed = false;
            return;
        }
    }
}
