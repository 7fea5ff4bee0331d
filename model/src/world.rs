//! The world: the server, the processes, what is between them, and what can happen next.

use stateright::{Model, Property};

use crate::config::{Config, Faults};
use crate::invariants::{self, Ghost, Invariant};
use crate::network::{Answer, Command, Connection, Hint, HintKind, Result, Sent};
use crate::process::{Batch, Holder, Lease, Process, Stage, Turn, Waiter};
use crate::server::{Acquired, Key, Script, Server};
use crate::token::Token;

/// One state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) processes: Vec<Process>,
    pub(crate) faults: Faults,
    pub(crate) ghost: Ghost,
}

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
        }
    }

    fn process(&mut self, process: u8) -> &mut Process {
        &mut self.processes[usize::from(process)]
    }

    /// Nothing is under way that must arrive before the next tick.
    fn is_quiet(&self, lag: u8) -> bool {
        self.processes.iter().all(|process| process.is_quiet(lag))
    }

    fn turn(&mut self, cfg: &Config, process: u8, act: impl FnOnce(&mut Turn<'_>)) {
        let used = self.used(process);
        let me = process;
        let process = &mut self.processes[usize::from(process)];
        let mut turn = Turn { cfg, me, process, used, started: Vec::new() };
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

    /// Sequence numbers of `process` that something mentions.
    fn used(&self, process: u8) -> u32 {
        let mut used = 0;
        self.clone().tokens(&mut |token| {
            if token.process == process {
                used |= 1_u32 << token.seq;
            }
        });
        used
    }

    /// Every token.
    fn tokens(&mut self, see: &mut impl FnMut(&mut Token)) {
        for key in &mut self.server.keys {
            key.lock.iter_mut().for_each(|lock| see(&mut lock.token));
            key.queue.iter_mut().for_each(|entry| see(&mut entry.token));
        }
        for process in &mut self.processes {
            for state in &mut process.keys {
                state.batches.iter_mut().for_each(|batch| see(&mut batch.token));
            }
            for line in [&mut process.main, &mut process.renewals] {
                for sent in &mut line.requests {
                    sent.command.token_mut().into_iter().for_each(&mut *see);
                }
                for answer in &mut line.answers {
                    answer.command.token_mut().into_iter().for_each(&mut *see);
                    if let Result::Released(released) = &mut answer.result {
                        released.to.iter_mut().for_each(&mut *see);
                    }
                }
            }
            for sent in &mut process.stale {
                sent.command.token_mut().into_iter().for_each(&mut *see);
            }
            process.hints.iter_mut().for_each(|hint| see(&mut hint.token));
            process.chores.iter_mut().for_each(|chore| see(&mut chore.token));
            for state in &mut process.keys {
                state.repair.iter_mut().for_each(|repair| see(&mut repair.token));
            }
        }
    }

    /// Every ticket, fence and time. Only their order matters.
    fn numbers(&mut self, see: &mut impl FnMut(&mut u16)) {
        see(&mut self.server.fence);
        see(&mut self.server.clock);
        for key in &mut self.server.keys {
            key.queue.iter_mut().for_each(|entry| see(&mut entry.ticket));
        }
        for highest in &mut self.ghost.highest {
            see(&mut highest.fence);
        }
        for process in &mut self.processes {
            see(&mut process.seen);
            for line in [&mut process.main, &mut process.renewals] {
                for sent in &mut line.requests {
                    numbers_of_command(&mut sent.command, see);
                }
                for answer in &mut line.answers {
                    numbers_of_command(&mut answer.command, see);
                    numbers_of_result(&mut answer.result, see);
                }
            }
            for sent in &mut process.stale {
                numbers_of_command(&mut sent.command, see);
            }
            for batch in process.keys.iter_mut().flat_map(|state| &mut state.batches) {
                see(&mut batch.ticket);
                if let Some(Lease { fence, next_fence, last, .. }) = batch.lease_mut() {
                    see(fence);
                    see(next_fence);
                    last.iter_mut().for_each(|last| see(&mut last.fence));
                }
            }
        }
    }

    /// Equal for our purposes is equal: numbers become ranks, epochs keep only the gaps that matter.
    fn normalise(&mut self, cfg: &Config) {
        let mut all = Vec::new();
        self.numbers(&mut |number| all.push(*number));
        all.push(0);
        all.sort_unstable();
        all.dedup();
        let rank = |number: &u16| all.binary_search(number).unwrap_or_default() as u16;
        // A counter that begins again stays below what was seen.
        let gap = if cfg.server_time { 8 } else { 1 };
        self.numbers(&mut |number| *number = rank(number) * gap);
        let mut names = [[u8::MAX; 32]; 4];
        let mut next = [0_u8; 4];
        self.tokens(&mut |token| {
            let process = usize::from(token.process);
            let name = &mut names[process][usize::from(token.seq)];
            if *name == u8::MAX {
                *name = next[process];
                next[process] += 1;
            }
            token.seq = *name;
        });
        invariants::normalise(self, cfg);
    }
}

fn numbers_of_command(command: &mut Command, see: &mut impl FnMut(&mut u16)) {
    match command {
        Command::Take { seen, .. } | Command::Draw { seen, .. } => see(seen),
        Command::Acquire { ticket, .. } => see(ticket),
        Command::Raise { least } => see(least),
        Command::Release { .. } | Command::Renew { .. } => {}
    }
}

fn numbers_of_result(result: &mut Result, see: &mut impl FnMut(&mut u16)) {
    match result {
        Result::Taken { fence, .. }
        | Result::Acquired(Acquired::Granted { fence, .. })
        | Result::Renewed(Some((_, fence)))
        | Result::Raised { fence } => see(fence),
        Result::Acquired(Acquired::Queued { ticket, .. }) => see(ticket),
        Result::Acquired(Acquired::Stale) | Result::Released(_) | Result::Renewed(None) => {}
    }
}

impl Config {
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
            if batch.is_running() && self.ends(process, key, batch) {
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
    fn ends(&self, _: &Process, key: u8, batch: &Batch) -> bool {
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
                for kind in [HintKind::Grant, HintKind::Seal] {
                    actions.push(Action::Forge { hint: Hint { kind, key, token } });
                }
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
        if world.is_quiet(self.lag) {
            actions.push(Action::Tick { slow: None });
            for (number, process) in (0..).zip(&world.processes) {
                if process.slow_ticks > 0 {
                    actions.push(Action::Tick { slow: Some(number) });
                }
            }
        }
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
