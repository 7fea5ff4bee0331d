//! Being told: one connection per manager that is subscribed to its wake-up channels.
//!
//! Whoever frees a lock looks whether the next owner's channel has a subscriber, so that one who died
//! is skipped at once. While this connection is down, or where pub/sub is not allowed, new
//! tokens say that their owner cannot be told, and he looks from time to time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::eviction;
use super::fault::{fault, is_denied, words};
use super::link::{Link, LinkConfig, connect};
use super::prefixes::{Prefixes, kept_until};
use crate::clock::Clock;
use crate::error::LockName;
use crate::jitter::jittered;
use crate::namespace::StoredName;
use crate::observe;
use crate::race::{any, until};
use crate::shield::shielded;
use crate::status::WakeUps;
use crate::store::{Ears, Message, News};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Permissions are not changed often.
const DENIED_PAUSE: Duration = Duration::from_secs(30);
/// How many channels are subscribed or left with one command.
const MANY_CHANNELS: usize = 500;
/// How often prefixes are looked through for those that nobody uses any more.
const TIDY_UP: Duration = Duration::from_secs(20);
/// Who is refused so often, for whatever reason, says why.
const MANY_REFUSALS: usize = 10;

/// The channels of one manager.
pub(crate) struct Wakes {
    /// The prefix of the manager, with its separator.
    prefix: String,
    /// Its channel is subscribed.
    hears: AtomicBool,
    /// Those that requests have named.
    others: Mutex<Prefixes>,
    /// There is a prefix to subscribe.
    wanted: Notify,
    /// Why not was said.
    said: AtomicBool,
    /// The server was asked whether it evicts locks.
    asked: AtomicBool,
    listener: OnceLock<Listener>,
}

struct Listener {
    process: String,
    ears: Ears,
}

impl Wakes {
    pub(crate) fn new(prefix: String) -> Self {
        Self {
            prefix,
            hears: AtomicBool::new(false),
            others: Mutex::default(),
            wanted: Notify::new(),
            said: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            listener: OnceLock::new(),
        }
    }

    /// The prefix of the manager, with its separator.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Subscribes whenever one of `links` is connected, which says that the server can be reached,
    /// for ever.
    pub(crate) fn start(
        self: &Arc<Self>,
        process: &str,
        ears: Ears,
        config: LinkConfig,
        links: Vec<Arc<Link>>,
        handle: &Handle,
    ) {
        if self.listener.set(Listener { process: process.to_owned(), ears }).is_ok() {
            handle.spawn(supervise(self.clone(), config, links));
        }
    }

    /// Whether whoever reserves this lock for a token of ours can tell us.
    pub(crate) fn hears(&self, lock: &LockName) -> bool {
        if lock.prefix() == self.prefix {
            return self.hears.load(Ordering::Acquire);
        }
        self.is_used(lock.prefix(), Duration::ZERO)
    }

    /// A prefix that is not the manager's is used for a lock of this ttl. Whether who reserves that
    /// lock for us can tell us.
    pub(crate) fn is_used(&self, prefix: &str, ttl: Duration) -> bool {
        let until = kept_until(Clock::Boottime.now(), ttl);
        let known = self.others().used(prefix, until);
        if known.is_none() {
            self.wanted.notify_one();
        }
        known.unwrap_or(false)
    }

    /// How waiters learn that a lock is theirs.
    pub(crate) fn state(&self) -> WakeUps {
        match self.hears.load(Ordering::Acquire) {
            true => WakeUps::Notified,
            false => WakeUps::Polling,
        }
    }

    /// What begins the names of the channels of a prefix.
    pub(crate) fn channels(prefix: &str) -> String {
        [prefix, "wake:"].concat()
    }

    fn channel(&self, prefix: &str) -> String {
        let process = self.listener.get().map_or("", |listener| &listener.process);
        Self::channels(prefix) + process
    }

    fn tell(&self, news: News<'_>) {
        if let Some(listener) = self.listener.get() {
            (listener.ears)(news);
        }
    }

    fn push(&self, push: &PushInfo) {
        let PushInfo { kind: PushKind::Message, data } = push else { return };
        let [_, Value::BulkString(text)] = data.as_slice() else { return };
        let Ok(text) = std::str::from_utf8(text) else { return };
        let mut words = text.splitn(3, ' ');
        let (Some(kind), Some(token), Some(stored)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let message = Message { stored: &StoredName::new(stored.to_owned()), token };
        match kind {
            "g" => self.tell(News::Reserved(message)),
            "s" => self.tell(News::Behind(message)),
            "x" => self.tell(News::TakenAway(message)),
            _ => {}
        }
    }

    /// Subscribes what is not subscribed yet, and leaves what nobody uses any more. A part of it at a
    /// time, whose outcome stays: true if there may be more.
    async fn subscribe_some(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<bool, RedisError> {
        if !self.hears.load(Ordering::Acquire) {
            let channel = self.channel(&self.prefix);
            connection.subscribe(&channel).await?;
            // Who may listen but not speak would have others wait for words that never come.
            redis::cmd("PUBLISH").arg(&channel).arg("").exec_async(connection).await?;
            self.hears.store(true, Ordering::Release);
            self.said.store(false, Ordering::Release);
            self.tell(News::Interrupted);
        }
        let idle = self.others().forget(Clock::Boottime.now());
        for idle in idle.chunks(MANY_CHANNELS) {
            match connection.unsubscribe(self.channels_of(idle)).await {
                // Where that is not allowed, they are left with the connection.
                Err(error) if !is_denied(&error) => return Err(error),
                _ => {}
            }
        }
        // One command for many: one after the other they would take longer than a connection may.
        let unheard = self.others().unheard(MANY_CHANNELS);
        if !unheard.is_empty() {
            connection.subscribe(self.channels_of(&unheard)).await?;
            self.others().hear(&unheard);
            self.tell(News::Interrupted);
        }
        Ok(unheard.len() == MANY_CHANNELS)
    }

    fn channels_of(&self, prefixes: &[String]) -> Vec<String> {
        prefixes.iter().map(|prefix| self.channel(prefix)).collect()
    }

    /// Nothing is heard any more.
    fn went_deaf(&self) {
        self.hears.store(false, Ordering::Release);
        self.others().went_deaf();
        self.tell(News::Interrupted);
    }

    fn others(&self) -> MutexGuard<'_, Prefixes> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when there is a prefix to subscribe, or it is time to forget some.
    async fn until_wanted(&self) {
        let nothing_to_forget = self.others().is_empty();
        if nothing_to_forget {
            return self.wanted.notified().await;
        }
        let _ = timeout(jittered(TIDY_UP), self.wanted.notified()).await;
    }

    /// Says once why waiters look instead of being told.
    fn say(&self, error: &RedisError) {
        if !self.said.swap(true, Ordering::AcqRel) {
            observe::wake_ups_denied(&words(error));
        }
    }
}

async fn supervise(wakes: Arc<Wakes>, config: LinkConfig, links: Vec<Arc<Link>>) {
    let (mut pause, mut refusals) = (FIRST_PAUSE, 0);
    loop {
        any(links.iter().map(|link| link.is_up())).await;
        let mut denied = false;
        // Whatever comes of it, somebody has to listen.
        match shielded(session(&wakes, &config)).await.unwrap_or(Ok(())) {
            Ok(()) => (pause, refusals) = (FIRST_PAUSE, 0),
            Err(error) => {
                denied = is_denied(&error);
                refusals = if fault(&error).passing { 0 } else { refusals + 1 };
                if denied || refusals == MANY_REFUSALS {
                    wakes.say(&error);
                }
            }
        }
        // Where nothing is subscribed there is nothing to leave.
        drop(wakes.others().forget(Clock::Boottime.now()));
        if wakes.hears.load(Ordering::Acquire) {
            pause = FIRST_PAUSE;
            wakes.went_deaf();
        }
        tokio::time::sleep(jittered(if denied { DENIED_PAUSE } else { pause })).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Connects, subscribes, and listens until the connection ends.
async fn session(wakes: &Arc<Wakes>, config: &LinkConfig) -> Result<(), RedisError> {
    let settings = config.info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let info = config.info.clone().set_redis_settings(settings);
    let heard = wakes.clone();
    let push = move |push: PushInfo| -> Result<(), std::convert::Infallible> {
        heard.push(&push);
        Ok(())
    };
    let pushed = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_push_sender(push);
    let connected = timeout(config.connect_timeout, connect(&info, pushed)).await;
    let (mut connection, driver, _) = connected.map_err(|_| timed_out())??;
    let subscribed = async {
        // On the one connection that every manager makes and nobody waits for.
        if !wakes.asked.swap(true, Ordering::AcqRel) {
            let policy = timeout(config.connect_timeout, eviction::policy(&mut connection)).await;
            if let Ok(Some(policy)) = policy {
                observe::may_evict(&policy);
            }
        }
        loop {
            let subscribed = wakes.subscribe_some(&mut connection);
            match timeout(config.connect_timeout, subscribed).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => wakes.until_wanted().await,
                Ok(Err(error)) => return error,
                Err(_) => return timed_out(),
            }
        }
    };
    // A driver that ends is a connection that ended.
    match until(subscribed, driver).await {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn timed_out() -> RedisError {
    RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))
}
