//! The world: the server, the processes, what is between them, and what can happen next.

use stateright::{Model, Property};

use crate::actions::Action;
use crate::config::{Config, Faults};
use crate::invariants::{Ghost, Invariant};
use crate::network::{Answer, Command, Connection, Hint, HintKind, Result, Sent};
use crate::process::{Batch, Process, Turn, Waiter};
use crate::server::{Key, Script, Server};

/// One state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) processes: Vec<Process>,
    pub(crate) faults: Faults,
    pub(crate) ghost: Ghost,
    /// The next sequence number of each process, as nothing mentions it.
    pub(crate) names: [u8; 4],
}

impl World {
    fn new(cfg: &Config) -> Self {
        let clock = u16::from(cfg.server_time);
        let keys = vec![Key::default(); usize::from(cfg.keys)];
        let mut processes = vec![Process::new(cfg); usize::from(cfg.processes)];
        for process in &mut processes {
            process.seen = clock;
        }
        Self {
            server: Server { keys, fence: clock, clock },
            processes,
            faults: cfg.faults,
            ghost: Ghost::new(cfg),
            names: [0; 4],
        }
    }

    fn process(&mut self, process: u8) -> &mut Process {
        &mut self.processes[usize::from(process)]
    }

    /// Nothing is under way that must arrive before the next tick.
    pub(crate) fn is_quiet(&self, lag: u8) -> bool {
        self.processes.iter().all(|process| process.is_quiet(lag))
    }

    fn turn(&mut self, cfg: &Config, process: u8, act: impl FnOnce(&mut Turn<'_>)) {
        let me = process;
        let name = &mut self.names[usize::from(process)];
        let process = &mut self.processes[usize::from(process)];
        let mut turn = Turn { cfg, me, process, name, started: Vec::new() };
        act(&mut turn);
        for started in turn.started {
            self.on_started(cfg, &started);
        }
    }

    fn script<T>(&mut self, cfg: &Config, run: impl FnOnce(&mut Script<'_>) -> T) -> T {
        let listening = (0..)
            .zip(&self.processes)
            .filter(|(_, process)| process.subscribed)
            .fold(0, |bits, (number, _)| bits | 1_u8 << number);
        let server = &mut self.server;
        let mut script = Script { cfg, server, listening, published: Vec::new() };
        let answer = run(&mut script);
        for hint in script.published {
            self.publish(cfg, hint);
        }
        answer
    }

    fn publish(&mut self, cfg: &Config, hint: Hint) {
        if cfg.taken_unheard && hint.kind == HintKind::Taken {
            return;
        }
        let process = self.process(hint.token.process);
        if process.alive && process.subscribed {
            if cfg.prompt_hints {
                self.turn(cfg, hint.token.process, |turn| turn.on_hint(hint));
            } else if !process.hints.contains(&hint) {
                // Two that say the same are one; doubled ones are forged.
                process.hints.push(hint);
            }
        } else if hint.kind == HintKind::Seal {
            self.ghost.unordered = true;
        }
    }

    /// The server runs a command. `None`: the second half is still to come.
    fn execute(&mut self, cfg: &Config, sent: Sent) -> Option<Result> {
        let expired = sent.expires == Some(0);
        // Time passes faster than fences are drawn, and one script may draw two.
        if cfg.server_time {
            self.server.clock = self.server.clock.max(self.server.fence);
        }
        self.server.clock += if cfg.server_time { 4 } else { 0 };
        Some(match sent.command {
            Command::Take { key, token, ttl, seen: _ } => self.script(cfg, |script| {
                let ok = script.take(key, token, ttl);
                if cfg.split_fast_path {
                    return None;
                }
                Some(Result::Taken { ok, fence: script.draw() })
            })?,
            Command::Draw { taken, .. } => {
                Result::Taken { ok: taken, fence: self.script(cfg, |script| script.draw()) }
            }
            Command::Acquire { key, token, ttl, ticket } => {
                let run =
                    |script: &mut Script<'_>| script.acquire(key, token, ttl, ticket, expired);
                Result::Acquired(self.script(cfg, run))
            }
            Command::Release { key, token, keep } => {
                let lock = self.server.keys[usize::from(key)].lock;
                if keep == 0 && lock.is_some_and(|lock| lock.token == token && lock.due > 0) {
                    self.ghost.broken = Some(Invariant::Kept);
                }
                Result::Released(self.script(cfg, |script| script.release(key, token, keep)))
            }
            Command::Renew { key, token, ttl, draws } => {
                Result::Renewed(self.script(cfg, |script| script.renew(key, token, ttl, draws)))
            }
            Command::Raise { least } => {
                Result::Raised { fence: self.script(cfg, |script| script.raise(least)) }
            }
        })
    }

    fn run(&mut self, cfg: &Config, process: u8, connection: Connection) {
        let requests = &mut self.line(process, connection).requests;
        let sent = requests.remove(0);
        let takes = match sent.command {
            Command::Take { key, .. } => self.server.keys[usize::from(key)].lock.is_none(),
            _ => false,
        };
        let Some(result) = self.execute(cfg, sent) else {
            let Command::Take { key, token, seen, .. } = sent.command else { return };
            let command = Command::Draw { key, token, taken: takes, seen };
            self.line(process, connection).requests.insert(0, Sent { command, ..sent });
            return;
        };
        if !self.process(process).alive {
            return;
        }
        let Sent { command, age, robbed, .. } = sent;
        let answer = Answer { command, age, result, robbed };
        if cfg.prompt {
            self.turn(cfg, process, |turn| turn.on_answer(answer));
        } else {
            self.line(process, connection).answers.push(answer);
        }
    }

    fn line(&mut self, process: u8, connection: Connection) -> &mut crate::network::Line {
        let process = self.process(process);
        match connection {
            Connection::Main => &mut process.main,
            Connection::Renewals => &mut process.renewals,
        }
    }

    fn tick(&mut self, cfg: &Config, slow: Option<u8>) {
        self.measure(cfg);
        for key in self.server.tick() {
            self.on_expired(cfg, key);
        }
        for process in &mut self.processes {
            let requests = process.main.requests.iter_mut().chain(&mut process.stale);
            for expires in requests.filter_map(|sent| sent.expires.as_mut()) {
                *expires = expires.saturating_sub(1);
            }
            for sent in &mut process.stale {
                sent.age = (sent.age + 1).min(cfg.stale_life.unwrap_or(0));
            }
            if let Some(life) = cfg.stale_life {
                process.stale.retain(|sent| sent.age < life);
            }
        }
        for process in 0..cfg.processes {
            if slow == Some(process) {
                self.process(process).slow_ticks -= 1;
            } else if self.process(process).alive {
                self.turn(cfg, process, |turn| turn.tick());
            }
        }
        self.ghost.epoch += 1;
    }

    fn kill(&mut self, process: u8, lingers: bool) {
        let process = self.process(process);
        process.alive = false;
        process.hears = false;
        for line in [&mut process.main, &mut process.renewals] {
            line.answers.clear();
            if !lingers {
                line.requests.clear();
            }
        }
        process.hints.clear();
        process.chores.clear();
        process.arrivals = 0;
        process.slow_ticks = 0;
        process.seen = 0;
        for key in &mut process.keys {
            *key = Default::default();
        }
    }

    /// The lock is taken from whoever holds it, by somebody outside the protocol.
    fn rob(&mut self, key: u8) {
        self.ghost.unordered = true;
        let Some(lock) = self.server.keys[usize::from(key)].lock else { return };
        let process = &mut self.processes[usize::from(lock.token.process)];
        for answer in &mut process.main.answers {
            answer.robbed |= answer.command.token() == Some(lock.token);
        }
        for sent in &mut process.main.requests {
            sent.robbed |= sent.command.token() == Some(lock.token)
                && matches!(sent.command, Command::Draw { .. });
        }
        let state = &mut process.keys[usize::from(key)];
        let batches = state.batches.iter_mut().filter(|batch| batch.token == lock.token);
        for lease in batches.filter_map(Batch::lease_mut) {
            lease.robbed = lease.robbed.or(Some(0));
        }
    }

    fn lose_data(&mut self, cfg: &Config, drops_connections: bool) {
        for key in 0..cfg.keys {
            self.rob(key);
        }
        self.server.keys.fill(Key::default());
        if cfg.server_time {
            self.server.clock = self.server.clock.max(self.server.fence);
        }
        // A replica that takes over lacks the last writes; `FLUSHALL` leaves nothing.
        self.server.fence = if drops_connections { self.server.fence / 2 } else { 0 };
        for process in 0..cfg.processes {
            if drops_connections && self.process(process).alive {
                for connection in [Connection::Main, Connection::Renewals] {
                    self.turn(cfg, process, |turn| turn.reconnect(connection, false));
                }
            }
        }
    }

    fn apply(&mut self, cfg: &Config, action: &Action) {
        match *action {
            Action::Call { process, ask } => {
                let licence = 0;
                let epoch = self.ghost.epoch;
                let exempt = !self.process(process).subscribed && !cfg.mode_n;
                let (dozes, tried) = (false, false);
                if self.process(process).arrivals != u8::MAX {
                    self.process(process).arrivals -= 1;
                }
                let waiter = Waiter { ask, epoch, licence, exempt, dozes, tried };
                self.turn(cfg, process, |turn| turn.call(waiter));
            }
            Action::SendFastPath { process, key, token } => {
                let epoch = self.ghost.epoch;
                self.turn(cfg, process, |turn| turn.send_fast_path(key, token, epoch));
            }
            Action::Run { process, connection } => self.run(cfg, process, connection),
            Action::RunStale { process, again } => {
                let stale = &mut self.process(process).stale;
                let sent = if again { stale[0] } else { stale.remove(0) };
                // Without an answer, the second half of a fast path changes nothing but a counter.
                let _ = self.execute(cfg, sent);
            }
            Action::Answer { process, connection } => {
                let answer = self.line(process, connection).answers.remove(0);
                self.turn(cfg, process, |turn| turn.on_answer(answer));
            }
            Action::Hear { process } => {
                let hint = self.process(process).hints.remove(0);
                self.turn(cfg, process, |turn| turn.on_hint(hint));
            }
            Action::Finish { process, key, token } => {
                self.turn(cfg, process, |turn| turn.finish(key, token));
            }
            Action::Cancel { process, key, token, place } => {
                self.faults.cancels -= 1;
                self.turn(cfg, process, |turn| turn.cancel(key, token, place.into()));
            }
            Action::Tick { slow } => self.tick(cfg, slow),
            Action::Crash { process, lingers } => {
                self.faults.crashes -= 1;
                self.process(process).subscribed = false;
                self.kill(process, lingers);
            }
            Action::Vanish { process } => {
                self.faults.vanishings -= 1;
                self.kill(process, false);
            }
            Action::Disconnect { process, connection, lingers } => {
                self.faults.disconnects -= 1;
                self.turn(cfg, process, |turn| turn.reconnect(connection, lingers));
            }
            Action::LoseHint { process } => {
                self.faults.lost_hints -= 1;
                let hint = self.process(process).hints.remove(0);
                if hint.kind == HintKind::Seal {
                    self.ghost.unordered = true;
                }
            }
            Action::Forge { hint } => {
                self.faults.forged_hints -= 1;
                self.publish(cfg, hint);
            }
            Action::Deafen { process } => {
                self.faults.deafenings -= 1;
                self.turn(cfg, process, |turn| turn.deafen());
            }
            Action::HearAgain { process } => self.turn(cfg, process, |turn| turn.hear_again()),
            Action::Doze { process, key, token, place } => {
                self.faults.dozes -= 1;
                let state = &mut self.process(process).keys[usize::from(key)];
                let batch = state.batches.iter_mut().find(|batch| batch.token == token);
                if let Some(waiter) =
                    batch.and_then(|batch| batch.waiters.get_mut(usize::from(place)))
                {
                    waiter.dozes = true;
                }
            }
            Action::ForceRelease { key } => {
                self.faults.force_releases -= 1;
                self.rob(key);
                self.script(cfg, |script| script.force_release(key));
            }
            Action::LoseData { drops_connections } => {
                self.faults.data_losses -= 1;
                self.lose_data(cfg, drops_connections);
            }
            Action::LoseQueue { key } => {
                self.faults.queue_losses -= 1;
                self.ghost.unordered = true;
                self.server.keys[usize::from(key)].queue.clear();
            }
        }
    }
}

impl Model for Config {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.possible(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.apply(self, &action);
        next.normalise(self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Invariant::properties()
    }
}
