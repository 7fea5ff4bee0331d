//! Every name, number and time that a process has, for exhaustive runs: what differs in these only is
//! one state.

use distlock_core::line::{Position, Relabel, position_of, relabel};

use super::shell::{Model, Seat};
use super::task::{Answer, Has, NOWHERE};
use super::{Job, Moment, Origin, Process, START};
use crate::network::{Command, Result, Sent};
use crate::server::Acquired;
use crate::token::Token;

/// Sees everything, and may change it.
pub(crate) trait Visit {
    fn token(&mut self, token: &mut Token);
    /// Tickets and counter values.
    fn number(&mut self, number: &mut u64);
    fn fencing(&mut self, token: &mut u64);
    /// A task's name.
    fn task(&mut self, task: &mut u32);
    fn moment(&mut self, moment: &mut Moment);
    fn batch(&mut self, batch: &mut u64);
}

struct InLine<'a, V>(&'a mut V);

impl<V: Visit> Relabel<Model> for InLine<'_, V> {
    fn token(&mut self, token: &mut Token) {
        self.0.token(token);
    }

    fn caller(&mut self, seat: &mut Seat) {
        self.0.task(&mut seat.task);
    }

    fn moment(&mut self, moment: &mut Moment) {
        self.0.moment(moment);
    }

    fn fence(&mut self, fence: &mut u64) {
        self.0.number(fence);
    }

    fn fencing_token(&mut self, token: &mut u64) {
        self.0.fencing(token);
    }

    fn number(&mut self, number: &mut u64) {
        self.0.batch(number);
    }
}

impl Process {
    pub(crate) fn visit(&mut self, with: &mut impl Visit) {
        with.number(&mut self.seen);
        for line in self.lines.iter_mut().filter(|line| !line.is_empty()) {
            relabel(line, &mut InLine(with));
        }
        for wire in [&mut self.main, &mut self.renewals] {
            wire.requests.iter_mut().for_each(|sent| visit_sent(sent, with));
            for answer in &mut wire.answers {
                visit_sent(&mut answer.sent, with);
                visit_result(&mut answer.result, with);
            }
        }
        self.stale.iter_mut().for_each(|sent| visit_sent(sent, with));
        self.hints.iter_mut().for_each(|hint| with.token(&mut hint.token));
        self.census.moments().for_each(|at| with.moment(at));
        for job in &mut self.jobs {
            if let Job::Release(_, token, _) = job {
                with.token(token);
            }
        }
        for chore in &mut self.chores {
            with.token(&mut chore.token);
            chore.due.iter_mut().chain(&mut chore.again_at).for_each(|at| with.moment(at));
        }
        for repair in self.repairs.iter_mut().flatten() {
            with.token(&mut repair.token);
            with.moment(&mut repair.at);
        }
        self.visit_tasks(with);
        for entry in &mut self.ledger {
            with.token(&mut entry.token);
            let times = entry.kept_until.iter_mut().chain(&mut entry.not_before);
            times.for_each(|at| with.moment(at));
        }
    }

    fn visit_tasks(&mut self, with: &mut impl Visit) {
        for task in &mut self.tasks {
            with.task(&mut task.id);
            task.since.iter_mut().for_each(|at| with.moment(at));
            for part in &mut task.parts {
                let tokens = part.runs_under.iter_mut().chain(&mut part.instead_of);
                tokens.for_each(|token| with.token(token));
                if let Has::Held(grant) | Has::Offered(grant) = &mut part.has {
                    with.fencing(&mut grant.fencing_token);
                    with.moment(&mut grant.deadline);
                }
                let Some(attempt) = &mut part.attempt else { continue };
                with.token(&mut attempt.token);
                if let Some(Ok(Answer::Granted { fence, sent })) = &mut attempt.answer {
                    with.number(fence);
                    with.moment(sent);
                }
            }
        }
    }

    /// The task met first in a line or on the network is the first; `tokens` is a number that no token
    /// has, `last_task` and `batches` the last that a task or batch has.
    pub(crate) fn rest(&mut self, tokens: u32, last_task: u32, mut batches: u64) {
        self.next_token = tokens;
        self.tasks.sort_by_key(|task| task.id);
        self.next_task = last_task;
        self.ledger.sort_by_key(|entry| (entry.key, entry.token.process, entry.token.seq));
        self.now = START;
        let Self { tasks, lines, .. } = self;
        for task in tasks {
            let id = task.id;
            for (number, part) in (0..).zip(&mut task.parts) {
                let alone = part.attempt.as_ref().is_some_and(|attempt| attempt.alone);
                let seat = Seat { task: id, part: number };
                part.place = match position_of(&lines[usize::from(part.key)], &seat) {
                    Some(place) => place,
                    None if alone => {
                        batches += 1;
                        Position { batch: batches, at: 0 }
                    }
                    None => NOWHERE,
                };
            }
        }
        self.next_batch = batches;
    }
}

fn visit_sent(sent: &mut Sent, with: &mut impl Visit) {
    sent.command.token_mut().into_iter().for_each(|token| with.token(token));
    match &mut sent.command {
        Command::Take { seen, .. } | Command::Draw { seen, .. } => with.number(seen),
        Command::Acquire { ticket, seen, .. } => {
            with.number(ticket);
            with.number(seen);
        }
        Command::Exchange { old, seen, .. } => {
            with.token(old);
            with.number(seen);
        }
        Command::Raise { least } => with.number(least),
        Command::Release { .. } | Command::Renew { .. } => {}
    }
    with.moment(&mut sent.at);
    match &mut sent.origin {
        Origin::Try(seat) | Origin::Exchange { seat, .. } => with.task(&mut seat.task),
        Origin::Redraw { seat, at } => {
            with.task(&mut seat.task);
            with.moment(at);
        }
        Origin::Renewal { fence } => with.number(fence),
        _ => {}
    }
}

fn visit_result(result: &mut Result, with: &mut impl Visit) {
    match result {
        Result::Taken { fence, .. }
        | Result::Acquired(Acquired::Granted { fence, .. })
        | Result::Renewed(Some((_, Some(fence))))
        | Result::Exchanged(Some((fence, _)))
        | Result::Raised { fence } => with.number(fence),
        Result::Acquired(Acquired::Queued { ticket, .. }) => with.number(ticket),
        Result::Released(released) => {
            released.next.iter_mut().for_each(|token| with.token(token));
        }
        Result::Acquired(Acquired::Stale | Acquired::Taken { .. })
        | Result::Exchanged(None)
        | Result::Renewed(_) => {}
    }
}
