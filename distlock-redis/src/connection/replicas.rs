//! Confirmation of writes by replicas with `WAIT` (`replicas(n)`). [`confirm`](crate::commands::confirm) sends the
//! commands.
//!
//! A `WAIT` confirms everything that was written before it on the *same* connection, and blocks the connection
//! meanwhile. So one `WAIT` serves all writes before it. While one is in flight, further attempts to acquire a lock
//! share the next. An attempt that is alone carries its own `WAIT`, in the same write.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::millis;
use distlock_core::store::{BackendKind, Fault};
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::Notify;

use crate::connection::error::fault;

/// The number of replicas that confirm grants and renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// How many replicas must confirm.
    pub count: u32,
    /// How long the confirmation may take. The server blocks the connection meanwhile.
    pub timeout: Duration,
}

impl Replicas {
    /// Returns the command that asks the replicas.
    pub(crate) fn wait(&self) -> Cmd {
        let mut wait = Cmd::with_capacity(3, 24);
        wait.arg("WAIT").arg(self.count).arg(millis(self.timeout).max(1));
        wait
    }

    /// Checks that its reply counts enough replicas.
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

/// The `WAIT` commands of one connection.
#[derive(Default)]
pub(crate) struct ReplicaWaits {
    state: Mutex<WaitState>,
    /// Notified when one got a reply or was given up.
    changed: Notify,
}

/// The tickets of a connection. Each write that replicas must confirm has a ticket, drawn after the write was sent. A
/// `WAIT` that is sent later covers the ticket.
#[derive(Default)]
struct WaitState {
    drawn: u64,
    /// The last ticket that the `WAIT` in flight covers.
    asking: Option<u64>,
    /// Whether a [`WaitSender`] sends the next one.
    has_next: bool,
    /// The last confirmed ticket.
    confirmed: u64,
    /// The last ticket that was asked for and not confirmed, with the reply.
    refused: Option<(u64, Value)>,
    /// Whether the last `WAIT` with a reply covered several tickets.
    was_shared: bool,
}

/// The next step for a caller whose ticket must be confirmed.
pub(crate) enum TicketStatus {
    Confirmed,
    Refused(Value),
    /// The caller sends a `WAIT` for all tickets that exist by then.
    Ask(WaitSender),
    /// Another caller sends one.
    Wait,
}

/// The right to send the next `WAIT`, and then its state. If it is dropped without a reply, another caller gets the
/// right.
pub(crate) struct WaitSender {
    waits: Arc<ReplicaWaits>,
    pub(crate) replicas: Replicas,
    /// The tickets that it covers, once it was sent.
    asks: Option<CoveredTickets>,
}

/// The tickets that a `WAIT` covers.
#[derive(Clone, Copy)]
struct CoveredTickets {
    covers: u64,
    for_several: bool,
}

impl ReplicaWaits {
    /// Draws a ticket for everything that was sent before.
    pub(crate) fn ticket(&self) -> u64 {
        let mut state = self.state();
        state.drawn += 1;
        state.drawn
    }

    /// Adds a `WAIT` after a write that is about to be sent, if the write is likely to be alone.
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

    /// Draws a ticket for a write that was just sent. The caller sends the next `WAIT` unless another caller will.
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

    /// Returns the status of a ticket.
    pub(crate) fn status(self: &Arc<Self>, ticket: u64, replicas: Replicas) -> TicketStatus {
        let mut state = self.state();
        // Checked first: a later `WAIT` may have confirmed it, even if an earlier one did not.
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

    /// Resolves when a `WAIT` got a reply or was given up after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitSender {
    /// Begins a `WAIT` that is sent right afterwards. It covers the tickets that were drawn until now. Returns `false`
    /// while another one is in flight.
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

    /// Notes the reply for all tickets that it covers. Returns the last of them.
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
