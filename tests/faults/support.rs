//! What the tests have in common: a manager that gives up soon, a body that notes when it was
//! polled, and a value that shows two bodies at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager, LockManagerBuilder};
use distlock_testkit::{LONG, RedisServer, ms, wait_for};

/// For a command without an answer; short, so that outages are cheap.
pub(crate) const COMMAND_TIMEOUT: Duration = ms(200);
/// What a busy machine may add to the time of a call. A call that waits for a connection, or for ever, takes
/// longer.
const ROOM: Duration = ms(5000);
/// Ten times the second in which a manager finds a server that is back, which includes the quarter
/// of a second in which nothing of ours is left there.
pub(crate) const BACK: Duration = ms(10_000);

/// Gives up soon.
pub(crate) fn impatient_builder(url: &str) -> LockManagerBuilder {
    LockManager::builder().url(url).command_timeout(COMMAND_TIMEOUT)
}

pub(crate) async fn impatient(url: &str) -> LockManager {
    connected(impatient_builder(url)).await
}

pub(crate) async fn connected(builder: LockManagerBuilder) -> LockManager {
    let mut manager = None;
    // A machine that is busy may not answer in time at first.
    wait_for("the manager connects", async || {
        manager = builder.clone().connect().await.ok();
        manager.is_some()
    })
    .await;
    manager.expect("connected")
}

/// What a call comes to that may wait for so long; it must come to an end.
pub(crate) async fn in_time<T>(wait: Duration, call: impl Future<Output = T>) -> T {
    let limit = wait.max(COMMAND_TIMEOUT) + ROOM;
    tokio::time::timeout(limit, call).await.expect("it ends in time")
}

/// Gives a lock back that was not lost. A manager that gives up soon may not hear the answer; then
/// [`works_again`] shows that the lock is free.
pub(crate) async fn freed(guard: LockGuard) {
    if let Err(error) = guard.release().await {
        assert!(!error.is_lost(), "{error}");
    }
}

/// Waits until a renewal lands: otherwise what remains of a lease only falls.
pub(crate) async fn renewed(guard: &LockGuard) {
    let rises = async {
        let mut last = guard.remaining();
        loop {
            tokio::time::sleep(ms(5)).await;
            let now = guard.remaining();
            if now > last {
                return;
            }
            last = now;
        }
    };
    tokio::time::timeout(LONG / 2, rises).await.expect("a renewal lands");
}

/// Waits until each of these leases has been renewed from now on, or is gone; says how many are held.
pub(crate) async fn kept(guards: &[LockGuard]) -> usize {
    let end = |guard: &LockGuard| Instant::now() + guard.remaining();
    let ends: Vec<_> = guards.iter().map(end).collect();
    wait_for("each lease is renewed, or gone", async || {
        let mut leases = guards.iter().zip(&ends);
        leases.all(|(guard, before)| !guard.is_held() || end(guard) > *before + ms(100))
    })
    .await;
    guards.iter().filter(|guard| guard.is_held()).count()
}

/// The manager takes and frees a lock again, and nothing of it is left at the server: what was
/// given up is given back.
pub(crate) async fn works_again(manager: &LockManager, server: &RedisServer) {
    // Of its own: what was given up may hold other locks until it is given back.
    wait_for("the manager works again", async || {
        let Ok(guard) = manager.lock("works again").ttl(LONG).acquire().await else { return false };
        guard.release().await.is_ok()
    })
    .await;
    let mut left = Vec::new();
    let give_up = Instant::now() + BACK;
    wait_for("no key is left", async || {
        left = server.lock_keys();
        left.is_empty() || Instant::now() > give_up
    })
    .await;
    assert!(left.is_empty(), "after {BACK:?} still there: {left:?}");
}

/// A poll that is allowed just before the deadline is seen here a moment later, which on a busy
/// machine may be long enough to be past it. What is later than this was never allowed.
const JUST_BEFORE: Duration = ms(100);

/// What became of a body: every poll of it, and its end.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    polls: AtomicU32,
    /// How often its deadline was moved.
    renewals: AtomicU32,
    /// Polls that began after the deadline.
    late: Mutex<Vec<String>>,
    /// Bodies that are there, polled or not.
    alive: AtomicU32,
    /// Another process has the lock: set by the test.
    rival: AtomicU32,
}

/// Takes a body off the count when it is dropped.
struct Alive<'a>(&'a Watch);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, SeqCst);
    }
}

impl Watch {
    /// Runs `body`, and notes at each poll whether the lease it runs under is over. To be called
    /// inside a body that runs under `key`.
    pub(crate) async fn body<T>(
        &self,
        manager: &LockManager,
        key: &str,
        body: impl Future<Output = T>,
    ) -> T {
        self.alive.fetch_add(1, SeqCst);
        let _alive = Alive(self);
        // The same lease: a nested call joins it without asking the server.
        let lease = manager.lock(key).reentrant(true).acquire().await.expect("it is held here");
        let mut body = pin!(body);
        let mut deadline = Instant::now() + lease.remaining();
        poll_fn(|cx| {
            let (now, remaining, rival) =
                (Instant::now(), lease.remaining(), self.rival.load(SeqCst));
            // The thread may have stood still between the two clocks: then this is too early.
            let seen = now + remaining;
            if !remaining.is_zero() && seen > deadline {
                let moved = seen > deadline + JUST_BEFORE;
                self.renewals.fetch_add(moved.into(), SeqCst);
                deadline = seen;
            }
            let poll = self.polls.fetch_add(1, SeqCst) + 1;
            if now > deadline + JUST_BEFORE || rival > 0 {
                let late = now.saturating_duration_since(deadline);
                let late = format!("poll {poll}, late by {late:?}, {rival} rivals");
                self.late.lock().expect("no panic").push(late);
            }
            body.as_mut().poll(cx)
        })
        .await
    }

    /// Polled every millisecond, for ever.
    pub(crate) async fn endless(&self, manager: &LockManager, key: &str) {
        let ticks = async {
            loop {
                tokio::time::sleep(ms(1)).await;
            }
        };
        self.body(manager, key, ticks).await
    }

    /// The body has been polled `n` times more.
    pub(crate) async fn polled(&self, n: u32) {
        let enough = self.polls.load(SeqCst) + n;
        wait_for("the body runs", async || self.polls.load(SeqCst) >= enough).await;
    }

    /// The lease of the body has been renewed once more: nearly all of it is left.
    pub(crate) async fn renewed(&self) {
        let before = self.renewals.load(SeqCst);
        wait_for("the lease is renewed", async || self.renewals.load(SeqCst) > before).await;
    }

    /// From now on another process has the lock.
    pub(crate) fn rival_has_it(&self) {
        self.rival.fetch_add(1, SeqCst);
    }

    /// The body ran, was never polled past its deadline, and is gone.
    #[track_caller]
    pub(crate) fn ended_in_time(&self) {
        assert!(self.polls.load(SeqCst) > 0, "the body never ran");
        let late = self.late.lock().expect("no panic");
        assert!(late.is_empty(), "polled past its deadline: {late:?}");
        assert_eq!(self.alive.load(SeqCst), 0, "the call has returned and its body has not");
    }
}

/// A value that bodies read, wait and write: two at once lose an update.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    value: AtomicU64,
    /// How often a body came to its write.
    written: AtomicU64,
}

impl Ledger {
    pub(crate) async fn add_one(&self) {
        let value = self.value.load(SeqCst);
        tokio::time::sleep(ms(2)).await;
        // No await from here: a body that is dropped was dropped before it.
        self.value.store(value + 1, SeqCst);
        self.written.fetch_add(1, SeqCst);
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(SeqCst)
    }

    #[track_caller]
    pub(crate) fn nothing_was_lost(&self) {
        assert!(self.written() > 0, "nothing was written");
        assert_eq!(self.value.load(SeqCst), self.written(), "two bodies at once");
    }
}
