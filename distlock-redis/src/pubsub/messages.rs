//! Messages to other processes, and the channels of a cluster's shards.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::store::{Fault, LockFilter, Notification, ProcessMessage};
use distlock_core::token::Token;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};

use crate::connection::error::is_denied;
use crate::connection::live::ConnectionHandle;
use crate::pubsub::subscription::{MANY_CHANNELS, Subscription, stem, stem_in_slot};
use crate::slots::Slot;

/// Sends messages to other processes. Returns for each whether it had a subscriber.
pub(crate) async fn tell(
    connection: &mut ConnectionHandle,
    messages: &[ProcessMessage],
    answer_by: Moment,
) -> Result<Vec<bool>, Fault> {
    let mut pipeline = redis::Pipeline::with_capacity(messages.len());
    for ProcessMessage { prefix, to, text } in messages {
        pipeline.cmd("PUBLISH").arg(stem(prefix) + to).arg(text);
    }
    let answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
    Ok(answers.iter().map(|answer| matches!(answer, Value::Int(1..))).collect())
}

/// Notifies the owner of a token that the lock was taken away.
pub(crate) async fn notify_taken(
    connection: &mut ConnectionHandle,
    lock: &LockName,
    token: &str,
    sharded: bool,
    answer_by: Moment,
) {
    let Some(owner) = Token::parse(token).map(|token| token.process) else { return };
    let (name, stem) = match sharded {
        true => ("SPUBLISH", stem_in_slot(lock.prefix(), Slot::of(lock.stored()))),
        false => ("PUBLISH", stem(lock.prefix())),
    };
    let mut publish = redis::cmd(name);
    publish.arg(stem + owner);
    publish.arg(["x ", token, " ", lock.stored()].concat());
    let _ = connection.command(&publish, answer_by).await;
}

impl Subscription {
    /// Subscribes the channels of a shard that are not subscribed yet, and unsubscribes idle ones. Each command is for
    /// one slot. Returns whether there may be more.
    pub(crate) async fn subscribe_slots(
        &self,
        sharded: &AtomicBool,
        connection: &mut MultiplexedConnection,
    ) -> Result<bool, RedisError> {
        let idle = self.others().forget(Clock::Boottime.now());
        let unsubscribed = self.others().unsubscribed(MANY_CHANNELS);
        let mut pipeline = Pipeline::with_capacity(idle.len() + unsubscribed.len());
        for stem in &idle {
            pipeline.cmd("SUNSUBSCRIBE").arg(self.channel(stem));
        }
        for stem in &unsubscribed {
            pipeline.cmd("SSUBSCRIBE").arg(self.channel(stem));
        }
        if pipeline.is_empty() {
            return Ok(false);
        }
        let answers = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
        let mut subscribed = Vec::new();
        for (stem, answer) in unsubscribed.iter().zip(&answers[idle.len()..]) {
            let Value::ServerError(error) = answer else {
                subscribed.push(stem.clone());
                continue;
            };
            let error = RedisError::from(error.clone());
            if error.to_string().contains("unknown command") {
                sharded.store(false, Ordering::Relaxed);
                self.others().remove_all();
                return Ok(false);
            }
            if is_denied(&error) {
                return Err(error);
            }
            // The slot is on another node, and is used there.
            self.others().remove(stem);
        }
        self.others().mark_subscribed(&subscribed);
        self.denial_reported.store(false, Ordering::Release);
        self.interrupted(&subscribed);
        Ok(unsubscribed.len() == MANY_CHANNELS)
    }

    /// Handles that a slot has left this node together with its channels.
    pub(crate) fn on_slot_gone(&self, channel: &[u8]) {
        let Some(process) = self.subscriber.get().map(|subscriber| &subscriber.process) else {
            return;
        };
        let stem = std::str::from_utf8(channel).ok().and_then(|name| name.strip_suffix(&**process));
        // A channel that is unknown was not used any more.
        if let Some(stem) = stem
            && self.others().remove(stem)
        {
            self.interrupted(&[stem.to_owned()]);
        }
    }

    /// Reports that messages about the locks of these slots may have been missed.
    pub(crate) fn interrupted(&self, stems: &[String]) {
        if !stems.is_empty() {
            let slots: HashSet<_> = stems.iter().map(|stem| Slot::of(stem)).collect();
            let is_of_them = |lock: &LockName| slots.contains(&Slot::of(lock.stored()));
            self.notify(Notification::InterruptedFor(LockFilter(&is_of_them)));
        }
    }
}
