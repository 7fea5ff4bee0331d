//! Messages to other processes.

use redis::Value;

use crate::connection::live::Connection;
use crate::pubsub::subscription::{stem, stem_in_slot};
use crate::slots::Slot;
use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::store::{Fault, Letter};
use distlock_core::token::Token;

/// Sends messages to other processes; says of each whether there was a subscriber.
pub(crate) async fn tell(
    live: &mut Connection,
    letters: &[Letter],
    answer_by: Moment,
) -> Result<Vec<bool>, Fault> {
    let mut pipeline = redis::Pipeline::with_capacity(letters.len());
    for Letter { prefix, to, text } in letters {
        pipeline.cmd("PUBLISH").arg(stem(prefix) + to).arg(text);
    }
    let answers = live.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
    Ok(answers.iter().map(|answer| matches!(answer, Value::Int(1..))).collect())
}

/// Notifies the owner of a token that the lock was taken away from it.
pub(crate) async fn notify_taken(
    live: &mut Connection,
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
    let _ = live.command(&publish, answer_by).await;
}
