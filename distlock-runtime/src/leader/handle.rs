//! A campaign in the background, for a program that asks whether it leads.

use std::fmt;
use std::pin::pin;

use distlock_core::clock::Clock;
use distlock_core::select::either;
use tokio::sync::{mpsc, oneshot, watch};

use super::campaign::{Campaign, CampaignEnd, LeaderRequest};
use super::term::Term;
use crate::lock::guard::LockGuard;
use crate::observe::term_failed;

/// The state of a campaign; from [`Leader::current`] and [`Leader::changed`].
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::Leadership;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let locks = distlock::LockManager::in_memory();
/// let mut leader = locks.leader("scheduler").start();
/// match leader.changed().await {
///     Leadership::Leading(term) => assert!(term.fencing_token() > 0),
///     Leadership::Following | Leadership::Withdrawn => unreachable!("it campaigns alone"),
///     _ => {}
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone)]
pub enum Leadership {
    /// This process does not lead. It waits in line, after the leader.
    Following,
    /// This process leads.
    Leading(Term),
    /// This process does not lead, and campaigns no more: it was withdrawn, the manager was closed, or the
    /// options cannot work (the log has the reason).
    Withdrawn,
}

/// A campaign in the background, for as long as this value or a clone exists; from [`LeaderRequest::start`].
/// Dropping the last one gives the lead up.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let locks = distlock::LockManager::in_memory();
/// let mut leader = locks.leader("scheduler").ttl(Duration::from_secs(10)).start();
/// while !leader.is_leader() {
///     leader.changed().await;
/// }
/// // … the work of the leader, in steps that each ask `is_leader()` …
/// leader.withdraw().await;
/// # }
/// ```
///
/// Unlike [`LeaderRequest::run`], it stops nothing when the lead is lost. Ask
/// [`is_leader`](Self::is_leader) before each step, and add the term's fencing token to each write.
#[derive(Clone)]
pub struct Leader {
    news: watch::Receiver<Leadership>,
    orders: mpsc::UnboundedSender<LeaderOrder>,
}

impl LeaderRequest {
    /// Campaigns in the background, for programs that ask whether they lead instead of running a body. It
    /// needs no task of the caller: the manager's own thread waits in line and keeps the lead.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// let (mut one, mut other) = (locks.leader("scheduler").start(), locks.leader("scheduler").start());
    /// one.changed().await;
    /// assert!(one.is_leader() && !other.is_leader());
    ///
    /// drop(one); // the lead goes to the next in line
    /// other.changed().await;
    /// assert!(other.is_leader());
    /// # }
    /// ```
    pub fn start(self) -> Leader {
        let (tell, news) = watch::channel(Leadership::Following);
        let (orders, taken) = mpsc::unbounded_channel();
        let locks = self.manager.locks();
        let remote = matches!(locks.table.clock(), Clock::Boottime);
        let background = locks.engine.background().clone();
        background.spawn_here(remote, follow(Campaign::of(self), tell, taken));
        Leader { news, orders }
    }
}

impl Leader {
    /// Returns whether this process leads now. It is false from the moment on at which another process may lead, even if
    /// the connection is lost. It does no I/O, so it is cheap enough for every step and every request.
    ///
    /// The answer may be stale after it has returned. If two leaders must not write the same thing, write it with the
    /// [fencing token](Term::fencing_token) of the [`current`](Self::current) term.
    pub fn is_leader(&self) -> bool {
        matches!(&*self.news.borrow(), Leadership::Leading(term) if term.is_current())
    }

    /// Returns whether this process leads now, with the term. No I/O.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::Leadership;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// let mut leader = locks.leader("scheduler").start();
    /// leader.changed().await;
    /// if let Leadership::Leading(term) = leader.current() {
    ///     println!("written by leader number {}", term.fencing_token());
    /// }
    /// # assert!(matches!(leader.current(), Leadership::Leading(_)));
    /// # }
    /// ```
    pub fn current(&self) -> Leadership {
        match &*self.news.borrow() {
            Leadership::Leading(term) if !term.is_current() => Leadership::Following,
            leadership => leadership.clone(),
        }
    }

    /// Resolves when the state has changed since the last call, and returns the new state: for tasks that work as long as
    /// this process leads. Of several changes in between, the last one is returned.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// let mut leader = locks.leader("scheduler").start();
    /// let mut seen = leader.clone();
    /// seen.changed().await; // leads
    /// leader.changed().await;
    /// leader.withdraw().await;
    /// assert!(matches!(seen.changed().await, distlock::Leadership::Withdrawn));
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a change is not missed.
    pub async fn changed(&mut self) -> Leadership {
        // An error means that the sender is gone: the candidate was withdrawn.
        let _ = self.news.changed().await;
        let _seen = self.news.borrow_and_update();
        drop(_seen);
        self.current()
    }

    /// Gives the lead up, if this process has it. The next in line has it at once, and this process
    /// campaigns again after the others. Returns when the store has confirmed that.
    ///
    /// If no other process campaigns, this one leads again at once. To stop, use
    /// [`withdraw`](Self::withdraw).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// let (mut one, mut other) = (locks.leader("scheduler").start(), locks.leader("scheduler").start());
    /// one.changed().await;
    /// one.resign().await;
    /// other.changed().await;
    /// assert!(other.is_leader() && !one.is_leader());
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lead is given up nevertheless.
    pub async fn resign(&self) {
        self.order(LeaderOrder::Resign).await;
    }

    /// Gives the lead up, if this process has it, and ends the campaign of this value and its clones. Returns when
    /// the store has confirmed that. Use it at a shutdown, so that the next leader need not wait for a `ttl`.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// let mut leader = locks.leader("scheduler").start();
    /// leader.changed().await;
    /// leader.withdraw().await;
    /// assert!(locks.inspect("scheduler").await.is_ok_and(|status| status.is_free()));
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the campaign ends nevertheless.
    pub async fn withdraw(self) {
        self.order(LeaderOrder::Withdraw).await;
    }

    async fn order(&self, order: fn(OrderDone) -> LeaderOrder) {
        let (done, carried_out) = oneshot::channel();
        if self.orders.send(order(done)).is_ok() {
            let _ = carried_out.await;
        }
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").field("current", &self.current()).finish_non_exhaustive()
    }
}

/// Sent, or dropped, when an order was carried out.
type OrderDone = oneshot::Sender<()>;

/// An order of the program to its campaign.
enum LeaderOrder {
    Resign(OrderDone),
    Withdraw(OrderDone),
}

/// Campaigns from term to term, until it is withdrawn.
async fn follow(
    mut campaign: Campaign,
    tell: watch::Sender<Leadership>,
    mut orders: mpsc::UnboundedReceiver<LeaderOrder>,
) {
    let mut done = None;
    loop {
        let Some((guard, term)) = elected(&mut campaign, &mut orders).await else { break };
        tell.send_replace(Leadership::Leading(term.clone()));
        let order = either(guard.lost(), orders.recv()).await;
        // Told before the lock is free: no other process leads while this one claims to.
        let stays = matches!(order, Ok(()) | Err(Some(LeaderOrder::Resign(_))));
        tell.send_replace(if stays { Leadership::Following } else { Leadership::Withdrawn });
        // A failure is logged, and retried until the lock is free.
        let _ = guard.release().await;
        match order {
            Ok(()) => campaign.ended(&term, false).await,
            // No failure, so no pause: it enters the queue at once. If all candidates resigned and then paused, the
            // queue would be empty.
            Err(Some(LeaderOrder::Resign(resigned))) => drop(resigned.send(())),
            Err(Some(LeaderOrder::Withdraw(withdrawn))) => {
                done = Some(withdrawn);
                break;
            }
            Err(None) => break,
        }
    }
    tell.send_replace(Leadership::Withdrawn);
    drop(done);
}

/// Waits until this process leads; `None` if it campaigns no more.
async fn elected(
    campaign: &mut Campaign,
    orders: &mut mpsc::UnboundedReceiver<LeaderOrder>,
) -> Option<(LockGuard, Term)> {
    let label = campaign.request().label().clone();
    let mut elected = pin!(campaign.elected());
    loop {
        match either(elected.as_mut(), orders.recv()).await {
            Ok(Ok(elected)) => return Some(elected),
            Ok(Err(CampaignEnd::Closed)) => return None,
            Ok(Err(CampaignEnd::Hopeless(error))) => {
                term_failed(&label, &error.to_string());
                return None;
            }
            // There is nothing to resign from.
            Err(Some(LeaderOrder::Resign(done))) => drop(done),
            Err(Some(LeaderOrder::Withdraw(_)) | None) => return None,
        }
    }
}
