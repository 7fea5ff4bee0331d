//! Having what was written confirmed by replicas: `WAIT` (`replicas(n)`).
//!
//! It confirms what was written before it on the *same* connection. One confirms all that were: while one is
//! under way, those that were granted a lock meanwhile share the next. A lone try carries its own, in the same
//! write.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::Notify;

use super::connection::{Connection, RedisOr};
use super::error::fault;
use crate::clock::Moment;
use crate::error::BackendKind;
use crate::limits::millis;
use crate::store::Fault;

/// By how many replicas grants and renewals are confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    /// How long that may take; the server answers nothing else on the connection meanwhile.
    pub(crate) timeout: Duration,
}

impl Replicas {
    /// What asks for it.
    pub(super) fn wait(&self) -> Cmd {
        let mut wait = Cmd::with_capacity(3, 24);
        wait.arg("WAIT").arg(self.count).arg(millis(self.timeout).max(1));
        wait
    }

    /// Whether the answer to it says so.
    pub(super) fn check(&self, answer: &Value) -> Result<(), Fault> {
        match answer {
            Value::Int(confirmed) if *confirmed >= i64::from(self.count) => Ok(()),
            Value::Int(confirmed) => Err(self.too_few(*confirmed)),
            Value::ServerError(error) => Err(fault(&RedisError::from(error.clone()))),
            _ => Err(self.too_few(0)),
        }
    }

    fn too_few(&self, confirmed: i64) -> Fault {
        let text = format!("{confirmed} of {} replicas confirmed in time", self.count);
        Fault::passing(BackendKind::Other, text)
    }

    /// Has everything confirmed that was written on this connection before. `lead` has sent what asks for it,
    /// and has its answer.
    ///
    /// Cancel safe: if the one who asks for several is dropped, another one asks.
    pub(super) async fn confirm(
        &self,
        live: &mut Connection,
        ticket: Option<u64>,
        answer_by: Moment,
    ) -> Result<(), Fault> {
        let waits = live.waits.clone();
        let ticket = ticket.unwrap_or_else(|| waits.ticket());
        loop {
            let changed = waits.changed.notified();
            match waits.stand(ticket, *self) {
                Stand::Confirmed => return Ok(()),
                Stand::Refused(answer) => return self.check(&answer),
                Stand::Lead(lead) => {
                    let answer = live.command(&self.wait(), answer_by).await;
                    lead.answered(answer.map_err(RedisOr::into_fault)?);
                }
                Stand::Wait => {
                    live.within(changed, answer_by).await.ok_or_else(Fault::timed_out)?
                }
            }
        }
    }
}

/// The `WAIT`s of one connection.
#[derive(Default)]
pub(super) struct Waits {
    state: Mutex<State>,
    changed: Notify,
}

/// Each write that is to be confirmed has a ticket, drawn when it was answered.
#[derive(Default)]
struct State {
    drawn: u64,
    /// One is under way.
    asking: bool,
    /// Tickets up to this one are confirmed.
    confirmed: u64,
    /// Tickets up to this one were asked for last and not confirmed, with the answer.
    refused: Option<(u64, Value)>,
}

/// What one who wants a ticket confirmed does next.
enum Stand {
    Confirmed,
    Refused(Value),
    /// It asks, for all tickets there are.
    Lead(Lead),
    /// Another one asks.
    Wait,
}

/// Who asks, and for which tickets. Dropped without an answer it leaves that to another one.
pub(super) struct Lead {
    replicas: Replicas,
    waits: Arc<Waits>,
    covers: u64,
}

impl Waits {
    fn ticket(&self) -> u64 {
        let mut state = self.state();
        state.drawn += 1;
        state.drawn
    }

    /// Adds a `WAIT` behind a write, unless another is under way.
    pub(super) fn lead(
        self: &Arc<Self>,
        replicas: Replicas,
        pipeline: &mut Pipeline,
    ) -> Option<Lead> {
        let mut state = self.state();
        if state.asking {
            return None;
        }
        state.asking = true;
        state.drawn += 1;
        pipeline.add_command(replicas.wait());
        Some(Lead { replicas, waits: self.clone(), covers: state.drawn })
    }

    fn stand(self: &Arc<Self>, ticket: u64, replicas: Replicas) -> Stand {
        let mut state = self.state();
        // First: what a later one has confirmed is confirmed, whatever an earlier one said.
        if ticket <= state.confirmed {
            return Stand::Confirmed;
        }
        if let Some((refused, answer)) = &state.refused
            && ticket <= *refused
        {
            return Stand::Refused(answer.clone());
        }
        if state.asking {
            return Stand::Wait;
        }
        state.asking = true;
        Stand::Lead(Lead { replicas, waits: self.clone(), covers: state.drawn })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lead {
    /// Notes the answer for all whom it concerns. Returns the ticket of its own write.
    pub(super) fn answered(self, answer: Value) -> u64 {
        let mut state = self.waits.state();
        match self.replicas.check(&answer) {
            Ok(()) => state.confirmed = state.confirmed.max(self.covers),
            Err(_) => state.refused = Some((self.covers, answer)),
        }
        self.covers
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.waits.state().asking = false;
        self.waits.changed.notify_waiters();
    }
}
