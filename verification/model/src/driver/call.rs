//! Tasks: R1 from the caller's side. All locks at once, then one after the other in order.

use distlock_core::line::{
    self, Arrival, AttemptOutcome, Batch, Finished, Freeing, OwnAttempt, Position, RenewalState,
    Request,
};

use super::shell::{Fault, Seat, millis};
use super::task::{Answer, Has, NOWHERE, Part, Stage, Task, Try};
use super::{Model, Moment, Origin, Started, Terms, Turn};
use crate::config::Ask;
use crate::network::Command;
use crate::token::Token;

/// A call that does not end by itself.
const FOR_EVER: Moment = Moment::NEVER;

impl Turn<'_> {
    pub(crate) fn call(&mut self, ask: u8, exempt: bool) {
        let Ask { keys, limit, .. } = &self.cfg.asks[usize::from(ask)];
        let process = &mut *self.process;
        // A call that joins others shares their place.
        let licences = process.tasks.iter().filter(|task| task.waits()).map(|task| task.licence);
        let licence = licences.max().unwrap_or_default();
        if process.arrivals != u8::MAX {
            process.arrivals -= 1;
        }
        process.next_task += 1;
        let id = process.next_task;
        process.tasks.push(Task {
            id,
            ask,
            epoch: self.epoch,
            stands: self.epoch,
            licence,
            exempt,
            dozes: false,
            slept: false,
            unsent: false,
            stage: Stage::AtOnce,
            since: None,
            parts: keys.iter().map(|key| Part::new(*key, *limit)).collect(),
        });
        self.begin_at_once(id);
        self.shares_its_place(id);
        self.settle();
    }

    /// Ghost: a call that joins others stands where they stand, if they do.
    fn shares_its_place(&mut self, id: u32) {
        let process = &mut *self.process;
        let waits_in =
            |batch: &Batch<Model>, id: u32| batch.waiters.iter().any(|(seat, _)| seat.task == id);
        let exempt = process.lines.iter().flat_map(|line| line.batches()).any(|batch| {
            let mut tasks = process.tasks.iter();
            waits_in(batch, id) && tasks.any(|task| task.exempt && waits_in(batch, task.id))
        });
        if let Some(task) = process.task_mut(id) {
            task.exempt |= exempt;
        }
    }

    /// A first command is sent at last.
    pub(crate) fn begin(&mut self, task: u8) {
        let epoch = self.epoch;
        let Some(task) = self.process.tasks.get_mut(usize::from(task)) else { return };
        task.unsent = false;
        // Its place in the order of arrivals counts from here, unless others have taken it over.
        if task.parts.iter().all(|part| part.has == Has::Nothing) {
            (task.epoch, task.stands) = (epoch, epoch);
        }
        let id = task.id;
        self.send_tries(id);
        self.settle();
    }

    fn parts(&self, id: u32) -> usize {
        self.process.task(id).map_or(0, |task| task.parts.len())
    }

    fn part(&mut self, seat: Seat) -> Option<&mut Part> {
        self.process.part_mut(seat)
    }

    fn request(&self, id: u32) -> Request {
        let now = self.process.now;
        let ask = self.process.task(id).map_or(0, |task| task.ask);
        let ask = &self.cfg.asks[usize::from(ask)];
        let terms = Terms { ttl: ask.ttl, renew: ask.renew, min_hold: ask.min_hold };
        let wait_until = if ask.patient { FOR_EVER } else { now };
        let part_until = (ask.keys.len() > 1).then_some(FOR_EVER);
        // Nothing in a line depends on when a call began: in an exhaustive run it would only make equal
        // states differ.
        let asked = super::START;
        let hurried = false;
        let (limit, term) = (ask.limit, terms.term());
        Request { limit, term, asked, wait_until, answer_by: FOR_EVER, part_until, hurried }
    }

    fn is_patient(&self, id: u32) -> bool {
        let ask = self.process.task(id).map_or(0, |task| task.ask);
        self.cfg.asks[usize::from(ask)].patient
    }

    /// All locks that no call here has or wants are tried at once, up to the first that one does.
    fn begin_at_once(&mut self, id: u32) {
        for part in 0..self.parts(id) as u8 {
            if !self.arrive(Seat { task: id, part }) {
                break;
            }
        }
        if self.cfg.take_over
            && let Some(task) = self.process.task_mut(id)
            && task.parts.iter().any(|part| part.attempt.is_some())
        {
            (task.unsent, task.slept) = (true, true);
            return;
        }
        self.send_tries(id);
    }

    /// True if it tries by itself.
    fn arrive(&mut self, seat: Seat) -> bool {
        let (request, patient) = (self.request(seat.task), self.is_patient(seat.task));
        let line_ends = if patient { usize::MAX } else { 0 };
        let Some(key) = self.part(seat).map(|part| part.key) else { return false };
        let arrival =
            self.on(key, |line, now, side| line.arrive(request, line_ends, now, |_| seat, side));
        let (attempt, place, has) = match arrival {
            Arrival::Lead(OwnAttempt { token, position, .. }) => {
                (Some(Try { token, alone: false, answer: None }), position, Has::Nothing)
            }
            Arrival::Alone(OwnAttempt { token, position, .. }) => {
                (Some(Try { token, alone: true, answer: None }), position, Has::Nothing)
            }
            Arrival::Held(place, _, grant) => (None, place, Has::Held(grant)),
            Arrival::Wait(place, _) => (None, place, Has::Waits),
            Arrival::Busy(_) => (None, NOWHERE, Has::Denied),
        };
        let tries = attempt.is_some();
        if let Some(part) = self.part(seat) {
            (part.attempt, part.place) = (attempt, place);
            // Its turn may have come already.
            if part.has == Has::Nothing {
                part.has = has;
            }
        }
        tries
    }

    fn send_tries(&mut self, id: u32) {
        for part in 0..self.parts(id) as u8 {
            let seat = Seat { task: id, part };
            let Some(part) = self.part(seat) else { continue };
            let (key, attempt) = (part.key, part.attempt.clone());
            let Some(Try { token, answer: None, .. }) = attempt else { continue };
            let entry = self.process.known(key, token);
            let retired = entry.is_some_and(|entry| entry.retired);
            let taken_over = entry.is_some_and(|entry| entry.sent) && !self.cfg.late_tries;
            if retired || taken_over {
                self.tried(seat, Err(Fault::Lost));
            } else if !self.cfg.fast_path {
                self.tried(seat, Ok(Answer::Taken));
            } else {
                let (ttl, seen) = (self.stored_for(id), self.process.seen);
                let command = match token.limit.is_alone() {
                    true => Command::Take { key, token, ttl, seen },
                    false => Command::Acquire { key, token, ttl, ticket: 0, seen, is_try: true },
                };
                self.send(command, Origin::Try(seat));
            }
        }
    }

    fn stored_for(&self, id: u32) -> u32 {
        let ask = self.process.task(id).map_or(0, |task| task.ask);
        let ask = &self.cfg.asks[usize::from(ask)];
        ask.ttl.max(ask.min_hold)
    }

    /// The answer of a try, for the call if it still waits for it.
    pub(super) fn tried(&mut self, seat: Seat, answer: Result<Answer, Fault>) {
        if let Some(attempt) = self.part(seat).and_then(|part| part.attempt.as_mut()) {
            attempt.answer = Some(answer);
        }
    }

    /// Every task that is polled goes as far as it can.
    pub(super) fn settle(&mut self) {
        let mut at = 0;
        while let Some(task) = self.process.tasks.get(at) {
            // What one does may be another one's turn.
            at = if self.poll(task.id) { 0 } else { at + 1 };
        }
    }

    /// True if it went on.
    fn poll(&mut self, id: u32) -> bool {
        let Some(task) = self.process.task(id) else { return false };
        if task.dozes || task.unsent {
            return false;
        }
        match task.stage {
            Stage::AtOnce => self.poll_at_once(id),
            Stage::Getting(part) => self.poll_getting(Seat { task: id, part }),
            // A body looks at its deadline before it goes on.
            Stage::Body if task.has_body(self.process.now) => false,
            Stage::Body => {
                self.end(id);
                true
            }
        }
    }

    fn poll_at_once(&mut self, id: u32) -> bool {
        let Some(task) = self.process.task(id) else { return false };
        let mut tries = task.parts.iter().filter_map(|part| part.attempt.as_ref());
        if tries.any(|attempt| attempt.answer.is_none()) {
            return false;
        }
        for part in 0..self.parts(id) as u8 {
            self.settle_try(Seat { task: id, part });
        }
        let Some(task) = self.process.task(id) else { return true };
        let first = task.parts.iter().position(|part| part.held().is_none());
        let Some(first) = first else { return self.complete(id) };
        for part in first as u8 + 1..task.parts.len() as u8 {
            self.drop_part(Seat { task: id, part });
        }
        self.go_on(Seat { task: id, part: first as u8 })
    }

    /// The lock of this part is the next one to get. One that was denied is asked for once more if it
    /// is one of several.
    fn go_on(&mut self, seat: Seat) -> bool {
        let (several, patient) = (self.parts(seat.task) > 1, self.is_patient(seat.task));
        let Some(part) = self.part(seat) else { return false };
        match part.has {
            Has::Denied if several && patient => part.has = Has::Nothing,
            Has::Denied => {
                self.end(seat.task);
                return true;
            }
            _ => {}
        }
        if let Some(task) = self.process.task_mut(seat.task) {
            task.stage = Stage::Getting(seat.part);
        }
        true
    }

    /// R2: what the store said to the task's own try.
    fn settle_try(&mut self, seat: Seat) {
        let request = self.request(seat.task);
        let patient = self.is_patient(seat.task);
        let Some(part) = self.part(seat) else { return };
        let (key, place) = (part.key, part.place);
        let Some(Try { token, alone, answer: Some(answer) }) = part.attempt.take() else { return };
        let said = answer.map(|answer| match answer {
            Answer::Granted { fence, sent } => line::Answer::Granted { fence, sent },
            Answer::Taken => line::Answer::Taken { remaining: None },
        });
        let tried = self.on(key, |line, now, side| match alone {
            true => {
                let attempt = OwnAttempt { token, position: place, caller: seat };
                line.tried_alone(&attempt, request, said, now, side)
            }
            false => line.tried(place, said, patient, now, side),
        });
        match tried {
            AttemptOutcome::Held(grant) => self.has(seat, Has::Held(grant)),
            // It may have been served meanwhile.
            AttemptOutcome::Wait => self.has_if(seat, Has::Nothing, Has::Waits),
            AttemptOutcome::Denied { release, .. } => {
                self.has(seat, Has::Denied);
                if release {
                    self.give_back(key, token, None);
                }
            }
            AttemptOutcome::TakenOver => {
                let granted = matches!(answer, Ok(Answer::Granted { .. }));
                if !patient && !granted {
                    self.leave(seat);
                    self.has(seat, Has::Denied);
                }
            }
        }
        self.undo(key, token);
    }

    /// The engine may have released the token before its try was sent: then it has to be again. But
    /// this must not free what its last holder keeps.
    fn undo(&mut self, key: u8, token: Token) {
        let Some(entry) = self.process.known(key, token).copied() else { return };
        if entry.retired && entry.sent {
            let left = entry.kept_until.map(|end| end.since(self.process.now));
            self.give_back(key, token, left.filter(|left| !left.is_zero()));
        }
    }

    fn has(&mut self, seat: Seat, has: Has) {
        if let Some(part) = self.part(seat) {
            part.has = has;
        }
    }

    fn has_if(&mut self, seat: Seat, was: Has, has: Has) {
        if let Some(part) = self.part(seat).filter(|part| part.has == was) {
            part.has = has;
        }
    }

    fn poll_getting(&mut self, seat: Seat) -> bool {
        let tries = self.part(seat).and_then(|part| part.attempt.as_ref());
        match tries.map(|attempt| attempt.answer.is_some()) {
            Some(false) => return false,
            Some(true) => self.settle_try(seat),
            None => {}
        }
        let now = self.process.now;
        let Some(part) = self.part(seat) else { return false };
        let key = part.key;
        match part.has {
            Has::Waits => false,
            Has::Nothing => {
                if self.arrive(seat) {
                    self.send_tries(seat.task);
                }
                true
            }
            Has::Denied => {
                self.end(seat.task);
                true
            }
            Has::PassedOver => {
                let request = self.request(seat.task);
                let place = self.on(key, |line, now, side| line.rejoin(request, &seat, now, side));
                if let (Some(part), Some(place)) = (self.part(seat), place) {
                    part.place = place;
                }
                self.has_if(seat, Has::PassedOver, Has::Waits);
                true
            }
            Has::Offered(grant) if now < grant.deadline => {
                self.has(seat, Has::Held(grant));
                true
            }
            // It ran out before its future was polled: nothing was done under it.
            Has::Offered(_) | Has::Lost => {
                self.drop_part(seat);
                self.ask_again(seat.task)
            }
            Has::Held(_) => self.next_part(seat),
        }
    }

    fn ask_again(&mut self, id: u32) -> bool {
        if !self.is_patient(id) {
            self.end(id);
        }
        true
    }

    fn next_part(&mut self, seat: Seat) -> bool {
        let next = seat.part + 1;
        if usize::from(next) == self.parts(seat.task) {
            return self.complete(seat.task);
        }
        if let Some(task) = self.process.task_mut(seat.task) {
            task.stage = Stage::Getting(next);
        }
        true
    }

    /// All locks are held: the body starts, unless one of them was lost meanwhile.
    fn complete(&mut self, id: u32) -> bool {
        let now = self.process.now;
        let Some(task) = self.process.task(id) else { return false };
        let held = |part: &Part| part.held().is_some_and(|grant| now < grant.deadline);
        if !task.parts.iter().all(held) {
            // Nothing was done under them.
            for part in (0..task.parts.len() as u8).rev() {
                self.drop_part(Seat { task: id, part });
            }
            if let Some(task) = self.process.task_mut(id) {
                task.stage = Stage::AtOnce;
            }
            if self.is_patient(id) {
                self.begin_at_once(id);
            } else {
                self.end(id);
            }
            return true;
        }
        let ask = &self.cfg.asks[usize::from(task.ask)];
        let (asked, fixed) = (millis(ask.ttl), !ask.renew);
        let stored = millis(ask.ttl.max(ask.min_hold));
        let (parts, arrived) = (task.parts.clone(), task.epoch);
        let (at_once, several) = (!task.slept, parts.len() > 1);
        let kept = ask.min_hold > 0 && at_once && !several && self.cfg.lag == 0;
        if let Some(task) = self.process.task_mut(id) {
            task.stage = Stage::Body;
            task.since = kept.then_some(now);
        }
        let highest = parts.iter().filter_map(Part::held).map(|grant| grant.fencing_token).max();
        let fencing = highest.unwrap_or_default();
        for part in &parts {
            if parts.len() > 1 {
                self.on(part.key, |line, now, side| {
                    line.complete(part.place, now, side);
                    line.outdo(part.place, fencing);
                });
            }
            self.use_up(part);
            let line = &self.process.lines[usize::from(part.key)];
            let Some(claim) = line.claim_at(part.place) else { continue };
            let token = claim.token;
            // A lease that is kept for others may just not have been renewed in time.
            let steady = !several || claim.renewal == RenewalState::Idle;
            if let Some(task) = self.process.task_mut(id) {
                let own = task.parts.iter_mut().filter(|own| own.key == part.key);
                own.for_each(|own| own.runs_under = Some(token));
            }
            let left =
                part.held().filter(|_| at_once && steady).map(|grant| grant.deadline.since(now));
            let key = part.key;
            self.started.push(Started {
                key,
                token,
                epoch: arrived,
                fencing,
                left,
                asked,
                stored,
                several,
                fixed,
            });
        }
        true
    }

    /// As if many had held the lock before: those that follow come upon the end of the counter value
    /// sooner.
    fn use_up(&mut self, part: &Part) {
        let Some(grant) = part.held().filter(|_| self.cfg.few_tokens) else { return };
        let (token, room) = (grant.fencing_token, super::TOKENS_PER_FENCE);
        let next = match token % room {
            0 => room / 2 - 1,
            step if step == room / 2 => room - 2,
            _ => return,
        };
        let place = part.place;
        self.on(part.key, |line, _, _| line.outdo(place, token - token % room + next));
    }

    /// A body ends.
    pub(crate) fn finish(&mut self, task: u8) {
        let Some(id) = self.process.tasks.get(usize::from(task)).map(|task| task.id) else {
            return;
        };
        self.end(id);
        self.settle();
    }

    /// A call is dropped before it has its locks, or its `wait` is over.
    pub(crate) fn cancel(&mut self, task: u8) {
        self.finish(task);
    }

    pub(crate) fn doze(&mut self, task: u8) {
        if let Some(task) = self.process.tasks.get_mut(usize::from(task)) {
            (task.dozes, task.slept) = (true, true);
        }
    }

    pub(crate) fn wake(&mut self, task: u8) {
        if let Some(task) = self.process.tasks.get_mut(usize::from(task)) {
            task.dozes = false;
        }
        self.settle();
    }

    /// Whatever it holds or wants is given back, last one first.
    pub(super) fn end(&mut self, id: u32) {
        for part in (0..self.parts(id) as u8).rev() {
            self.drop_part(Seat { task: id, part });
        }
        self.process.tasks.retain(|task| task.id != id);
    }

    /// Ghost: the lock of a body that ends early is not to be free before its `min_hold`.
    fn note_min_hold(&mut self, seat: Seat) {
        let Some(task) = self.process.task(seat.task) else { return };
        let min_hold = millis(self.cfg.asks[usize::from(task.ask)].min_hold);
        let (since, part) = (task.since, &task.parts[usize::from(seat.part)]);
        let (key, place) = (part.key, part.place);
        let Some(not_before) = since.map(|since| since.after(min_hold)) else { return };
        if let Some(claim) = self.process.lines[usize::from(key)].claim_at(place) {
            let token = claim.token;
            self.process.entry(key, token).not_before = Some(not_before);
        }
    }

    /// What a future or guard does when it is dropped.
    fn drop_part(&mut self, seat: Seat) {
        self.note_min_hold(seat);
        let Some(part) = self.part(seat) else { return };
        let (key, place, attempt) = (part.key, part.place, part.attempt.take());
        if let Some(Try { token, alone, .. }) = attempt {
            if alone || self.on(key, |line, _, _| line.give_up_try(place)) {
                self.give_back(key, token, None);
            } else {
                self.leave(seat);
                self.undo(key, token);
            }
            return self.has(seat, Has::Nothing);
        }
        match part.has {
            Has::Waits | Has::Offered(_) => self.leave(seat),
            Has::Held(_) | Has::Lost => {
                let finished = self.on(key, |line, now, side| line.finish(place, now, side));
                self.finished(key, finished);
            }
            Has::Nothing | Has::PassedOver | Has::Denied => {}
        }
        if let Some(part) = self.part(seat) {
            (part.has, part.place) = (Has::Nothing, NOWHERE);
            (part.runs_under, part.instead_of) = (None, None);
        }
    }

    fn leave(&mut self, seat: Seat) {
        let Some(part) = self.part(seat) else { return };
        let (key, place): (u8, Position) = (part.key, part.place);
        let finished = self.on(key, |line, now, side| line.leave(place, now, side));
        if let Some(finished) = finished {
            self.finished(key, finished);
        }
    }

    fn finished(&mut self, key: u8, finished: Finished<super::Model>) {
        if let Some(Freeing { token, keep, .. }) = finished.release {
            self.give_back(key, token, keep);
        }
    }
}
