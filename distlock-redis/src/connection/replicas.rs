//! Having what was written confirmed by replicas: `WAIT` (`replicas(n)`), and which writes of a connection were;
//! `replicated` asks.
//!
//! It confirms what was written before it on the *same* connection, and the server answers nothing else there
//! meanwhile. So one confirms all that were: while one is under way, those that try to take a lock meanwhile share
//! the next. A try that is alone carries its own, in the same write.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::millis;
use distlock_core::store::{BackendKind, Fault};
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::Notify;

use crate::connection::error::fault;

/// By how many replicas grants and renewals are confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    pub count: u32,
    /// How long that may take; the server answers nothing else on the connection meanwhile.
    pub timeout: Duration,
}

impl Replicas {
    /// What asks for it.
    pub(crate) fn wait(&self) -> Cmd {
        let mut wait = Cmd::with_capacity(3, 24);
        wait.arg("WAIT").arg(self.count).arg(millis(self.timeout).max(1));
        wait
    }

    /// Whether the answer to it says so.
    pub(crate) fn check(&self, answer: &Value) -> Result<(), Fault> {
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
}

/// The `WAIT`s of one connection.
#[derive(Default)]
pub(crate) struct ReplicaWaits {
    state: Mutex<WaitState>,
    /// One was answered or given up.
    changed: Notify,
}

/// Each write that is to be confirmed has a ticket, drawn when it was sent or later: a `WAIT` that is sent
/// after that covers it.
#[derive(Default)]
struct WaitState {
    drawn: u64,
    /// Up to which ticket the one under way asks.
    asking: Option<u64>,
    /// An [`WaitSender`] asks next.
    has_next: bool,
    /// Tickets up to this one are confirmed.
    confirmed: u64,
    /// Tickets up to this one were asked for last and not confirmed, with the answer.
    refused: Option<(u64, Value)>,
    /// The last one that was answered was for several.
    was_shared: bool,
}

/// What a caller that wants a ticket confirmed does next.
pub(crate) enum TicketStatus {
    Confirmed,
    Refused(Value),
    /// It asks, for all tickets there are by then.
    Ask(WaitSender),
    /// Another one asks.
    Wait,
}

/// A caller that asks next, or is asking. Dropped without an answer, it leaves that to another one.
pub(crate) struct WaitSender {
    waits: Arc<ReplicaWaits>,
    pub(crate) replicas: Replicas,
    /// Which tickets it asks for, once it does.
    asks: Option<CoveredTickets>,
}

#[derive(Clone, Copy)]
struct CoveredTickets {
    covers: u64,
    for_several: bool,
}

impl ReplicaWaits {
    /// For what was sent before.
    pub(crate) fn ticket(&self) -> u64 {
        let mut state = self.state();
        state.drawn += 1;
        state.drawn
    }

    /// Adds a `WAIT` behind a write that is about to be sent, if it is likely to be alone.
    pub(crate) fn ask_with(
        self: &Arc<Self>,
        replicas: Replicas,
        pipeline: &mut Pipeline,
    ) -> Option<WaitSender> {
        let mut state = self.state();
        if state.asking.is_some() || state.has_next || state.was_shared {
            return None;
        }
        state.drawn += 1;
        let covers = state.drawn;
        state.asking = Some(covers);
        pipeline.add_command(replicas.wait());
        let asks = Some(CoveredTickets { covers, for_several: false });
        Some(WaitSender { waits: self.clone(), replicas, asks })
    }

    /// A ticket for what was sent a moment ago. Its caller asks next, if no other does yet.
    pub(crate) fn sent(self: &Arc<Self>, replicas: Replicas) -> (u64, Option<WaitSender>) {
        let mut state = self.state();
        state.drawn += 1;
        let is_first = !std::mem::replace(&mut state.has_next, true);
        (state.drawn, is_first.then(|| WaitSender { waits: self.clone(), replicas, asks: None }))
    }

    /// Whether a ticket is confirmed by now.
    pub(crate) fn is_confirmed(&self, ticket: u64) -> bool {
        ticket <= self.state().confirmed
    }

    /// What becomes of a ticket.
    pub(crate) fn status(self: &Arc<Self>, ticket: u64, replicas: Replicas) -> TicketStatus {
        let mut state = self.state();
        // First: what a later one has confirmed is confirmed, whatever an earlier one said.
        if ticket <= state.confirmed {
            return TicketStatus::Confirmed;
        }
        if let Some((refused, answer)) = &state.refused
            && ticket <= *refused
        {
            return TicketStatus::Refused(answer.clone());
        }
        if state.has_next || state.asking.is_some_and(|covers| ticket <= covers) {
            return TicketStatus::Wait;
        }
        state.has_next = true;
        TicketStatus::Ask(WaitSender { waits: self.clone(), replicas, asks: None })
    }

    /// Resolves when a `WAIT` was answered or given up after this was called.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitSender {
    /// To be called right before a `WAIT` is sent: it covers the tickets that were drawn until now. False while
    /// another one is under way.
    pub(crate) fn begin(&mut self) -> bool {
        let mut state = self.waits.state();
        if state.asking.is_some() {
            return false;
        }
        let refused = state.refused.as_ref().map_or(0, |(refused, _)| *refused);
        let before = state.confirmed.max(refused);
        let covers = state.drawn;
        state.asking = Some(covers);
        state.has_next = false;
        self.asks = Some(CoveredTickets { covers, for_several: covers > before + 1 });
        true
    }

    /// Notes the answer for all tickets that it covers. Returns the last of them.
    pub(crate) fn answered(self, answer: Value) -> Option<u64> {
        let CoveredTickets { covers, for_several } = self.asks?;
        let mut state = self.waits.state();
        state.was_shared = for_several;
        match self.replicas.check(&answer) {
            Ok(()) => state.confirmed = state.confirmed.max(covers),
            Err(_) => state.refused = Some((covers, answer)),
        }
        Some(covers)
    }
}

impl Drop for WaitSender {
    fn drop(&mut self) {
        match self.asks {
            Some(_) => self.waits.state().asking = None,
            None => self.waits.state().has_next = false,
        }
        self.waits.changed.notify_waiters();
    }
}
