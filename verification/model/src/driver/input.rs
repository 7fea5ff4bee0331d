//! What can happen to a process: all of it comes in here, so that what it leads to depends on nothing but
//! the process and this.

use super::{Process, Turn, tokens_of_waiter};
use crate::network::{Answer, Connection, Hint, HintKind, Sent, Word};
use crate::token::Token;

/// Something that happens to a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Input {
    /// A task asks for locks. It is exempt from the order if its process is cut off.
    Call { ask: u8, exempt: bool },
    /// A task sends its first command at last.
    Begin { task: u8 },
    /// The engine's thread does the next thing.
    Engine,
    /// The server has taken a command off a connection.
    Taken { connection: Connection },
    /// It has done the first half of a command, and this is the second.
    HalfTaken { connection: Connection, rest: Sent },
    /// It has taken one that came over a dead connection.
    TakenLate,
    /// An answer is on its way.
    Answered { connection: Connection, answer: Answer },
    /// The next answer is read.
    Read { connection: Connection },
    /// An answer that was not under way.
    Answer(Answer),
    /// A message is on its way.
    Told(Hint),
    /// A message is lost on its way.
    Untold,
    /// The next message is read.
    Hear,
    /// A message.
    Hint(Hint),
    /// A task's body ends.
    Finish { task: u8 },
    /// A task's body goes on as a reader.
    Downgrade { task: u8 },
    /// A task is cancelled.
    Cancel { task: u8 },
    /// A task is no longer polled.
    Doze { task: u8 },
    /// It is polled again.
    Wake { task: u8 },
    /// An answer does not come in time.
    TimeOut { connection: Connection },
    /// A connection is lost.
    Reconnect { connection: Connection, lingers: bool },
    /// The subscription is lost.
    Deafen,
    /// It is back.
    HearAgain,
    /// Time passes, by so many ms of its clock.
    Tick { passed: u32 },
    /// It dies, or is `cut_off` and the server believes that it listens.
    Die { cut_off: bool, lingers: bool },
    /// Ghost: the lock of a token was taken away, and answers about it may be on their way.
    Robbed(Token),
    /// R15: it sends a question, and awaits the answer.
    Asks,
    /// A question, or an answer to one, is on its way.
    Said(Word),
    /// The next of these is read.
    Attend,
    /// All questions so far are answered.
    Reply,
    /// Another process starts in its place.
    Start { identity: u16, seen: u64 },
}

impl Turn<'_> {
    pub(crate) fn on_input(&mut self, input: Input) {
        match input {
            Input::Call { ask, exempt } => self.call(ask, exempt),
            Input::Begin { task } => self.begin(task),
            Input::Engine => self.engine_works(),
            Input::Answer(answer) => self.on_answer(answer),
            Input::Read { connection } => {
                if let Some(answer) = self.process.line(connection).answers.pop_front() {
                    self.on_answer(answer);
                }
            }
            Input::Hear => {
                if let Some(hint) = self.process.hints.pop_front() {
                    self.on_hint(hint);
                }
            }
            Input::Hint(hint) => self.on_hint(hint),
            Input::Finish { task } => self.finish(task),
            Input::Downgrade { task } => self.downgrade(task),
            Input::Cancel { task } => self.cancel(task),
            Input::Doze { task } => self.doze(task),
            Input::Wake { task } => self.wake(task),
            Input::TimeOut { connection } => self.time_out(connection),
            Input::Reconnect { connection, lingers } => self.reconnect(connection, lingers),
            Input::Deafen => self.deafen(),
            Input::HearAgain => self.hear_again(),
            Input::Attend => self.changing_nothing(Self::attend),
            Input::Reply => self.changing_nothing(Self::reply),
            Input::Tick { passed } => {
                self.process.age(self.cfg);
                if passed < self.cfg.tick {
                    self.process.slow_ticks -= 1;
                }
                if self.process.alive {
                    self.tick(passed);
                }
            }
            Input::Start { identity, seen } => {
                let stale = std::mem::take(&mut self.process.stale);
                *self.process = Process { stale, ..Process::new(self.cfg, identity, seen) };
            }
            input => self.process.on_traffic(input),
        }
    }
}

impl Process {
    /// Ghost: a batch that was called and has not heard of it does not stand in the queue once its
    /// reservation is over, until it looks.
    fn not_called(&mut self, Hint { kind, key, token }: Hint) {
        if kind != HintKind::Grant {
            return;
        }
        let line = &self.lines[usize::from(key)];
        for task in &mut self.tasks {
            task.exempt |= tokens_of_waiter(line, task.id).any(|own| own == token);
        }
    }

    /// What the network does without the process noticing.
    fn on_traffic(&mut self, input: Input) {
        match input {
            Input::Taken { connection } => {
                self.line(connection).requests.pop_front();
            }
            Input::HalfTaken { connection, rest } => {
                self.line(connection).requests.push_front(rest);
            }
            Input::TakenLate => {
                self.stale.pop_front();
            }
            Input::Answered { connection, answer } => {
                self.line(connection).answers.push_back(answer);
            }
            Input::Told(hint) => self.hints.push_back(hint),
            Input::Asks => self.census.asks(),
            Input::Said(word) => self.census.said(word),
            Input::Untold => {
                let hint = self.hints.pop_front();
                hint.into_iter().for_each(|hint| self.not_called(hint));
            }
            Input::Die { cut_off, lingers } => {
                self.subscribed &= cut_off;
                self.die(lingers);
            }
            Input::Robbed(token) => {
                self.main.robbed(token);
                self.renewals.robbed(token);
            }
            _ => unreachable!("the process notices everything else"),
        }
    }
}
