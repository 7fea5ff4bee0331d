//! Releases until they are confirmed (R9), and the look after those that a lock was handed to (R7).

use std::time::Duration;

use distlock_core::line::{FollowUp, NextOwner, follow_up};
use distlock_core::store::owner::RELEASE_REPEATS;

use super::shell::{Fault, millis, ms};
use super::{Moment, Origin, Turn};
use crate::invariants::Invariant;
use crate::network::Command;
use crate::server::Released;
use crate::token::Token;

/// The pause after one that had no answer.
const PAUSE: Duration = Duration::from_millis(50);

/// A release that is not confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Chore {
    pub(crate) key: u8,
    pub(crate) token: Token,
    /// The lock is to be kept until then.
    pub(crate) due: Option<Moment>,
    /// How many of the repeats are over.
    pub(crate) repeats: u8,
    /// When it is sent again; `None` while its answer is awaited.
    pub(crate) again_at: Option<Moment>,
}

/// R7: a lock that was handed to another process, or kept for others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Repair {
    /// Whose release it was.
    pub(crate) token: Token,
    pub(crate) at: Moment,
}

impl Turn<'_> {
    /// A token is given back for good, behind what was sent for it.
    pub(super) fn give_back(&mut self, key: u8, token: Token, keep: Option<Duration>) {
        let now = self.process.now;
        let entry = self.process.entry(key, token);
        entry.retired = true;
        if keep.is_none() && entry.not_before.is_some_and(|not_before| now < not_before) {
            *self.broken = Some(Invariant::Kept);
        }
        if let Some(keep) = keep {
            entry.kept_until = entry.kept_until.max(Some(now.after(keep)));
        }
        if !entry.sent {
            let nothing = Released { was_ours: false, next: Vec::new(), awaited: false };
            return self.freed(key, token, None, nothing);
        }
        let due = keep.map(|keep| now.after(keep));
        self.process.chores.push(Chore { key, token, due, repeats: 0, again_at: None });
        let keep = keep.map(ms);
        self.send(Command::Release { key, token, keep }, Origin::Chore);
    }

    /// R9: its answer, or none.
    pub(super) fn released(&mut self, key: u8, token: Token, answer: Result<Released, Fault>) {
        let now = self.process.now;
        let doubt = self.process.known(key, token).is_some_and(|entry| entry.suspect > 0);
        let mine = |chore: &Chore| (chore.key, chore.token) == (key, token);
        let awaited = |chore: &Chore| mine(chore) && chore.again_at.is_none();
        let Some(at) = self.process.chores.iter().position(awaited) else { return };
        let chore = &mut self.process.chores[at];
        let released = match answer {
            Err(_) => {
                chore.again_at = Some(now.after(PAUSE));
                return;
            }
            Ok(released) => released,
        };
        if let Some(pause) = RELEASE_REPEATS.get(usize::from(chore.repeats)).filter(|_| doubt) {
            chore.repeats += 1;
            chore.again_at = Some(now.after(*pause));
            return;
        }
        let left = chore.due.map(|due| due.since(now)).filter(|left| !left.is_zero());
        self.process.chores.remove(at);
        self.freed(key, token, left, released);
    }

    /// The store has reserved the lock for the next one, or the waiters here may look.
    pub(super) fn freed(
        &mut self,
        key: u8,
        token: Token,
        keep: Option<Duration>,
        released: Released,
    ) {
        let (now, notified) = (self.process.now, self.process.notified);
        let own = self.process.identity;
        for next in released.next.iter().filter(|next| next.process == own) {
            self.on(key, |line, _, _| line.called(|own| own == next));
        }
        let next = released.next.iter();
        let next = next
            .map(|next| NextOwner { ours: next.process == own, reserved_for: millis(next.claim) });
        match follow_up(keep, released.awaited, next, notified) {
            FollowUp::Nothing | FollowUp::Called => {}
            FollowUp::Look => self.on(key, |line, _, _| line.look()),
            FollowUp::RepeatAfter(pause) => {
                let at = now.after(pause);
                self.process.repairs[usize::from(key)] = Some(Repair { token, at });
            }
        }
    }

    /// What is due of it.
    pub(super) fn release_due(&mut self) {
        let now = self.process.now;
        for key in 0..self.cfg.keys {
            let repair = &mut self.process.repairs[usize::from(key)];
            if let Some(Repair { token, .. }) = repair.take_if(|repair| repair.at <= now) {
                self.send(Command::Release { key, token, keep: None }, Origin::Once);
            }
        }
        for at in 0..self.process.chores.len() {
            let chore = &mut self.process.chores[at];
            if chore.again_at.take_if(|again| *again <= now).is_none() {
                continue;
            }
            let (key, token) = (chore.key, chore.token);
            let left = chore.due.map(|due| due.since(now)).filter(|left| !left.is_zero());
            self.send(Command::Release { key, token, keep: left.map(ms) }, Origin::Chore);
        }
    }
}
