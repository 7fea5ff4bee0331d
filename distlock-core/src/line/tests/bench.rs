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
    type Seat = u32;
    type Fault = bool;
}

/// True stands for a fault that passes.
impl Fault for bool {
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
pub(super) struct Notes {
    pub(super) did: Vec<Did>,
    pub(super) issued: u32,
    pub(super) numbers: u64,
    pub(super) seats: u32,
    pub(super) sent: Vec<u32>,
    pub(super) deaf: bool,
    pub(super) closed: bool,
    /// Callers that do not take their grants.
    pub(super) asleep: Vec<u32>,
    /// Callers with a body under their lease.
    pub(super) bodies: Vec<u32>,
}

impl Notes {
    pub(super) fn take(&mut self) -> Vec<Did> {
        std::mem::take(&mut self.did)
    }

    pub(super) fn seat(&mut self) -> u32 {
        self.seats += 1;
        self.seats
    }
}

impl Shell<Plain> for Notes {
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

    fn in_hand(&self, seat: &u32) -> bool {
        !self.asleep.contains(seat)
    }

    fn has_body(&self, seat: &u32) -> bool {
        self.bodies.contains(seat)
    }

    fn take_back(&mut self, seat: &u32) -> bool {
        self.asleep.contains(seat)
    }

    fn take_over(&mut self, seat: &u32) {
        self.did.push(Did::TookOver(*seat));
    }

    fn grant(&mut self, seat: &u32, grant: Grant, _now: Moment) {
        self.did.push(Did::Granted(*seat, grant.fencing_token));
    }

    fn deny(&mut self, seat: &u32, why: Denied<bool>) {
        self.did.push(Did::Denied(*seat, why));
    }

    fn wake(&mut self, seat: &u32) {
        self.did.push(Did::Woke(*seat));
    }

    fn extended(&mut self, _: &u32, _: Moment) {}

    fn lost(&mut self, seat: &u32, loss: Loss) {
        self.did.push(Did::Lost(*seat, loss));
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
            Closing::InUse(seat) => Did::InUse(seat),
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
    pub(super) notes: Notes,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self { line: Line::default(), notes: Notes::default() }
    }

    pub(super) fn arrive(&mut self, request: Request, now: Moment) -> Arrival<Plain> {
        let seat = self.notes.seat();
        self.line.arrive(request, usize::MAX, now, |_| seat, &mut self.notes)
    }

    pub(super) fn lead(&mut self, now: Moment) -> Attempt<Plain> {
        match self.arrive(request(30 * SECOND), now) {
            Arrival::Lead(attempt) => {
                self.notes.sent.push(attempt.token);
                attempt
            }
            other => panic!("it does not lead: {other:?}"),
        }
    }

    pub(super) fn wait(&mut self, request: Request, now: Moment) -> Place {
        match self.arrive(request, now) {
            Arrival::Wait(place, _) => place,
            other => panic!("it does not wait: {other:?}"),
        }
    }

    pub(super) fn tried(&mut self, place: Place, fence: u64, now: Moment) -> Tried<bool> {
        let answer = Ok(Answer::Granted { fence, sent: now });
        self.line.tried(place, answer, true, now, &mut self.notes)
    }

    /// Lets a caller take the free lock, and returns its position.
    pub(super) fn held(&mut self, fence: u64, now: Moment) -> Place {
        let Attempt { place, .. } = self.lead(now);
        assert!(matches!(self.tried(place, fence, now), Tried::Held(_)));
        place
    }

    pub(super) fn finish(&mut self, place: Place, now: Moment) -> Finished<Plain> {
        self.line.finish(place, now, &mut self.notes)
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
