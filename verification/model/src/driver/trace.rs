//! A process in a few lines, for traces.

use std::fmt::Write;

use distlock_core::line::{Batch, Claim, Stage};

use super::{Census, Model, Moment, Process, Task};

impl Process {
    pub(crate) fn brief(&self, text: &mut String) {
        let Self { identity, alive, subscribed, notified, .. } = self;
        let _ = writeln!(
            text,
            "    P{identity} alive {alive} subscribed {subscribed} notified {notified}"
        );
        for task in &self.tasks {
            let Task { id, ask, stage, dozes, unsent, .. } = task;
            let has =
                |part: &super::task::Part| (part.key, part.has.word(), part.attempt.is_some());
            let parts: Vec<_> = task.parts.iter().map(has).collect();
            let more = format!("dozes {dozes} unsent {unsent}");
            let _ = writeln!(text, "      task {id} ask {ask} {stage:?} {parts:?} {more}");
        }
        for (key, line) in self.lines.iter().enumerate() {
            for batch in line.batches() {
                let _ = writeln!(text, "      key {key} {}", self.batch(batch));
            }
            for lost in line.lost() {
                let (token, holder, loss) = (lost.token, &lost.holder, lost.loss);
                let _ =
                    writeln!(text, "      key {key} lost {token:?} {:?} {loss:?}", holder.caller);
            }
        }
        for (name, wire) in [("C", &self.main), ("R", &self.renewals)] {
            for sent in &wire.requests {
                let _ = writeln!(text, "      {name} sent {:?}", sent.command);
            }
            for answer in &wire.answers {
                let (command, result) = (answer.sent.command, &answer.result);
                let _ = writeln!(text, "      {name} answer {command:?} {result:?}");
            }
        }
        for sent in &self.stale {
            let _ = writeln!(text, "      stale {:?}", sent.command);
        }
        for hint in &self.hints {
            let _ = writeln!(text, "      {hint:?}");
        }
        if self.census != Census::default() {
            let _ = writeln!(text, "      {:?}", self.census);
        }
        for (list, name) in
            [(format!("{:?}", self.jobs), "jobs"), (format!("{:?}", self.chores), "chores")]
        {
            if list != "[]" {
                let _ = writeln!(text, "      {name} {list}");
            }
        }
    }

    /// Milliseconds from now.
    fn within(&self, at: Moment) -> i128 {
        (i128::from(at.as_nanos()) - i128::from(self.now.as_nanos())) / 1_000_000
    }

    fn batch(&self, batch: &Batch<Model>) -> String {
        let Batch { number, limit, ticket, sealed_at, late, room, waiters, stage } = batch;
        let waiters: Vec<_> = waiters.iter().map(|(seat, _)| seat.task).collect();
        let stage = match stage {
            Stage::Leading { token, .. } => format!("leading {token:?}"),
            Stage::Queued(queued) => {
                let look = self.within(queued.look_at);
                let (asking, hint, stands) = (queued.asking, queued.hint, queued.stands);
                let (instead, lost) = (queued.instead_of, queued.lost);
                format!(
                    "queued {:?} asking {asking} hint {hint} stands {stands} look in {look} \
                     instead of {instead:?} lost {lost:?}",
                    queued.token
                )
            }
            Stage::Owned(claims) => claims.iter().map(|claim| self.claim(claim)).collect(),
        };
        let sealed = sealed_at.map(|at| self.within(at));
        format!(
            "batch {number} limit {limit:?} ticket {ticket} sealed {sealed:?} late {late} room {room} {waiters:?} {stage}"
        )
    }

    fn claim(&self, claim: &Claim<Model>) -> String {
        let (token, fence, issued) = (claim.token, claim.fence, claim.issued);
        let (end, confirmed) = (self.within(claim.deadline), self.within(claim.confirmed));
        let held = claim.holders.iter().map(|holder| {
            format!("{:?} {:?} {:?}", holder.caller.task, holder.phase, holder.fencing_token)
        });
        let (held, awaited) = (held.collect::<Vec<_>>(), claim.awaited);
        let renewal = claim.renewal;
        format!(
            "owns {token:?} fence {fence} issued {issued} ends in {end} confirmed {confirmed} {renewal:?} \
             by {held:?} awaited {awaited:?}"
        )
    }
}
