//! Being told: one connection per manager that is subscribed to its wake-up channels.
//!
//! Whoever frees a lock looks whether the next owner's channel has a subscriber, so that one who died
//! is skipped at once. While this connection is down, or where pub/sub is not allowed, new
//! tokens say that their owner cannot be told, and he looks from time to time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::eviction;
use super::link::{Link, LinkConfig, connect};
use crate::error::LockName;
use crate::jitter::jittered;
use crate::namespace::StoredName;
use crate::observe;
use crate::race::{any, until};
use crate::store::{Ears, Message, News};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Permissions are not changed often.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

/// The channels of one manager.
pub(crate) struct Wakes {
    /// The prefix of the manager, with its separator.
    prefix: String,
    /// Its channel is subscribed.
    hears: AtomicBool,
    /// Other prefixes that requests have named, and whether their channels are subscribed.
    others: Mutex<HashMap<String, bool>>,
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
        let mut others = self.others();
        if let Some(hears) = others.get(lock.prefix()) {
            return *hears;
        }
        others.insert(lock.prefix().to_owned(), false);
        self.wanted.notify_one();
        false
    }

    /// How waiters learn that a lock is theirs.
    pub(crate) fn state(&self) -> &'static str {
        match self.hears.load(Ordering::Acquire) {
            true => "told",
            false => "looking",
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
        let [Value::BulkString(channel), Value::BulkString(text)] = data.as_slice() else { return };
        let (Ok(channel), Ok(text)) = (std::str::from_utf8(channel), std::str::from_utf8(text))
        else {
            return;
        };
        let Some(prefix) = channel.rsplit_once("wake:").map(|(prefix, _)| prefix) else { return };
        let mut words = text.splitn(3, ' ');
        let (Some(kind), Some(token), Some(stored)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let message = Message { prefix, stored: &StoredName::new(stored.to_owned()), token };
        match kind {
            "g" => self.tell(News::Reserved(message)),
            "s" => self.tell(News::Behind(message)),
            "x" => self.tell(News::TakenAway(message)),
            _ => {}
        }
    }

    async fn subscribe_all(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        if !self.hears.load(Ordering::Acquire) {
            let channel = self.channel(&self.prefix);
            connection.subscribe(&channel).await?;
            // Who may listen but not speak would have others wait for words that never come.
            redis::cmd("PUBLISH").arg(&channel).arg("").exec_async(connection).await?;
            self.hears.store(true, Ordering::Release);
            self.said.store(false, Ordering::Release);
            self.tell(News::Interrupted);
        }
        let others: Vec<_> = {
            let others = self.others();
            others.iter().filter(|(_, hears)| !**hears).map(|(prefix, _)| prefix.clone()).collect()
        };
        for prefix in others {
            connection.subscribe(self.channel(&prefix)).await?;
            self.others().insert(prefix, true);
            self.tell(News::Interrupted);
        }
        Ok(())
    }

    /// Nothing is heard any more.
    fn went_deaf(&self) {
        self.hears.store(false, Ordering::Release);
        self.others().values_mut().for_each(|hears| *hears = false);
        self.tell(News::Interrupted);
    }

    fn others(&self) -> MutexGuard<'_, HashMap<String, bool>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once why waiters look instead of being told.
    fn say(&self, error: &RedisError) {
        if !self.said.swap(true, Ordering::AcqRel) {
            observe::wake_ups_denied(error);
        }
    }
}

async fn supervise(wakes: Arc<Wakes>, config: LinkConfig, links: Vec<Arc<Link>>) {
    let mut pause = FIRST_PAUSE;
    loop {
        any(links.iter().map(|link| link.is_up())).await;
        let denied = match session(&wakes, &config).await {
            Ok(()) => {
                pause = FIRST_PAUSE;
                false
            }
            Err(error) => {
                // Anything but a broken connection is a server that says no.
                let denied = error.code().is_some() && !error.is_io_error();
                if denied {
                    wakes.say(&error);
                }
                denied
            }
        };
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
            let subscribed = wakes.subscribe_all(&mut connection);
            match timeout(config.connect_timeout, subscribed).await {
                Ok(Ok(())) => wakes.wanted.notified().await,
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
