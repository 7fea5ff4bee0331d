//! The traits that a store implements: [`Store`] and [`ProcessDirectory`].

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use super::admin::StoreAdmin;
use super::fault::Fault;
use super::operation::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Freed, Held, Op, OpOn, Renewal, Renewed,
};
use super::owner::Owner;
use super::reports::{Listener, StoreStatus};
use super::term::Term;
use crate::clock::{Clock, Moment};
use crate::name::LockName;
use crate::process_info::ProcessInfo;

/// A place that keeps locks.
///
/// # Rules of all operations
///
/// An operation is a method that returns an [`Op`] or an [`OpOn`].
///
/// - **Order.** An operation begins when its future is first polled. Operations on one lock take effect in the order of
///   their first polls: a release that is polled after an acquire takes effect after it. The one exception is an acquire
///   whose connection has died: its bytes may arrive later. A release that may be overtaken by them is not
///   [settled](Freed::settled) (R9).
/// - **Deadline.** `answer_by` is a moment on the store's [clock](Self::clock). The future resolves at that moment at the
///   latest. Without an answer until then, it resolves with a [`Fault`] of the kind
///   [`TimedOut`](super::BackendKind::TimedOut), or with the fault of the [outage](Self::outage) if there was no connection
///   to send the command over. A store that knows earlier that there will be no answer fails earlier.
/// - **Cancellation.** The caller may drop a future at any time, before its first poll or after it. A command that was sent
///   may still take effect. So a store notes in the [`Owner`] what it is about to send, before the first byte goes out: see
///   [`may_send`](Owner::may_send) and [`stored_until`](Owner::stored_until). The runtime then releases the token.
/// - **Faults.** After a fault it is unknown whether the command took effect, or will. A fault is no refusal: that the lock
///   is another token's is an answer.
/// - **Repetition.** A store repeats a command only if it knows that the server has not executed it (for example after a
///   redirect), or if the operation is idempotent, and only until `answer_by`. The runtime does all other retries.
///
/// The methods without an operation return at once, without I/O. They may be called on any thread.
pub trait Store: ProcessDirectory + StoreAdmin + Send + Sync + fmt::Debug {
    /// Returns the clock that the leases of this store age on.
    fn clock(&self) -> Clock;

    /// Returns whether leases expire that are not renewed. A store that ends with this process returns false: there a
    /// renewed lease has no end.
    fn needs_renewal(&self) -> bool {
        true
    }

    /// Resolves once the store has answered for the first time, so that a wrong address is found at start-up.
    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()>;

    /// Returns whether this process is notified when the lock is reserved for one of its tokens. Otherwise its waiters
    /// poll. The answer may change at any time.
    fn is_notified(&self, lock: &LockName) -> bool;

    /// Returns whether this process receives the answers of other processes to its questions about this lock.
    fn hears_answers(&self, lock: &LockName) -> bool {
        self.is_notified(lock)
    }

    /// Returns after how long a waiter looks for the first time if it is not notified (R11).
    fn first_look(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Returns the present outage, or `None` while the store can be reached and before it was asked anything.
    fn outage(&self) -> Option<Outage>;

    /// Registers the listener of the process of that name. It receives all notifications from now on. The runtime calls
    /// this once for each process, before the first operation.
    fn listen(&self, process: &str, listener: Listener);

    /// Acquires the lock if it is free, without a place in the queue (R2).
    ///
    /// Not idempotent: a token is tried once. If the runtime has sent the token to the queue since, only the answer to that
    /// counts, so the store sends no acquire. With [`look`](Attempt::look) it then answers [`Held::taken_over`], and
    /// otherwise [`Fault::given_up`].
    ///
    /// The future borrows the store. Its caller waits for the lock and drops the future when it is cancelled.
    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer>;

    /// Acquires the lock if it is free or reserved for this token. Otherwise puts the token into the queue, or leaves it
    /// there (R3, R11).
    ///
    /// Idempotent: a token that holds the lock is granted it again. A token that stands in the queue keeps its place. A
    /// token that has lost its place is put back to the place of its [`ticket`](Entry::ticket).
    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered>;

    /// Frees the lock if this token holds it, takes the token out of the queue if it stands there, and reserves the lock for
    /// the next tokens (R7).
    ///
    /// With `keep`, a lock that the token holds is not freed now. Its lease ends after that time. If others wait, it ends
    /// a little later, and [`Freed::awaited`] is set: the runtime then releases the token again when `keep` is over, so that
    /// the lock is reserved for the next one.
    ///
    /// Idempotent. The runtime calls it again until an answer is [settled](Freed::settled).
    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed>;

    /// Moves the lock from a token that holds it alone to a token that lets others in, with no other holder in between.
    ///
    /// Idempotent. After a fault either token may hold the lock. The runtime then releases both, the new one first.
    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged>;

    /// Returns the number of the connection over which releases of this lock go. The runtime retries the releases of one
    /// connection together.
    fn lane(&self, _lock: &LockName) -> usize {
        0
    }

    /// Returns the number of the part of the store that keeps this lock. Each part answers and fails on its own.
    fn part(&self, _lock: &LockName) -> usize {
        0
    }

    /// Returns how many consecutive fences a renewal draws if it [draws](Renewal::draw). Its answer is the last one.
    fn fences_per_draw(&self) -> u64 {
        1
    }

    /// Extends each lease to at least its time to live (R10). Never creates a lock: if the token does not hold it any more,
    /// the answer is [`Owned::No`](super::Owned::No).
    ///
    /// Returns one answer for each renewal, in their order. All answers come together: if the locks are in several
    /// [parts](Self::part), once the slowest part has answered. A fault instead of the whole result counts for each renewal.
    ///
    /// Idempotent, except that each call draws its fences. The store sets the deadline itself: its timeout for commands,
    /// from the first poll on.
    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed>;

    /// Returns whether fences of different locks are drawn from different counters. Then the counters of locks that are
    /// acquired together must be [lifted](Self::lift).
    fn has_many_counters(&self) -> bool {
        false
    }

    /// Raises the counters of these locks, so that each later fence of any of them is above `fence`, which was drawn for one
    /// of them. Idempotent.
    fn lift(
        self: Arc<Self>,
        _locks: Vec<Arc<LockName>>,
        _fence: u64,
        _answer_by: Moment,
    ) -> Op<()> {
        Box::pin(ready(Ok(())))
    }

    /// Begins the term of a lease that was kept for a call while the call waited for other locks. The lease ends as `term`
    /// says from now on. Only a store whose leases [need no renewal](Self::needs_renewal) has to do anything: elsewhere a
    /// lease ends by itself unless it is renewed.
    fn begin_term(&self, _owner: &Owner, _term: Term) {}

    /// Returns whether the store is connected, and how. It may be stale by the time it is read.
    fn status(&self) -> StoreStatus;

    /// Asks the store a question that changes nothing, and returns how long the answer took.
    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration>;

    /// Returns the holders and the queue of the lock; `None` if it is free. Changes nothing.
    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>>;
}

/// The part of a store for several processes: a list of the processes, and messages between them (R15).
///
/// No lock depends on it. A store for one process keeps the defaults. The rules of [`Store`] about deadlines, cancellation
/// and faults hold here, too.
pub trait ProcessDirectory {
    /// Keeps a record of this process in the store from now on, for the [`records`](Self::records) of others. Returns at
    /// once; the record is written in the background.
    fn introduce(&self, _info: &ProcessInfo) {}

    /// Removes the record of this process, which uses no more locks. It is not written again. Idempotent.
    fn take_leave(self: Arc<Self>, _process: String, _answer_by: Moment) -> Op<()> {
        Box::pin(ready(Ok(())))
    }

    /// Sends messages to other processes, each at most once. Returns one flag for each message, in their order: false if
    /// the store knows that nobody received it.
    fn tell(self: Arc<Self>, messages: Vec<ProcessMessage>, _answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(ready(Ok(vec![false; messages.len()])))
    }

    /// Returns the ids of the processes that have a record under a prefix, in any order.
    fn recorded(self: Arc<Self>, _prefix: String, _answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    /// Returns the records of these processes under a prefix, in their order, and the store's time.
    fn records(
        self: Arc<Self>,
        _prefix: String,
        processes: Vec<String>,
        _answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(ready(Ok(Records { time: 0, texts: vec![None; processes.len()] })))
    }

    /// Tells the owner of a token that an operator took the lock away from it. Returns at once. The message may be lost: the
    /// owner also notices at its next renewal.
    fn tell_taken(self: Arc<Self>, _lock: Arc<LockName>, _token: String) {}
}

/// A time in which a store cannot be reached.
#[derive(Debug)]
pub struct Outage {
    /// When it began.
    pub since: Moment,
    /// Why the last attempt to reach the store failed.
    pub fault: Fault,
}

/// The records of some processes.
#[derive(Debug, Clone)]
pub struct Records {
    /// The store's time, in seconds since 1970; 0 if it has none.
    pub time: u64,
    /// The records, in the order in which they were asked for; `None` for a process without one.
    pub texts: Vec<Option<String>>,
}

/// A message to another process.
#[derive(Debug, Clone)]
pub struct ProcessMessage {
    /// The prefix under which the other process listens, with its separator.
    pub prefix: String,
    /// The id of the other process, which its tokens begin with.
    pub to: String,
    /// The message.
    pub text: String,
}
