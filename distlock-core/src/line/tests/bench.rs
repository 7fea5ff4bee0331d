//! A line with a shell that records its calls, for the tests of the rules.

use std::time::Duration;

use super::super::*;
use crate::clock::Moment;
use crate::store::Term;

/// The types of the lines in tests: tokens and callers are numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) struct Plain;

impl Kinds for Plain {
    type Token = u32;
    type Caller = u32;
    type Fault = bool;
}

/// True stands for a fault that passes.
impl FaultClass for bool {
    fn is_passing(&self) -> bool {
        *self
    }

    fn is_timeout(&self) -> bool {
        false
    }
}

/// A call of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Did {
    TookOver(u32),
    Granted(u32, u64),
    Denied(u32, Denied<bool>),
    Woke(u32),
    Lost(u32, Loss),
    Enter(u32, u64),
    Release(u32),
    Keep(u32, Duration),
    Retire(u32),
    Renew(u32, bool),
    Free(u32, bool),
    InUse(u32),
}

/// A shell that records the calls of a line.
#[derive(Default)]
pub(super) struct TestShell {
    pub(super) did: Vec<Did>,
    pub(super) issued: u32,
    pub(super) numbers: u64,
    pub(super) callers: u32,
    pub(super) sent: Vec<u32>,
    pub(super) deaf: bool,
    pub(super) closed: bool,
    /// Callers that do not take their grants.
    pub(super) asleep: Vec<u32>,
    /// Callers with a body under their lease.
    pub(super) bodies: Vec<u32>,
}

impl TestShell {
    pub(super) fn take(&mut self) -> Vec<Did> {
        std::mem::take(&mut self.did)
    }

    pub(super) fn caller(&mut self) -> u32 {
        self.callers += 1;
        self.callers
    }
}

impl Shell<Plain> for TestShell {
    fn issue(&mut self, _: Limit, _: Reservation, _: Moment) -> u32 {
        self.issued += 1;
        self.issued
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn is_notified(&self) -> bool {
        !self.deaf
    }

    fn needs_renewal(&self) -> bool {
        true
    }

    fn fences_per_draw(&self) -> u64 {
        FENCES
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    fn is_unsent(&self, token: &u32) -> bool {
        !self.sent.contains(token)
    }

    fn jittered(&mut self, whole: Duration) -> Duration {
        whole
    }

    fn in_hand(&self, caller: &u32) -> bool {
        !self.asleep.contains(caller)
    }

    fn has_body(&self, caller: &u32) -> bool {
        self.bodies.contains(caller)
    }

    fn take_back(&mut self, caller: &u32) -> bool {
        self.asleep.contains(caller)
    }

    fn take_over(&mut self, caller: &u32) {
        self.did.push(Did::TookOver(*caller));
    }

    fn grant(&mut self, caller: &u32, grant: Grant, _now: Moment) {
        self.did.push(Did::Granted(*caller, grant.fencing_token));
    }

    fn deny(&mut self, caller: &u32, why: Denied<bool>) {
        self.did.push(Did::Denied(*caller, why));
    }

    fn wake(&mut self, caller: &u32) {
        self.did.push(Did::Woke(*caller));
    }

    fn extended(&mut self, _: &u32, _: Moment) {}

    fn lost(&mut self, caller: &u32, loss: Loss) {
        self.did.push(Did::Lost(*caller, loss));
    }

    fn begin_term(&mut self, _: &u32, _: Term) {}

    fn enter(&mut self, enter: Enter<Plain>) {
        self.sent.push(enter.token);
        self.did.push(Did::Enter(enter.token, enter.ticket));
    }

    fn release(&mut self, token: u32, keep: Option<Duration>) {
        self.did.push(match keep {
            None => Did::Release(token),
            Some(keep) => Did::Keep(token, keep),
        });
    }

    fn retire(&mut self, token: &u32) {
        self.did.push(Did::Retire(*token));
    }

    fn renew(&mut self, renew: Renew<Plain>) {
        self.did.push(Did::Renew(renew.token, renew.draw));
    }

    fn closing(&mut self, closing: Closing<Plain>) {
        self.did.push(match closing {
            Closing::Free { release, was_held } => Did::Free(release.token, was_held),
            Closing::InUse(caller) => Did::InUse(caller),
        });
    }
}

pub(super) fn at(millis: u64) -> Moment {
    Moment::from_nanos(1_000_000_000_000).after(Duration::from_millis(millis))
}

/// How many counter values a renewal draws.
pub(super) const FENCES: u64 = 3;
pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn request(ttl: Duration) -> Request {
    Request {
        limit: Limit::ALONE,
        term: Term { ttl, renewed: true, max_hold: None, min_hold: None },
        asked: at(0),
        wait_until: at(600_000),
        answer_by: at(600_000),
        part_until: None,
        hurried: false,
    }
}

/// Returns a batch that waits.
pub(in super::super) fn queued(number: u64) -> Batch<Plain> {
    let reservation = Reservation { notified: true, time: RESERVATION };
    Batch::new(number, Limit::ALONE, Stage::Queued(Box::new(Queued::new(1, reservation))))
}

/// A line and its shell.
pub(super) struct Bench {
    pub(super) line: Line<Plain>,
    pub(super) notes: TestShell,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self { line: Line::default(), notes: TestShell::default() }
    }

    pub(super) fn arrive(&mut self, request: Request, now: Moment) -> Arrival<Plain> {
        let caller = self.notes.caller();
        self.line.arrive(request, usize::MAX, now, |_| caller, &mut self.notes)
    }

    pub(super) fn lead(&mut self, now: Moment) -> OwnAttempt<Plain> {
        match self.arrive(request(30 * SECOND), now) {
            Arrival::Lead(attempt) => {
                self.notes.sent.push(attempt.token);
                attempt
            }
            other => panic!("it does not lead: {other:?}"),
        }
    }

    pub(super) fn wait(&mut self, request: Request, now: Moment) -> Position {
        match self.arrive(request, now) {
            Arrival::Wait(position, _) => position,
            other => panic!("it does not wait: {other:?}"),
        }
    }

    pub(super) fn tried(
        &mut self,
        position: Position,
        fence: u64,
        now: Moment,
    ) -> AttemptOutcome<bool> {
        let answer = Ok(Answer::Granted { fence, sent: now });
        self.line.tried(position, answer, true, now, &mut self.notes)
    }

    /// Lets a caller take the free lock, and returns its position.
    pub(super) fn held(&mut self, fence: u64, now: Moment) -> Position {
        let OwnAttempt { position, .. } = self.lead(now);
        assert!(matches!(self.tried(position, fence, now), AttemptOutcome::Held(_)));
        position
    }

    pub(super) fn finish(&mut self, position: Position, now: Moment) -> Finished<Plain> {
        self.line.finish(position, now, &mut self.notes)
    }

    pub(super) fn run(&mut self, now: Moment) -> Vec<Did> {
        self.line.run(now, &mut self.notes);
        self.notes.take()
    }

    pub(super) fn entered(&mut self, token: u32, answer: Entered, now: Moment) -> Vec<Did> {
        let term = request(30 * SECOND).term;
        self.line.entered(&token, term, Ok(answer), now, &mut self.notes);
        self.notes.take()
    }
}

pub(super) fn stands(ticket: u64, behind: u64) -> Entered {
    Entered::Queued { ticket, remaining: Some(SECOND), rank: 0, behind, added: true }
}
