//! What the tests have in common: a manager that gives up soon, a body that notes when it was
//! polled, and a value that shows two bodies at once.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockGuard, LockManager, LockManagerBuilder, WakeUps};
use distlock_testkit::{RedisServer, wait_for, wait_until};

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A lock that does not end by itself while a test runs.
pub(crate) const LONG: Duration = ms(60_000);
/// For a command without an answer; short, so that outages are cheap.
pub(crate) const COMMAND_TIMEOUT: Duration = ms(200);
/// What a busy machine may add to the time of a call. Who waits for a connection, or for ever, does
/// so for longer.
const ROOM: Duration = ms(5000);
/// Ten times the second in which a manager finds a server that is back, which includes the quarter
/// of a second in which nothing of ours is left there.
pub(crate) const BACK: Duration = ms(10_000);

pub(crate) fn builder(url: &str) -> LockManagerBuilder {
    LockManager::builder().url(url).command_timeout(COMMAND_TIMEOUT)
}

pub(crate) async fn connect(url: &str) -> LockManager {
    connected(builder(url)).await
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

/// For a server that answers, yes or no: what takes long on a busy machine is no fault.
pub(crate) fn patient_builder(url: &str) -> LockManagerBuilder {
    LockManager::builder().url(url).command_timeout(ms(5000)).connect_timeout(ms(20_000))
}

pub(crate) async fn patient(url: &str) -> LockManager {
    patient_builder(url).connect().await.expect("connect")
}

/// A patient manager whose waiters are told.
pub(crate) async fn manager(url: &str) -> LockManager {
    let manager = patient(url).await;
    wait_for("it hears", async || manager.status().wake_ups == WakeUps::Notified).await;
    manager
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

pub(crate) async fn held(manager: &LockManager, key: &str) -> LockGuard {
    manager.lock(key).ttl(LONG).acquire().await.expect("it is free")
}

pub(crate) type Waiting = tokio::task::JoinHandle<Result<LockGuard, LockError>>;

/// Waits for `key` in a task of its own.
pub(crate) fn waits(manager: &LockManager, key: &str) -> Waiting {
    tokio::spawn(manager.lock(key).ttl(LONG).wait(LONG).acquire())
}

pub(crate) async fn served(waiting: Waiting) -> LockGuard {
    let waiting = tokio::time::timeout(LONG, waiting).await.expect("its turn comes");
    waiting.expect("no panic").expect("granted")
}

/// The tokens in the queue of `key`, in order.
#[track_caller]
pub(crate) fn queue(server: &RedisServer, key: &str) -> Vec<String> {
    server.cli(&["ZRANGE", &format!("distlock:queue:{{{key}}}"), "0", "-1"])
}

/// Waits until `n` processes stand in the queue of `key`.
#[track_caller]
pub(crate) fn stand(server: &RedisServer, key: &str, n: usize) {
    wait_until("they stand in the queue", || queue(server, key).len() == n);
}

/// Where the lock of `key` is stored.
pub(crate) fn stored(key: &str) -> String {
    format!("distlock:lock:{{{key}}}")
}

/// Who owns the lock of `key`, seen past every proxy.
#[track_caller]
pub(crate) fn owner(server: &RedisServer, key: &str) -> Option<String> {
    server.cli(&["GET", &stored(key)])
}

/// The connections of managers by their numbers; the test's own go over the unix socket.
#[track_caller]
pub(crate) fn clients(server: &RedisServer) -> HashSet<String> {
    let list: String = server.cli(&["CLIENT", "LIST"]);
    let of_managers = list.lines().filter(|client| client.contains("addr=127.0.0.1:"));
    of_managers.filter_map(|client| client.split(' ').next()).map(str::to_owned).collect()
}

/// How many connections of managers the server has.
#[track_caller]
pub(crate) fn connections(server: &RedisServer) -> usize {
    clients(server).len()
}

/// A figure from `INFO`.
#[track_caller]
pub(crate) fn info(server: &RedisServer, field: &str) -> u64 {
    let info: String = server.cli(&["INFO", "all"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).expect("a number in INFO")
}

/// How often the server has run a command, inside scripts too.
#[track_caller]
pub(crate) fn runs(server: &RedisServer, command: &str) -> u64 {
    let info: String = server.cli(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let calls = info.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number in INFO"))
}

/// The store could not say, and this is how.
#[track_caller]
pub(crate) fn backend<T>(result: Result<T, LockError>) -> BackendKind {
    match result {
        Err(LockError::Backend { kind, .. }) => kind,
        Err(error) => panic!("not a failure of the store: {error}"),
        Ok(_) => panic!("a lock without a store that could give it"),
    }
}

#[track_caller]
pub(crate) fn lost<T>(result: Result<T, LockError>) {
    match result {
        Err(error) => assert!(error.is_lost(), "{error}"),
        Ok(_) => panic!("its lease was not lost"),
    }
}

/// The text of an error and of its cause.
pub(crate) fn whole_text(error: &LockError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("{error}: {cause}")
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
    /// Somebody else has the lock: set by the test.
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
        // The same lease: a nested call joins it and asks nobody.
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

    /// From now on the lock is somebody else's.
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

/// A connection of the test's own, past every proxy, for what may be answered with an error.
#[track_caller]
pub(crate) fn eye(server: &RedisServer) -> redis::Connection {
    let client = redis::Client::open(server.unix_url()).expect("a URL");
    client.get_connection().expect("connect")
}

/// What starts and ends servers blocks, and the bodies must go on meanwhile.
pub(crate) async fn blocking(
    mut server: RedisServer,
    act: impl FnOnce(&mut RedisServer) + Send + 'static,
) -> RedisServer {
    let act = move || {
        act(&mut server);
        server
    };
    tokio::task::spawn_blocking(act).await.expect("no panic")
}
