//! The pub/sub subscription: one connection per manager, subscribed to its wake-up channels.
//!
//! A release reserves the lock for the next waiter only if that waiter's channel has a subscriber, so that waiters of
//! dead processes are skipped at once. While this connection is down, or where pub/sub is not allowed, new tokens say
//! that their process has no subscription, and their waiters poll (R13).
//!
//! A message is only a hint (R4): ownership is always the reply to a command.
//!
//! The supervisor has a loop of its own instead of [`keep_connected`](distlock_core::reconnect::keep_connected): a user
//! who may not subscribe must not be retried at the usual pace, although the connection itself succeeds each time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use distlock_core::back_off::{BackOff, jittered};
use distlock_core::catch_panic::shielded;
use distlock_core::clock::Clock;
use distlock_core::name::{LockName, StoredName};
use distlock_core::select::{any, until};
use distlock_core::store::{Listener, Message, Notification, StoreEvents, WakeUps};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::connection::connect::connect;
use crate::connection::discover::Address;
use crate::connection::error::{fault, is_denied, words};
use crate::connection::handshake;
use crate::connection::link::{Link, LinkConfig};
use crate::pubsub::prefixes::{Prefixes, kept_until};
use crate::slots::Slot;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The pause after missing permissions, which do not change often.
const DENIED_PAUSE: Duration = Duration::from_secs(30);
/// How many channels one command subscribes or unsubscribes.
pub(crate) const MANY_CHANNELS: usize = 500;
/// How often to look for prefixes that are no longer used.
const TIDY_UP: Duration = Duration::from_secs(20);
/// After this many refusals in a row, for any reason, the reason is reported.
const MANY_REFUSALS: usize = 10;

/// The channels for messages about locks.
pub(crate) enum Channels {
    /// One for each prefix. The manager's is always subscribed.
    OfPrefixes,
    /// One for each prefix and slot of a cluster that is used, at the node that has the slot. If the cluster sends
    /// messages to all nodes, there are none here.
    OfShard { sharded: Arc<AtomicBool> },
}

/// The subscription of one manager at one server.
pub(crate) struct Subscription {
    /// The prefix of the manager, with its separator.
    prefix: String,
    channels: Channels,
    /// Whether the channel of that prefix is subscribed.
    subscribed: AtomicBool,
    /// The other channels. Their names are stems: channel names without the process.
    others: Mutex<Prefixes>,
    /// Notified when there is a channel to subscribe.
    wanted: Notify,
    /// Whether the reason for a missing subscription was reported.
    pub(crate) denial_reported: AtomicBool,
    /// Whether the server was asked for its eviction policy.
    eviction_checked: AtomicBool,
    pub(crate) subscriber: OnceLock<Subscriber>,
}

/// The receiver of messages to this process.
pub(crate) struct Subscriber {
    pub(crate) process: String,
    listener: Listener,
}

impl Subscription {
    pub(crate) fn new(prefix: String, channels: Channels) -> Self {
        Self {
            prefix,
            channels,
            subscribed: AtomicBool::new(false),
            others: Mutex::default(),
            wanted: Notify::new(),
            denial_reported: AtomicBool::new(false),
            eviction_checked: AtomicBool::new(false),
            subscriber: OnceLock::new(),
        }
    }

    /// Keeps the subscription up from now on. It connects whenever one of the `links` is connected. Without links it
    /// connects whenever some server is known to reply.
    pub(crate) fn start(
        self: &Arc<Self>,
        process: &str,
        listener: Listener,
        config: LinkConfig,
        links: Vec<Arc<Link>>,
        handle: &Handle,
    ) {
        if self.subscriber.set(Subscriber { process: process.to_owned(), listener }).is_ok() {
            handle.spawn(supervise(self.clone(), config, links));
        }
    }

    /// Whether a process that reserves this lock for a token of ours can notify us.
    pub(crate) fn covers(&self, lock: &LockName) -> bool {
        match self.shard() {
            // This is checked for every lock, so it does not count as a use. The channel is used once a lock is waited
            // for.
            Some(_) => {
                self.others().is_subscribed(&stem_in_slot(lock.prefix(), Slot::of(lock.stored())))
            }
            None if lock.prefix() == self.prefix => self.subscribed.load(Ordering::Acquire),
            None => self.is_used(lock, Duration::ZERO),
        }
    }

    /// Notes that the channel for a lock with this ttl is used, unless it is the manager's own. Returns whether it is
    /// subscribed.
    pub(crate) fn is_used(&self, lock: &LockName, ttl: Duration) -> bool {
        let until = kept_until(Clock::Boottime.now(), ttl);
        let stem = match self.shard() {
            None => stem(lock.prefix()),
            Some(sharded) if sharded.load(Ordering::Relaxed) => {
                stem_in_slot(lock.prefix(), Slot::of(lock.stored()))
            }
            Some(_) => return false,
        };
        let known = self.others().used(&stem, until);
        if known.is_none() {
            self.wanted.notify_one();
        }
        known.unwrap_or(false)
    }

    /// Returns how waiters learn that they have the lock.
    pub(crate) fn state(&self) -> WakeUps {
        match self.subscribed.load(Ordering::Acquire) {
            true => WakeUps::Notified,
            false => WakeUps::Polling,
        }
    }

    fn shard(&self) -> Option<&AtomicBool> {
        match &self.channels {
            Channels::OfPrefixes => None,
            Channels::OfShard { sharded } => Some(sharded),
        }
    }

    pub(crate) fn channel(&self, stem: &str) -> String {
        let process = self.subscriber.get().map_or("", |subscriber| &subscriber.process);
        [stem, process].concat()
    }

    pub(crate) fn notify(&self, notification: Notification<'_>) {
        if let Some(subscriber) = self.subscriber.get() {
            (subscriber.listener)(notification);
        }
    }

    fn on_push(&self, push: &PushInfo) {
        let PushInfo { kind, data } = push;
        if let (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) = (kind, data.as_slice())
        {
            return self.on_slot_gone(channel);
        }
        if !matches!(kind, PushKind::Message | PushKind::SMessage) {
            return;
        }
        let [Value::BulkString(channel), Value::BulkString(text)] = data.as_slice() else { return };
        let Ok(text) = std::str::from_utf8(text) else { return };
        match text.split_once(' ') {
            Some(("q", text)) => {
                let Some(prefix) = self.prefix_of(channel) else { return };
                return self.notify(Notification::Question { prefix, text });
            }
            Some(("a", text)) => return self.notify(Notification::Answer(text)),
            _ => {}
        }
        let mut words = text.splitn(3, ' ');
        let (Some(kind), Some(token), Some(stored)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        let message = Message { stored: &StoredName::new(stored.to_owned()), token };
        match kind {
            "g" => self.notify(Notification::Reserved(message)),
            "s" => self.notify(Notification::WaiterBehind(message)),
            "x" => self.notify(Notification::TakenAway(message)),
            _ => {}
        }
    }

    /// Returns the prefix of a channel of ours, with its separator.
    fn prefix_of<'c>(&self, channel: &'c [u8]) -> Option<&'c str> {
        let process = &self.subscriber.get()?.process;
        std::str::from_utf8(channel).ok()?.strip_suffix(process.as_str())?.strip_suffix("wake:")
    }

    /// Subscribes the channels that are not subscribed yet, and unsubscribes idle ones. Works in parts, each of which
    /// is noted when it is done. Returns whether there may be more.
    async fn subscribe_some(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<bool, RedisError> {
        if let Some(sharded) = self.shard() {
            return self.subscribe_slots(sharded, connection).await;
        }
        if !self.subscribed.load(Ordering::Acquire) {
            let channel = self.channel(&stem(&self.prefix));
            connection.subscribe(&channel).await?;
            // If a user may subscribe and not publish, other processes would wait for hints that this one cannot send.
            redis::cmd("PUBLISH").arg(&channel).arg("").exec_async(connection).await?;
            self.subscribed.store(true, Ordering::Release);
            self.denial_reported.store(false, Ordering::Release);
            self.notify(Notification::Interrupted);
        }
        let idle = self.others().forget(Clock::Boottime.now());
        for idle in idle.chunks(MANY_CHANNELS) {
            match connection.unsubscribe(self.channels_of(idle)).await {
                // If that is not allowed, they stay subscribed as long as the connection.
                Err(error) if !is_denied(&error) => return Err(error),
                _ => {}
            }
        }
        // One command for many: one each would take longer than the connection timeout.
        let unsubscribed = self.others().unsubscribed(MANY_CHANNELS);
        if !unsubscribed.is_empty() {
            connection.subscribe(self.channels_of(&unsubscribed)).await?;
            self.others().mark_subscribed(&unsubscribed);
            self.notify(Notification::Interrupted);
        }
        Ok(unsubscribed.len() == MANY_CHANNELS)
    }

    fn channels_of(&self, stems: &[String]) -> Vec<String> {
        stems.iter().map(|stem| self.channel(stem)).collect()
    }

    /// Notes that nothing is subscribed any more.
    fn on_disconnect(&self) {
        self.subscribed.store(false, Ordering::Release);
        let were = self.others().on_disconnect();
        match self.shard() {
            None => self.notify(Notification::Interrupted),
            Some(_) => self.interrupted(&were),
        }
    }

    /// Resolves when there is something to subscribe.
    async fn is_needed(&self) {
        while self.shard().is_some() && self.others().is_empty() {
            self.wanted.notified().await;
        }
    }

    pub(crate) fn others(&self) -> MutexGuard<'_, Prefixes> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when there is a prefix to subscribe, or when it is time to forget some.
    async fn until_wanted(&self) {
        let nothing_to_forget = self.others().is_empty();
        if nothing_to_forget {
            return self.wanted.notified().await;
        }
        let _ = timeout(jittered(TIDY_UP), self.wanted.notified()).await;
    }

    /// Reports once why waiters poll.
    fn warn_denied(&self, error: &RedisError, events: &dyn StoreEvents) {
        if !self.denial_reported.swap(true, Ordering::AcqRel) {
            events.denied(words(error));
        }
    }
}

async fn supervise(subscription: Arc<Subscription>, config: LinkConfig, links: Vec<Arc<Link>>) {
    let mut back_off = BackOff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut refusals = 0;
    loop {
        let reached = async {
            subscription.is_needed().await;
            match links.is_empty() {
                true => config.target.is_known().await,
                false => any(links.iter().map(|link| link.is_up())).await,
            }
        };
        if until(reached, config.target.until_gone()).await.is_none() || config.target.is_gone() {
            return;
        }
        let mut denied = false;
        // Continues after a panic of a listener: without a subscription every waiter would poll.
        match shielded(session(&subscription, &config)).await.unwrap_or(Ok(())) {
            Ok(()) => {
                back_off.reset();
                refusals = 0;
            }
            Err(error) => {
                denied = is_denied(&error);
                refusals = if fault(&error).passing { 0 } else { refusals + 1 };
                if denied || refusals == MANY_REFUSALS {
                    subscription.warn_denied(&error, &*config.events);
                }
            }
        }
        // Nothing is subscribed, so forgotten channels need not be unsubscribed.
        drop(subscription.others().forget(Clock::Boottime.now()));
        if subscription.subscribed.load(Ordering::Acquire) || subscription.shard().is_some() {
            back_off.reset();
            subscription.on_disconnect();
        }
        let pause = back_off.pause();
        tokio::time::sleep(if denied { jittered(DENIED_PAUSE) } else { pause }).await;
    }
}

/// Connects, subscribes, and receives until the connection ends or leads to the wrong server.
async fn session(subscription: &Arc<Subscription>, config: &LinkConfig) -> Result<(), RedisError> {
    let Ok(address) = config.target.find().await else { return Ok(()) };
    let received = receive(subscription, config, &address);
    until(received, config.target.moved_from(&address)).await.unwrap_or(Ok(()))
}

async fn receive(
    subscription: &Arc<Subscription>,
    config: &LinkConfig,
    address: &Address,
) -> Result<(), RedisError> {
    let settings = address.info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let info = address.info.clone().set_redis_settings(settings);
    let receiver = subscription.clone();
    let push = move |push: PushInfo| -> Result<(), std::convert::Infallible> {
        receiver.on_push(&push);
        Ok(())
    };
    let pushed = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_push_sender(push);
    let connected =
        timeout(config.connect_timeout, connect(&info, config.tls.as_deref(), pushed)).await;
    let (mut connection, driver) = connected.map_err(|_| timed_out())??;
    let subscribed = async {
        // Here, because every manager opens this connection and no call waits for it.
        if !subscription.eviction_checked.swap(true, Ordering::AcqRel) {
            let policy = timeout(config.connect_timeout, handshake::policy(&mut connection)).await;
            if let Ok(Some(policy)) = policy {
                config.events.may_evict(policy);
            }
        }
        loop {
            let subscribed = subscription.subscribe_some(&mut connection);
            match timeout(config.connect_timeout, subscribed).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => subscription.until_wanted().await,
                Ok(Err(error)) => return error,
                Err(_) => return timed_out(),
            }
        }
    };
    // The driver ends with the connection.
    match until(subscribed, driver).await {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Returns the names of the channels of a prefix without the process.
pub(crate) fn stem(prefix: &str) -> String {
    [prefix, "wake:"].concat()
}

/// Returns the names of the channels of one slot without the process.
pub(crate) fn stem_in_slot(prefix: &str, slot: Slot) -> String {
    [prefix, "wake:{", &slot.tag(), "}:"].concat()
}

fn timed_out() -> RedisError {
    RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))
}
