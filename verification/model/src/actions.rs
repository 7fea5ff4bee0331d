//! What can happen next.

use crate::config::Config;
use crate::network::{Connection, Hint, HintKind};
use crate::process::{Batch, Holder, Process, Stage};
use crate::token::Token;
use crate::world::World;

/// What can happen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    /// A task of this process asks for locks.
    Call {
        process: u8,
        ask: u8,
    },
    /// The first caller's fast path is sent at last.
    SendFastPath {
        process: u8,
        key: u8,
        token: Token,
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
    /// The next message arrives.
    Hear {
        process: u8,
    },
    /// A body ends.
    Finish {
        process: u8,
        key: u8,
        token: Token,
    },
    /// A waiter is cancelled, or its `wait` is over.
    Cancel {
        process: u8,
        key: u8,
        token: Token,
        place: u8,
    },
    /// Time passes; one clock may stand still.
    Tick {
        slow: Option<u8>,
    },
    Crash {
        process: u8,
        lingers: bool,
    },
    Vanish {
        process: u8,
    },
    Disconnect {
        process: u8,
        connection: Connection,
        lingers: bool,
    },
    LoseHint {
        process: u8,
    },
    Forge {
        hint: Hint,
    },
    Deafen {
        process: u8,
    },
    HearAgain {
        process: u8,
    },
    Doze {
        process: u8,
        key: u8,
        token: Token,
        place: u8,
    },
    ForceRelease {
        key: u8,
    },
    LoseData {
        drops_connections: bool,
    },
    LoseQueue {
        key: u8,
    },
}

impl Config {
    pub(crate) fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        if world.ghost.broken.is_some() {
            return;
        }
        for (number, process) in (0..).zip(&world.processes) {
            self.traffic(number, process, actions);
            if !process.alive {
                continue;
            }
            self.calls(world, number, process, actions);
            self.tasks(world, number, process, actions);
            self.mishaps(world, number, process, actions);
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
            if world.faults.force_releases > 0 && state.lock.is_some() {
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
    }

    fn calls(&self, world: &World, number: u8, process: &Process, actions: &mut Vec<Action>) {
        // Calls without end within one tick would outrun a message without end.
        let outrun = world.processes.iter().any(|process| process.hints.len() > 1);
        if process.arrivals == 0 || process.tasks(self) >= usize::from(self.tasks) || outrun {
            return;
        }
        let all: Vec<u8> = (0..self.asks.len() as u8).collect();
        let asks = self.who_asks.get(usize::from(number)).unwrap_or(&all);
        for ask in asks.iter().copied() {
            let several = self.asks[usize::from(ask)].keys.len() > 1;
            if several && process.uses(ask) {
                continue;
            }
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
    }

    fn tasks(&self, world: &World, number: u8, process: &Process, actions: &mut Vec<Action>) {
        for (key, batch) in process.batches() {
            let token = batch.token;
            if batch.is_running() && self.ends(key, batch) {
                actions.push(Action::Finish { process: number, key, token });
            }
            if batch.unsent && matches!(batch.stage, Stage::Trying | Stage::Entering) {
                actions.push(Action::SendFastPath { process: number, key, token });
            }
            for (place, waiter) in (0..).zip(&batch.waiters) {
                if world.faults.cancels > 0 {
                    actions.push(Action::Cancel { process: number, key, token, place });
                }
                if world.faults.dozes > 0 && !waiter.dozes {
                    actions.push(Action::Doze { process: number, key, token, place });
                }
            }
        }
    }

    /// A body of several keys ends once.
    fn ends(&self, key: u8, batch: &Batch) -> bool {
        batch.lease().is_some_and(|lease| match lease.holder {
            Holder::Running(waiter, _) => self.asks[usize::from(waiter.ask)].keys[0] == key,
            _ => false,
        })
    }

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
        if faults.disconnects > 0 {
            for (connection, line) in
                [(Connection::Main, &process.main), (Connection::Renewals, &process.renewals)]
            {
                if !line.is_quiet() {
                    actions.push(Action::Disconnect {
                        process: number,
                        connection,
                        lingers: false,
                    });
                }
                if !line.requests.is_empty() {
                    actions.push(Action::Disconnect { process: number, connection, lingers: true });
                }
            }
        }
        if faults.forged_hints > 0 {
            for (key, batch) in process.batches() {
                let token = batch.token;
                for kind in [HintKind::Grant, HintKind::Seal, HintKind::Taken] {
                    actions.push(Action::Forge { hint: Hint { kind, key, token } });
                }
            }
        }
    }
}
