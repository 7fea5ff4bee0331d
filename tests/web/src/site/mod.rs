//! The site: what its handlers do, and how it is started. `axum` and `actix` serve it under the same
//! paths:
//!
//! | path | locked by |
//! |---|---|
//! | `/layer/{item}/…` | `LockLayer` or `LockMiddleware` with `item:{item}` |
//! | `/fn/{item}/…` | the same with a `key_fn` that makes the same key of `POST`, and none of `GET` |
//! | `/locked/{item}/…` | `Locked<Item>` |
//! | `/attribute/{item}/…` | `#[redis_lock]` |
//! | `/outer/{item}/inner/{part}` | a layer or middleware with `{item}-{part}`, inside a scope of its own |
//! | `/typed/{id}/…`, `/uuid/{id}/…` | the same with a number or a UUID for a parameter |
//! | `/late/{item}/…` | the same with a short `body_timeout` |
//! | `/own/{item}/…` | the same with answers of its own |
//! | `/shared/{item}/…` | all of them in turn, as readers, and with two permits |
//! | `/bare/{item}/…` | nothing |
//!
//! `add` waits for its turn, `/layer/{item}/brief` a little; `hold`, `stream` and the other `brief`s do
//! not wait.

pub mod actix;
pub mod axum;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use distlock::{LockKey, LockManager, LockMode, LockedOptions, key};
use distlock_testkit::{HttpClient, HttpResponse, RedisServer, wait_for};
use futures_util::Stream;
use tokio::sync::Semaphore;

/// How long the locks outlive a process that died: longer than any test, so that none of them can be
/// helped by an expiry.
pub const TTL: Duration = Duration::from_secs(600);
/// How long `add` waits.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long bodies under `/late` may take.
pub const BODY_TIMEOUT: Duration = Duration::from_millis(800);
/// How long `/layer/{item}/brief` waits.
pub const BRIEF: Duration = Duration::from_millis(300);

/// A site that is being served, its store, and a hand on its handlers.
pub struct Site {
    /// Where the locks are.
    pub redis: RedisServer,
    /// Where it listens.
    pub addr: SocketAddr,
    /// What its handlers do.
    pub work: Arc<Work>,
}

impl Site {
    /// Starts it with what `serve` serves.
    pub async fn start<F: Future<Output = SocketAddr>>(serve: impl FnOnce(Arc<Work>) -> F) -> Self {
        let redis = RedisServer::start();
        let builder = LockManager::builder().url(redis.url()).ttl(TTL);
        let patient = builder.clone().wait(PATIENCE).connect().await.expect("connect");
        let hasty = builder.connect().await.expect("connect");
        let work = Arc::new(Work::new(patient, hasty));
        let addr = serve(work.clone()).await;
        Self { redis, addr, work }
    }

    /// One `POST` on a connection of its own.
    pub async fn post(&self, path: &str) -> HttpResponse {
        HttpClient::once(self.addr, "POST", path).await.expect(path)
    }

    /// A `POST` that was sent, on a connection of its own.
    pub async fn begin(&self, path: &str) -> HttpClient {
        let mut client = HttpClient::connect(self.addr).await.expect("connect");
        client.send("POST", path, "").await.expect(path);
        client
    }

    /// Nothing is left of any lock.
    pub async fn nothing_is_locked(&self) {
        wait_for("no lock is left", async || self.redis.lock_keys().is_empty()).await;
    }
}

/// What handlers do, and the signals they send and get.
pub struct Work {
    /// Waits for its turn.
    pub patient: LockManager,
    /// Does not wait.
    pub hasty: LockManager,
    /// A number that is read, and written a moment later.
    value: AtomicU64,
    /// `hold`s that have begun.
    pub begun: AtomicU32,
    /// `hold`s that were ended, by their return or by being dropped.
    pub ended: AtomicU32,
    /// `hold`s that were polled to their end.
    pub finished: AtomicU32,
    /// Bodies that were read in a task of their own and did not come.
    pub unread: AtomicU32,
    /// One permit lets one `hold` return, or one more piece of a stream go.
    pub go: Semaphore,
}

impl Work {
    fn new(patient: LockManager, hasty: LockManager) -> Self {
        Self {
            patient,
            hasty,
            value: AtomicU64::new(0),
            begun: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            finished: AtomicU32::new(0),
            unread: AtomicU32::new(0),
            go: Semaphore::new(0),
        }
    }

    /// The number that `add` adds to.
    pub fn value(&self) -> u64 {
        self.value.load(SeqCst)
    }

    /// Reads, waits, and writes: two at a time lose an addition.
    pub async fn add(&self) -> String {
        let value = self.value.load(SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.value.store(value + 1, SeqCst);
        (value + 1).to_string()
    }

    /// Returns when the test lets it.
    pub async fn hold(&self) -> String {
        struct Ended<'a>(&'a AtomicU32);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let _ended = Ended(&self.ended);
        self.begun.fetch_add(1, SeqCst);
        self.go.acquire().await.expect("never closed").forget();
        self.finished.fetch_add(1, SeqCst);
        "held".to_owned()
    }

    /// Fails badly.
    pub fn panic(&self) -> ! {
        panic!("this handler is meant to panic");
    }

    /// A body of three pieces, each sent when the test lets it. `lock` lives as long.
    pub fn stream<L>(
        self: Arc<Self>,
        lock: L,
    ) -> impl Stream<Item = Result<&'static str, std::io::Error>> {
        futures_util::stream::unfold((0, lock), move |(sent, lock)| {
            let work = self.clone();
            async move {
                if sent == 3 {
                    return None;
                }
                work.go.acquire().await.expect("never closed").forget();
                Some((Ok("piece "), (sent + 1, lock)))
            }
        })
    }

    /// `count` handlers have begun to hold.
    pub async fn wait_until_begun(&self, count: u32) {
        wait_for("a handler begins", async || self.begun.load(SeqCst) == count).await;
    }
}

/// Waits for its turn, whatever the manager says.
pub struct Patient;

impl LockedOptions for Patient {
    const WAIT: Option<Duration> = Some(PATIENCE);
    const NAME: Option<&'static str> = Some("patient");
}

/// Holds its lock together with other readers.
pub struct Reading;

impl LockedOptions for Reading {
    const MODE: Option<LockMode> = Some(LockMode::Read);
}

/// Holds its lock together with one other.
pub struct OneOfTwo;

impl LockedOptions for OneOfTwo {
    const PERMITS: Option<u32> = Some(2);
}

/// The error type of users who take any error.
#[derive(Debug)]
pub struct AnyError(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for AnyError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// The item of the path.
#[derive(Clone)]
pub struct Item(String);

impl From<Item> for LockKey {
    fn from(Item(item): Item) -> Self {
        key!("item:{item}")
    }
}

/// `/fn/{item}/…`: the same key by hand.
fn key_of_path(path: &str) -> Option<LockKey> {
    let item = path.split('/').nth(2)?;
    Some(key!("item:{item}"))
}
