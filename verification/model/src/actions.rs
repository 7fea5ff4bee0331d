//! What can happen next.

use crate::config::Config;
use crate::driver::{MALFORMED, Process};
use crate::network::{Connection, HintKind, Question, Sent};
use crate::world::World;

/// What can happen. Tasks and messages are named by their places, so that a list of steps still means
/// something when one of them is taken out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    /// A task of this process asks for locks.
    Call {
        process: u8,
        ask: u8,
    },
    /// The first command of a call is sent at last.
    Begin {
        process: u8,
        task: u8,
    },
    /// The engine's thread does the next thing it was asked to do.
    Engine {
        process: u8,
    },
    /// The server runs the next command of a connection.
    Run {
        process: u8,
        connection: Connection,
    },
    /// The server runs a command of a dead connection.
    RunStale {
        process: u8,
        again: bool,
    },
    /// The next answer arrives.
    Answer {
        process: u8,
        connection: Connection,
    },
    /// An answer is not waited for any longer.
    TimeOut {
        process: u8,
        connection: Connection,
    },
    /// The next message arrives.
    Hear {
        process: u8,
    },
    /// A body ends.
    Finish {
        process: u8,
        task: u8,
    },
    /// A body that has its lock alone goes on as a reader.
    Downgrade {
        process: u8,
        task: u8,
    },
    /// A waiter is cancelled, or its `wait` is over.
    Cancel {
        process: u8,
        task: u8,
    },
    /// A task is not polled any more.
    Doze {
        process: u8,
        task: u8,
    },
    /// It is polled again.
    Wake {
        process: u8,
        task: u8,
    },
    /// Time passes; one clock may be slower than the server's.
    Tick {
        slow: Option<u8>,
    },
    /// A process dies, and its connections are closed; what it had sent may still run.
    Crash {
        process: u8,
        lingers: bool,
    },
    /// A process is cut off: the server believes that it still listens.
    Vanish {
        process: u8,
    },
    /// Another process starts in the place of a dead one.
    Start {
        process: u8,
    },
    /// A connection dies; what the server had not read is gone, or `lingers` and may still run.
    Disconnect {
        process: u8,
        connection: Connection,
        lingers: bool,
    },
    LoseHint {
        process: u8,
    },
    /// A message that no process sent, or that comes twice: about the batch in this place.
    Forge {
        process: u8,
        key: u8,
        batch: u8,
        kind: HintKind,
    },
    /// The subscription is lost.
    Deafen {
        process: u8,
    },
    HearAgain {
        process: u8,
    },
    /// An operator frees a lock.
    ForceRelease {
        key: u8,
    },
    /// The server loses everything, or a replica without the last writes takes over.
    LoseData {
        drops_connections: bool,
    },
    LoseQueue {
        key: u8,
    },
    /// The server saves its state.
    Save,
    /// It comes back with the state that it has saved: after a crash, or by a replica that lags.
    Restore {
        drops_connections: bool,
    },
    /// R15: a question goes from one process to another.
    Ask {
        process: u8,
        of: u8,
        question: Question,
    },
    /// A process reads the next question, or answer to one.
    Attend {
        process: u8,
    },
    /// A process answers what it was asked.
    Reply {
        process: u8,
    },
}

impl Config {
    pub(crate) fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        if world.ghost.broken.is_some() {
            return;
        }
        for (number, process) in (0..).zip(&world.processes) {
            self.traffic(number, process, actions);
            if process.alive {
                self.calls(world, number, process, actions);
                self.tasks(world, number, process, actions);
                self.mishaps(world, number, process, actions);
                self.questions(world, number, process, actions);
            } else if self.restarts && process.main.requests.is_empty() {
                actions.push(Action::Start { process: number });
            }
        }
        self.outsiders(world, actions);
        if world.is_quiet(self.lag) {
            actions.push(Action::Tick { slow: None });
            for (number, process) in (0..).zip(&world.processes) {
                if process.slow_ticks > 0 {
                    actions.push(Action::Tick { slow: Some(number) });
                }
            }
        }
    }

    fn outsiders(&self, world: &World, actions: &mut Vec<Action>) {
        for key in 0..self.keys {
            let state = &world.server.keys[usize::from(key)];
            if world.faults.force_releases > 0 && !state.lock.is_free() {
                actions.push(Action::ForceRelease { key });
            }
            if world.faults.queue_losses > 0 && !state.queue.is_empty() {
                actions.push(Action::LoseQueue { key });
            }
        }
        if world.faults.data_losses > 0 {
            actions.push(Action::LoseData { drops_connections: false });
            actions.push(Action::LoseData { drops_connections: true });
        }
        self.states(world, actions);
    }

    fn states(&self, world: &World, actions: &mut Vec<Action>) {
        if world.faults.saves > 0 {
            actions.push(Action::Save);
        }
        if world.faults.restores > 0 && world.saved.is_some() {
            actions.push(Action::Restore { drops_connections: false });
            actions.push(Action::Restore { drops_connections: true });
        }
    }

    fn calls(&self, world: &World, number: u8, process: &Process, actions: &mut Vec<Action>) {
        // Calls without end within one tick would outrun a message without end.
        let outrun = world.processes.iter().any(|process| process.hints.len() > 1);
        let most = self.tasks_of.get(usize::from(number)).copied().unwrap_or(self.tasks);
        if process.arrivals == 0 || process.tasks.len() >= usize::from(most) || outrun {
            return;
        }
        let all: Vec<u8> = (0..self.asks.len() as u8).collect();
        let asks = self.who_asks.get(usize::from(number)).unwrap_or(&all);
        for ask in asks.iter().copied() {
            actions.push(Action::Call { process: number, ask });
        }
    }

    fn traffic(&self, number: u8, process: &Process, actions: &mut Vec<Action>) {
        for (connection, line) in
            [(Connection::Main, &process.main), (Connection::Renewals, &process.renewals)]
        {
            if !line.requests.is_empty() {
                actions.push(Action::Run { process: number, connection });
            }
            if !line.answers.is_empty() {
                actions.push(Action::Answer { process: number, connection });
            }
        }
        if !process.stale.is_empty() {
            actions.push(Action::RunStale { process: number, again: false });
            if self.doubles {
                actions.push(Action::RunStale { process: number, again: true });
            }
        }
        if process.alive && !process.hints.is_empty() {
            actions.push(Action::Hear { process: number });
        }
        if process.alive && !process.jobs.is_empty() {
            actions.push(Action::Engine { process: number });
        }
        if process.alive && process.census.has_heard() {
            actions.push(Action::Attend { process: number });
        }
        if process.alive && process.census.is_due(process.now) {
            actions.push(Action::Reply { process: number });
        }
    }

    /// R15: whatever may be sent to a process as a question.
    fn questions(&self, world: &World, of: u8, process: &Process, actions: &mut Vec<Action>) {
        if !process.subscribed || process.census.is_flooded() {
            return;
        }
        if process.census.may_be_doubled() {
            actions.push(Action::Ask { process: of, of, question: Question::Again });
        }
        if world.faults.questions == 0 {
            return;
        }
        let malformed = (0..MALFORMED).map(Question::Malformed);
        actions.extend(malformed.map(|question| Action::Ask { process: of, of, question }));
        for (asker, other) in (0..).zip(&world.processes) {
            if asker != of && other.alive {
                let all = [Question::All, Question::Forged];
                let asks = all.map(|question| Action::Ask { process: asker, of, question });
                actions.extend(asks);
            }
        }
    }

    fn tasks(&self, world: &World, number: u8, process: &Process, actions: &mut Vec<Action>) {
        for (task, state) in (0..).zip(&process.tasks) {
            if state.is_complete() {
                actions.push(Action::Finish { process: number, task });
                if self.downgrades && state.can_downgrade() {
                    actions.push(Action::Downgrade { process: number, task });
                }
                continue;
            }
            if state.unsent {
                actions.push(Action::Begin { process: number, task });
            }
            if world.faults.cancels > 0 {
                actions.push(Action::Cancel { process: number, task });
            }
            if state.dozes && self.wakes {
                actions.push(Action::Wake { process: number, task });
            }
            if world.faults.dozes > 0 && !state.dozes {
                actions.push(Action::Doze { process: number, task });
            }
        }
    }
}

impl Config {
    fn mishaps(&self, world: &World, number: u8, process: &Process, actions: &mut Vec<Action>) {
        let faults = &world.faults;
        if faults.crashes > 0 {
            actions.push(Action::Crash { process: number, lingers: false });
            if !process.main.requests.is_empty() {
                actions.push(Action::Crash { process: number, lingers: true });
            }
        }
        if faults.vanishings > 0 {
            actions.push(Action::Vanish { process: number });
        }
        if faults.lost_hints > 0 && !process.hints.is_empty() {
            actions.push(Action::LoseHint { process: number });
        }
        if !process.subscribed {
            actions.push(Action::HearAgain { process: number });
        } else if faults.deafenings > 0 {
            actions.push(Action::Deafen { process: number });
        }
        self.connections(world, number, process, actions);
        if faults.forged_hints > 0 {
            for (key, batch, _) in process.places() {
                for kind in [HintKind::Grant, HintKind::Seal, HintKind::Taken] {
                    actions.push(Action::Forge { process: number, key, batch, kind });
                }
            }
        }
    }

    fn connections(&self, world: &World, number: u8, process: &Process, actions: &mut Vec<Action>) {
        for (connection, line) in
            [(Connection::Main, &process.main), (Connection::Renewals, &process.renewals)]
        {
            if world.faults.timeouts > 0 && line.under_way().any(Sent::is_awaited) {
                actions.push(Action::TimeOut { process: number, connection });
            }
            let safe = self.only_renewals_die && connection == Connection::Main;
            if world.faults.disconnects == 0 || safe {
                continue;
            }
            if !line.is_quiet() {
                actions.push(Action::Disconnect { process: number, connection, lingers: false });
            }
            if !line.requests.is_empty() {
                actions.push(Action::Disconnect { process: number, connection, lingers: true });
            }
        }
    }
}
