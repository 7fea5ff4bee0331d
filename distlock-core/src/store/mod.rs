//! What locks need from a place that keeps them: the trait [`Store`].
//!
//! It knows owner tokens and their commands, no leases and no waiters of this process: try once, stand
//! in the queue, renew, release, and a clock. Everything about time, cancellation and repetition is left to
//! `lock` and `engine`, and is the same for every store. A store that can notify waiters says so; one that asks
//! several nodes does so behind the same verbs.
//!
//! Another crate can have a store, too: it implements the trait, and gives it to the hidden method
//! `LockManagerBuilder::store`. Nothing here is stable: such a crate names the exact version of this one.

pub mod admin;
mod answer;
pub mod contention;
mod fault;
pub mod owner;
pub mod record;
mod reports;
pub mod term;

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use admin::StoreAdmin;
pub use answer::{Answer, Entered, Exchanged, Owned};
pub use fault::{BackendKind, Fault};
pub use owner::Owner;
pub use reports::{
    DrivenBy, LinkWatch, Listener, Message, Notification, StoreEvents, StoreStatus, WakeUps, Which,
};
pub use term::Term;

pub use crate::capacity::Limit;
pub use crate::clock::{Clock, Moment};
pub use crate::name::{LockName, StoredName};
pub use crate::process_info::ProcessInfo;
pub use crate::token::Token;

/// An operation under way. It owns all it needs, so that its caller can leave it to the engine.
pub type Op<T> = OpOn<'static, T>;

/// An operation that only its caller waits for: it borrows the store, which spares a hot counter.
pub type OpOn<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// A place that keeps locks.
///
/// An operation is under way once its future was polled. Operations of one key reach the store in
/// the order of their first polls: a release that is polled after an acquire takes effect after it.
pub trait Store: ProcessDirectory + StoreAdmin + Send + Sync + fmt::Debug {
    /// What the leases of this store age on.
    fn clock(&self) -> Clock;

    /// Whether leases end here that are not renewed. Where the store lives and dies with the process, a
    /// renewed lease simply has no end.
    fn needs_renewal(&self) -> bool {
        true
    }

    /// Resolves once the store has answered, so that a bad address shows at start-up.
    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()>;

    /// Whether this process is notified when the lock is reserved for one of its tokens. Where not, it
    /// polls.
    fn is_notified(&self, lock: &LockName) -> bool;

    /// Whether this process hears what others answer to its questions about this lock.
    fn hears_answers(&self, lock: &LockName) -> bool {
        self.is_notified(lock)
    }

    /// Where this process is not notified: after how long a waiter looks for the first time (R11).
    fn first_look(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The outage that it is in; `None` while it can be reached, or if it was not asked anything yet.
    fn outage(&self) -> Option<Outage>;

    /// Registers the listener of the process of that name: it gets all notifications from here on.
    fn listen(&self, process: &str, listener: Listener);

    /// Takes the lock if it is free. Answers by `answer_by`, or with a fault.
    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer>;

    /// Takes the lock if it is free or reserved for this token, and otherwise stands in the queue
    /// for it. Idempotent. Answers by `answer_by`, or with a fault.
    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered>;

    /// Frees the lock if this token owns it, or with `keep` has it free itself after that time, if
    /// others wait for it a little later;
    /// takes the token out of the queue if it stands there. Idempotent. Waits for a connection until
    /// `answer_by`.
    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed>;

    /// Gives the lock from a token that has it alone to one that does not keep others out, with no holder in
    /// between. Idempotent. Answers by `answer_by`, or with a fault: then either may hold the lock, and
    /// both are to be released, the new one first.
    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged>;

    /// Over which of its connections goes what may free this lock.
    fn lane(&self, _lock: &LockName) -> usize {
        0
    }

    /// Which part of the store keeps this lock: each answers, and fails, on its own.
    fn part(&self, _lock: &LockName) -> usize {
        0
    }

    /// How many counter values a renewal draws that is to draw some: they follow each other, and its answer is the last.
    fn fences_per_draw(&self) -> u64 {
        1
    }

    /// Extends the leases to at least these times to live, never re-creating a lock: one answer for
    /// each, in order. They come together: those of several [parts](Self::part) when the slowest has
    /// answered.
    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed>;

    /// Whether fences of different locks are drawn from different counters: then those of several that are taken
    /// together have to be [lifted](Self::lift).
    fn has_many_counters(&self) -> bool {
        false
    }

    /// Has every value that is drawn for one of these locks from now on be above `fence`, which was drawn for one of
    /// them.
    fn lift(
        self: Arc<Self>,
        _locks: Vec<Arc<LockName>>,
        _fence: u64,
        _answer_by: Moment,
    ) -> Op<()> {
        Box::pin(ready(Ok(())))
    }

    /// A lease that was kept for a call while it waited for other locks is used from now on, and ends as
    /// `term` says. Where leases are renewed they end by themselves if they are not.
    fn begin_term(&self, _owner: &Owner, _term: Term) {}

    /// Whether it is connected, and how; nothing is asked.
    fn status(&self) -> StoreStatus;

    /// Asks the store something that changes nothing and says how long the answer took. Answers by
    /// `answer_by`, or with a fault.
    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration>;

    /// The holder of the lock, and for how long; `None` if it is free.
    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>>;
}

/// What only several processes need of a store: which processes there are, and messages between them (R15).
///
/// No lock depends on it. A store for one process keeps the defaults.
pub trait ProcessDirectory {
    /// Keeps a record of this process in the store while it uses locks, for [`records`](Self::records) of
    /// others. Nothing where there are no others.
    fn introduce(&self, _info: &ProcessInfo) {}

    /// Has the record of this process removed: it uses no more locks.
    fn take_leave(self: Arc<Self>, _process: String, _answer_by: Moment) -> Op<()> {
        Box::pin(ready(Ok(())))
    }

    /// Sends messages to other processes; says of each whether there was a subscriber.
    fn tell(self: Arc<Self>, letters: Vec<Letter>, _answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(ready(Ok(vec![false; letters.len()])))
    }

    /// The processes that have a record under a prefix.
    fn recorded(self: Arc<Self>, _prefix: String, _answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    /// The records of these processes under a prefix, each if there is one, and the store's time.
    fn records(
        self: Arc<Self>,
        _prefix: String,
        processes: Vec<String>,
        _answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(ready(Ok(Records { time: 0, texts: vec![None; processes.len()] })))
    }

    /// Notifies the owner of a token that the lock was taken away from it, if that is possible.
    fn tell_taken(self: Arc<Self>, _lock: Arc<LockName>, _token: String) {}
}

/// A time in which a store cannot be reached.
#[derive(Debug)]
pub struct Outage {
    pub since: Moment,
    /// Why the last attempt to reach it failed.
    pub fault: Fault,
}

/// The records of some processes, in the order in which they were asked for.
#[derive(Debug, Clone)]
pub struct Records {
    /// The store's time, in seconds since 1970.
    pub time: u64,
    pub texts: Vec<Option<String>>,
}

/// A message to another process.
#[derive(Debug, Clone)]
pub struct Letter {
    /// Under which the other process listens, with its separator.
    pub prefix: String,
    /// What the tokens of the other process begin with.
    pub to: String,
    pub text: String,
}

/// One try without a place in the queue.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub owner: Arc<Owner>,
    pub term: Term,
    /// If it is taken, find out for how long.
    pub look: bool,
}

/// A place in the queue, or the wish for one.
#[derive(Debug, Clone)]
pub struct Entry {
    pub owner: Arc<Owner>,
    /// On what terms it is held once it is granted.
    pub term: Term,
    /// The place it had before; 0 for a new one at the end.
    pub ticket: u64,
}

/// A token for another one of the same lock.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Has the lock alone.
    pub old: Arc<Owner>,
    /// Does not hold it yet.
    pub new: Arc<Owner>,
    /// On what terms the new one holds it.
    pub term: Term,
}

/// A lock that is held.
#[derive(Debug)]
pub struct Held {
    /// At least one; those whose lease ends first come first.
    pub holders: Vec<Holder>,
    /// The tokens that stand in the queue, the next one first.
    pub queue: Vec<String>,
}

impl Held {
    /// By which it is held.
    pub fn tokens(&self) -> impl Iterator<Item = &String> {
        self.holders.iter().map(|holder| &holder.token)
    }

    /// How long it is until the last lease ends; `None` if one has no end.
    pub fn remaining(&self) -> Option<Duration> {
        remaining(&self.holders)
    }

    /// What a try comes to whose token the engine has sent, by a look at the lock. Its line has the counter
    /// value.
    pub fn taken_over(held: Option<&Self>, owner: &Owner) -> Answer {
        match held {
            None => Answer::Taken { remaining: Some(Duration::ZERO) },
            Some(held) if held.tokens().any(|token| *token == owner.token) => {
                Answer::Granted { fence: 0, sent: owner.first_sent() }
            }
            Some(held) => Answer::Taken { remaining: held.remaining() },
        }
    }
}

fn remaining(holders: &[Holder]) -> Option<Duration> {
    let leases = holders.iter().map(|holder| holder.remaining);
    leases.reduce(|one, other| Some(one?.max(other?))).flatten()
}

/// One holder of a lock.
#[derive(Debug)]
pub struct Holder {
    pub token: String,
    /// `None` if it has no end, which no lock of ours is.
    pub remaining: Option<Duration>,
}

/// What became of a release.
#[derive(Debug, Clone)]
pub struct Freed {
    /// The lock was the token's until now.
    pub was_ours: bool,
    /// No command of the token can still take effect. If not, the release must be repeated.
    pub settled: bool,
    /// The tokens for which the lock was reserved next, in order.
    pub next: Vec<Box<str>>,
    /// It is kept, and others wait for it: it is to be released once more when it is due.
    pub awaited: bool,
}

impl Freed {
    /// There was nothing to free.
    pub fn nothing() -> Self {
        Self { was_ours: false, settled: true, next: Vec::new(), awaited: false }
    }
}

/// One lease to extend.
#[derive(Debug, Clone)]
pub struct Renewal {
    pub owner: Arc<Owner>,
    pub ttl: Duration,
    /// Draw from the fence counter as well, what must be above `fence`.
    pub draw: bool,
    pub fence: u64,
}

/// Answers to renewals, in the order they were asked.
#[derive(Debug)]
pub struct Renewed {
    /// Read before the commands were sent.
    pub sent: Moment,
    pub answers: Vec<Result<Owned, Fault>>,
}
