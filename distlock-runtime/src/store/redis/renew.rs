//! Renewals (R10): many leases in one pipeline. Each compares before it extends, and never creates the
//! lock.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Pipeline, RedisError, Value};

use super::connection::{Connection, Live, ints};
use super::error::{fault, is_missing_script};
use super::fence::{Fence, Fences};
use super::script::{Arg, Script, Scripts};
use super::server::Server;
use crate::clock::{Clock, Moment};
use crate::error::BackendKind;
use crate::limits::millis;
use crate::store::owner::Owner;
use crate::store::{Attempt, Fault, Owned, Renewal, Renewed};

/// How often another counter value is drawn when the counter goes back again and again.
const DRAWS: usize = 3;
const BACKWARDS: &str = "the counter of fencing tokens goes backwards";

/// The renewals of one manager.
pub(super) struct Renewals {
    scripts: Scripts,
    /// How many were sent: each has a number, which its answer repeats.
    sent: AtomicU64,
}

impl Renewals {
    pub(super) fn new() -> Self {
        Self { scripts: Scripts::renew(), sent: AtomicU64::new(0) }
    }

    /// Extends all of these leases, of one node.
    pub(super) async fn extend(
        &self,
        server: &Server,
        renewals: &[Renewal],
        live: &mut Connection,
        answer_by: Moment,
    ) -> Result<Renewed, Fault> {
        let sent = Clock::Boottime.now();
        server.record.used(sent);
        let mut pipeline = Pipeline::with_capacity(renewals.len());
        let first = self.sent.fetch_add(renewals.len() as u64, Ordering::Relaxed);
        for (number, renewal) in (first..).zip(renewals) {
            renewal.owner.stored_until(sent.after(renewal.ttl));
            server.keep_subscribed(&renewal.owner.lock, renewal.ttl);
            let (keys, args) = words(&server.fences, renewal, number);
            let script = self.scripts.of(renewal.owner.limit);
            pipeline.add_command(script.by_hash(keys_of(renewal, &keys), &args));
        }
        let replicas = server.replicas;
        if let Some(replicas) = replicas {
            pipeline.add_command(replicas.wait());
        }
        let mut answers: Vec<_> = live.pipeline(&pipeline, sent, answer_by).await?;
        let mut confirmed = match replicas {
            Some(replicas) => replicas.check(&answers.pop().unwrap_or(Value::Nil)),
            None => Ok(()),
        };
        let missing: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
        if !missing.is_empty() {
            let mut again = Pipeline::with_capacity(missing.len());
            let mut known = Vec::new();
            for at in &missing {
                let renewal = &renewals[*at];
                let alone = renewal.owner.limit.is_alone();
                let (keys, args) = words(&server.fences, renewal, first + *at as u64);
                // One text of each is enough: by the next command the server knows the script.
                let call = if known.contains(&alone) { Script::by_hash } else { Script::by_text };
                known.push(alone);
                let script = self.scripts.of(renewal.owner.limit);
                again.add_command(call(script, keys_of(renewal, &keys), &args));
            }
            let repeated = live.pipeline(&again, Clock::Boottime.now(), answer_by).await?;
            missing.iter().zip(repeated).for_each(|(at, answer)| answers[*at] = answer);
            confirmed = server.confirm(live, None, answer_by).await;
        }
        answers.iter().for_each(|answer| live.check_answer(answer));
        let answers = (first..).zip(renewals).zip(&answers);
        let answers = answers
            .map(|((number, one), answer)| checked(&server.fences, one, number, answer, live))
            // What only this server knows would end with it: the old deadline stands.
            .map(|answer| match (answer, &confirmed) {
                (Ok(Owned::Yes { .. }), Err(fault)) => Err(fault.clone()),
                (answer, _) => answer,
            });
        Ok(Renewed { sent, answers: answers.collect() })
    }

    /// R2: another counter value for a lock that was granted with one that is not new. `None` if the
    /// lock is not the token's any more.
    ///
    /// Drawn by a renewal, which neither frees nor creates the lock: other callers may depend on its
    /// token by now.
    pub(super) async fn draw_again(
        &self,
        fences: &Fences,
        attempt: &Attempt,
        counter: &Fence,
        live: &mut Connection,
        answer_by: Moment,
    ) -> Result<Option<u64>, Fault> {
        for _ in 0..DRAWS {
            fences.raise(counter, None, live, answer_by).await?;
            let seen = counter.seen();
            let ttl = attempt.term.stored_for();
            let (owner, fence) = (attempt.owner.clone(), seen);
            let renewal = Renewal { owner, ttl, draw: true, fence };
            let number = self.sent.fetch_add(1, Ordering::Relaxed);
            renewal.owner.stored_until(Clock::Boottime.now().after(ttl));
            let (keys, args) = words(fences, &renewal, number);
            let script = self.scripts.of(renewal.owner.limit);
            let answer = live.run(script, keys_of(&renewal, &keys), &args, answer_by).await?;
            match owned(&answer, number, live)? {
                Owned::Yes { fence: Some(fence), .. } if fences.is_new(counter, fence, seen)? => {
                    return Ok(Some(fence));
                }
                Owned::Yes { .. } => {}
                Owned::No => return Ok(None),
            }
        }
        Err(Fault::lasting(BackendKind::Other, BACKWARDS))
    }
}

/// What the script is run with; see [`keys_of`] for how many of the keys.
fn words<'a>(
    fences: &'a Fences,
    renewal: &'a Renewal,
    number: u64,
) -> ([Arg<'a>; 3], [Arg<'a>; 4]) {
    let Owner { lock, token, .. } = &*renewal.owner;
    let counter = fences.key(lock);
    let keys = [Arg::Text(lock.stored()), Arg::Queue(lock), Arg::Text(counter)];
    let (ttl, draw) = (Arg::Number(millis(renewal.ttl)), Arg::Number(renewal.draw.into()));
    (keys, [Arg::Text(token), ttl, draw, Arg::Number(number)])
}

/// The counter is the last key, and only named where a value is drawn from it.
fn keys_of<'a, 'b>(renewal: &Renewal, keys: &'b [Arg<'a>; 3]) -> &'b [Arg<'a>] {
    &keys[..2 + usize::from(renewal.draw)]
}

/// The answer to a renewal; an error if it has drawn a counter value (R5) that is not new.
fn checked(
    fences: &Fences,
    renewal: &Renewal,
    number: u64,
    answer: &Value,
    live: &Live,
) -> Result<Owned, Fault> {
    let owned = owned(answer, number, live)?;
    if let Owned::Yes { fence: Some(fence), .. } = owned
        && !fences.is_new(&fences.of(&renewal.owner.lock), fence, renewal.fence)?
    {
        return Err(Fault::passing(BackendKind::Other, BACKWARDS));
    }
    Ok(owned)
}

/// The answer to the renewal of this number; another number drops the connection.
fn owned(answer: &Value, number: u64, live: &Live) -> Result<Owned, Fault> {
    let parts = match answer {
        Value::Array(parts) => parts,
        Value::ServerError(error) => return Err(fault(&RedisError::from(error.clone()))),
        _ => return Err(live.desynchronized()),
    };
    match ints(parts) {
        [Some(state), Some(own), fence, ..] if u64::try_from(own) == Ok(number) => match state {
            0 => Ok(Owned::No),
            state => {
                let fence = fence.and_then(|fence| u64::try_from(fence).ok());
                Ok(Owned::Yes { contended: state == 2, fence })
            }
        },
        _ => Err(live.desynchronized()),
    }
}

fn is_unknown(answer: &Value) -> bool {
    match answer {
        Value::ServerError(error) => is_missing_script(&RedisError::from(error.clone())),
        _ => false,
    }
}
