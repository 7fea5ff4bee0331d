//! R15: a process asks another one what it holds and waits for, and is answered. Questions are read and
//! collected by the product's own `Asked`; the answers are read from the product's lines.

use std::collections::VecDeque;

use distlock_core::questions::PendingQuestions as Asked;

use super::shell::Seat;
use super::task::Has;
use super::{Moment, Process, Turn};
use crate::invariants::Invariant;
use crate::network::{Question, Word};

/// Of every process.
const PREFIX: &str = "p:";
/// So many words are on their way to one process at the most, and so many answers awaited by one.
const MOST: usize = 3;
/// No process counts so far.
const FORGED: &str = "forged";

/// Messages in the form of no question; and one that names the channel of no process.
const NO_QUESTIONS: [&str; 2] = ["p:wake:0", "p:wake:nobody 1"];
pub(crate) const MALFORMED: u8 = NO_QUESTIONS.len() as u8;

/// What others ask of a process, and it of others.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Census {
    /// What is on its way here.
    words: VecDeque<Word>,
    /// The product's.
    asked: Asked,
    /// When it is going to answer.
    due: Option<Moment>,
    /// The answers that it awaits.
    open: Vec<String>,
}

impl Census {
    pub(crate) fn has_heard(&self) -> bool {
        !self.words.is_empty()
    }

    /// The question on its way may come once more; nothing of it has come so far.
    pub(crate) fn may_be_doubled(&self) -> bool {
        self.due.is_none()
            && self.words.len() == 1
            && matches!(self.words.front(), Some(Word::Question(_)))
    }

    pub(crate) fn is_flooded(&self) -> bool {
        self.words.len() >= MOST
    }

    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    pub(crate) fn moments(&mut self) -> impl Iterator<Item = &mut Moment> {
        self.due.iter_mut().chain(self.asked.answered_mut())
    }

    /// An answer that was sent long ago holds up none that comes now.
    pub(super) fn forget(&mut self, now: Moment) {
        let answered = self.asked.answered_mut();
        let mut probe = Asked::default();
        *probe.answered_mut() = *answered;
        let pause = probe.asked(PREFIX, "p:wake:0 1", now);
        if pause.is_some_and(|pause| pause.is_zero()) {
            *answered = None;
        }
    }

    pub(super) fn deafen(&mut self) {
        self.words.clear();
    }

    pub(super) fn said(&mut self, word: Word) {
        if !self.is_flooded() {
            self.words.push_back(word);
        }
    }

    /// The number of the next question.
    fn nonce(&self) -> String {
        let is_free = |nonce: &String| !self.open.contains(nonce);
        (0..).map(|number: u8| number.to_string()).find(is_free).unwrap_or_default()
    }

    pub(super) fn asks(&mut self) {
        if self.open.len() == MOST {
            // It has waited for long enough.
            self.open.remove(0);
        }
        let nonce = self.nonce();
        self.open.push(nonce);
    }

    /// What is sent as a question to the process whose these are.
    pub(crate) fn text_of(&self, question: Question, asker: &Process) -> Option<String> {
        let to = format!("{PREFIX}wake:{}", asker.identity);
        let nonce = asker.census.open.last().map_or("", String::as_str);
        match question {
            Question::All => Some(format!("{to} {nonce}")),
            Question::Forged => Some(format!("{to} {FORGED}")),
            Question::Again => match self.words.front() {
                Some(Word::Question(text)) => Some(text.clone()),
                _ => None,
            },
            Question::Malformed(way) => Some(NO_QUESTIONS[usize::from(way)].to_owned()),
        }
    }
}

impl Process {
    /// What it would answer to which processes, if it did now.
    pub(crate) fn answers(&self) -> Vec<(u16, Vec<String>)> {
        let askers = self.census.asked.clone().take(self.now).into_iter();
        askers.filter_map(|asker| Some((asker.process.parse().ok()?, asker.nonces))).collect()
    }

    /// What it would tell is true: every lock that a body has is held, and under its token; every call
    /// that waits in the line has a place there; and every call that is named exists.
    fn tells_the_truth(&self) -> bool {
        let bodies = self.tasks.iter().filter(|task| task.has_body(self.now));
        let held = bodies.into_iter().all(|task| {
            (0..).zip(&task.parts).all(|(number, part)| {
                let seat = Seat { task: task.id, part: number };
                let tokens = [part.runs_under, part.instead_of];
                let mut held = self.lines[usize::from(part.key)].held();
                held.any(|(token, holder)| holder.caller == seat && tokens.contains(&Some(*token)))
            })
        });
        let waiting = self.tasks.iter().all(|task| {
            (0..).zip(&task.parts).filter(|(_, part)| part.has == Has::Waits).all(
                |(number, part)| {
                    let seat = Seat { task: task.id, part: number };
                    let line = &self.lines[usize::from(part.key)];
                    let mut places = line.batches().flat_map(|batch| batch.waiters.iter());
                    places.any(|(own, _)| *own == seat)
                },
            )
        });
        let named = self.lines.iter().all(|line| {
            let holders = line.held().map(|(_, holder)| holder.caller);
            let waiters = line.batches().flat_map(|batch| batch.waiters.iter());
            let mut seats = holders.chain(waiters.map(|(seat, _)| *seat));
            seats.all(|seat| self.task(seat.task).is_some())
        });
        held && waiting && named
    }
}

impl Turn<'_> {
    /// R15: whatever is asked and answered, nothing else is different.
    pub(super) fn changing_nothing(&mut self, act: impl FnOnce(&mut Self)) {
        let before = self.process.clone();
        act(self);
        let census = self.process.census.clone();
        if *self.process != (Process { census, ..before }) {
            *self.broken = Some(Invariant::Asked);
        }
    }

    /// The next question is noted; an answer is taken by the call that awaits it, if there is one.
    pub(super) fn attend(&mut self) {
        let now = self.process.now;
        let census = &mut self.process.census;
        match census.words.pop_front() {
            None => {}
            Some(Word::Question(text)) => {
                if let Some(pause) = census.asked.asked(PREFIX, &text, now) {
                    census.due = Some(now.after(pause));
                }
            }
            Some(Word::Answer(nonces)) => census.open.retain(|open| !nonces.contains(open)),
        }
    }

    pub(super) fn reply(&mut self) {
        let now = self.process.now;
        self.process.census.due = None;
        self.process.census.asked.take(now);
        if !self.process.tells_the_truth() {
            *self.broken = Some(Invariant::Told);
        }
    }
}
