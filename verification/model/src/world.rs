//! The world: the server, the processes, and what is between them.

use crate::actions::Action;
use crate::config::{Config, Faults};
use crate::driver::{Input, Process, Shared, Started, millis};
use crate::invariants::{Ghost, Invariant, Noted};
use crate::network::{
    Answer, Command, Connection, Hint, HintKind, Question, Result, Sent, Wire, Word,
};
use crate::server::{Holder, Key, Script, Server, Wish};
use crate::setting::Setting;
use crate::token::Token;

/// One state.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) server: Server,
    /// The state that it comes back with after a crash.
    pub(crate) saved: Option<Server>,
    pub(crate) processes: Vec<Shared>,
    pub(crate) faults: Faults,
    pub(crate) ghost: Ghost,
    /// How many bodies have started since it was asked last; not part of what an exhaustive run compares.
    started: u64,
}

/// An exhaustive run copies states into those that it is done with.
impl Clone for World {
    fn clone(&self) -> Self {
        let Self { server, saved, processes, faults, ghost, started } = self;
        let (server, processes, ghost) = (server.clone(), processes.clone(), ghost.clone());
        Self { server, saved: saved.clone(), processes, faults: *faults, ghost, started: *started }
    }

    fn clone_from(&mut self, from: &Self) {
        self.server.clone_from(&from.server);
        self.saved.clone_from(&from.saved);
        self.processes.clone_from(&from.processes);
        self.ghost.clone_from(&from.ghost);
        (self.faults, self.started) = (from.faults, from.started);
    }
}

impl World {
    pub(crate) fn new(cfg: &Config) -> Self {
        let clock = u64::from(cfg.server_time);
        let keys = vec![Key::default(); usize::from(cfg.keys)];
        let process = |place: u8| Shared::new(Process::new(cfg, place.into(), clock));
        let processes = (0..cfg.processes).map(process);
        Self {
            server: Server { keys, fence: clock, clock },
            saved: None,
            processes: processes.collect(),
            faults: cfg.faults,
            ghost: Ghost::new(cfg),
            started: 0,
        }
    }

    fn process(&self, process: u8) -> &Process {
        &self.processes[usize::from(process)]
    }

    /// Nothing is under way that must arrive before the next tick.
    pub(crate) fn is_quiet(&self, lag: u8) -> bool {
        self.processes.iter().all(|process| process.is_quiet(lag))
    }

    /// How many bodies have started since this was asked last.
    pub(crate) fn take_started(&mut self) -> u64 {
        std::mem::take(&mut self.started)
    }

    /// Something happens to a process.
    fn turn(&mut self, cfg: &Setting, process: u8, input: Input) {
        let epoch = self.ghost.epoch;
        let process = &mut self.processes[usize::from(process)];
        let (started, broken) = cfg.happens(process, epoch, input);
        self.ghost.broken = self.ghost.broken.or(broken);
        for started in started.iter() {
            self.on_body(cfg, started);
        }
    }

    fn on_body(&mut self, cfg: &Config, started: &Started) {
        self.started += 1;
        self.on_started(cfg, started);
    }

    fn script<T>(&mut self, cfg: &Setting, run: impl FnOnce(&mut Script<'_>) -> T) -> T {
        let subscribed = self.processes.iter().filter(|process| process.subscribed);
        let listening: Vec<_> = subscribed.map(|process| process.identity).collect();
        let server = &mut self.server;
        let mut script = Script::new(cfg, server, &listening);
        let answer = run(&mut script);
        let Script { published, admitted, crowded, .. } = script;
        if crowded {
            self.ghost.broken = Some(Invariant::Limit);
        }
        if admitted.is_some_and(|(key, own)| self.is_kept_out(key, own, &listening)) {
            self.ghost.broken = Some(Invariant::Next);
        }
        // An `acquire` that was under way may have made a lock again that was taken away. What is only
        // reserved for it ends with its claim, as a holder that has not heard of its loss confirms nothing.
        if !self.ghost.robbed.is_empty() {
            let owns = |noted: &Noted| self.has_again(noted.key, noted.token);
            let (again, robbed): (Vec<_>, Vec<_>) =
                self.ghost.robbed.iter().copied().partition(owns);
            self.ghost.robbed = robbed;
            for Noted { key, token, .. } in again {
                if self.processes.iter().any(|process| process.is_in_doubt(key, token)) {
                    self.ghost.outdated.push((key, token));
                }
            }
        }
        for hint in published {
            self.publish(cfg, hint);
        }
        answer
    }

    /// A lock that was taken away from a token is in its name again, for at least as long as its process takes
    /// it to be: it was made again by late bytes, or by an older state of the server, which may end earlier.
    fn has_again(&self, key: u8, token: Token) -> bool {
        let holder = self.server.keys[usize::from(key)].lock.of(token);
        let Some(Holder { ttl, claimed: false, .. }) = holder else { return false };
        let left = self.place_of(token).map(|place| self.process(place).believes(key, token));
        left.is_none_or(|left| left <= millis(*ttl))
    }

    /// J: the first in the queue that is alive could have the lock.
    fn is_kept_out(&self, key: u8, own: Option<Token>, listening: &[u16]) -> bool {
        let state = &self.server.keys[usize::from(key)];
        let lives =
            |token: Token| token.deaf || own == Some(token) || listening.contains(&token.process);
        let first = state.queue.iter().map(|entry| entry.token).find(|token| lives(*token));
        first.is_some_and(|first| state.lock.has_room_for(first))
    }

    fn place_of(&self, token: Token) -> Option<u8> {
        (0..)
            .zip(&self.processes)
            .find_map(|(place, process)| (process.identity == token.process).then_some(place))
    }

    fn publish(&mut self, cfg: &Setting, hint: Hint) {
        if cfg.taken_unheard && hint.kind == HintKind::Taken {
            return;
        }
        let Some(place) = self.place_of(hint.token) else { return };
        let process = self.process(place);
        if process.alive && process.subscribed {
            if cfg.prompt_hints {
                self.turn(cfg, place, Input::Hint(hint));
            } else if !process.hints.contains(&hint) {
                // Two that say the same are one; doubled ones are forged.
                self.turn(cfg, place, Input::Told(hint));
            }
        } else if hint.kind == HintKind::Seal {
            self.ghost.unordered = true;
        }
    }

    /// The server runs a command. `None`: the second half is still to come.
    fn execute(&mut self, cfg: &Setting, sent: Sent) -> Option<Result> {
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
                Some(Result::Taken { ok, fence: script.draw_with_raise() })
            })?,
            Command::Draw { taken, .. } => {
                let fence = self.script(cfg, |script| script.draw_with_raise());
                Result::Taken { ok: taken, fence }
            }
            Command::Acquire { key, token, ttl, ticket, is_try, .. } => {
                let wish = Wish { ttl, ticket, is_try, expired };
                Result::Acquired(self.script(cfg, |script| script.acquire(key, token, wish)))
            }
            Command::Release { key, token, keep } => {
                let lock = &self.server.keys[usize::from(key)].lock;
                let early = lock.of(token).is_some_and(|holder| holder.due > 0);
                if keep.is_none() && early {
                    self.ghost.broken = Some(Invariant::Kept);
                }
                let released = self.script(cfg, |script| script.release(key, token, keep));
                if let Some(holder) = self.server.keys[usize::from(key)].lock.of_mut(token) {
                    // It counts from its holder's end, not from when the server hears of it.
                    let late = u32::from(sent.age) * cfg.tick + cfg.drift;
                    holder.due = if sent.is_stale { 0 } else { holder.due.saturating_sub(late) };
                }
                Result::Released(released)
            }
            Command::Renew { key, token, ttl, draws } => {
                Result::Renewed(self.script(cfg, |script| script.renew(key, token, ttl, draws)))
            }
            Command::Exchange { key, token, old, ttl, seen: _ } => {
                Result::Exchanged(self.script(cfg, |script| script.exchange(key, old, token, ttl)))
            }
            Command::Raise { least } => {
                Result::Raised { fence: self.script(cfg, |script| script.raise(least)) }
            }
        })
    }

    fn run(&mut self, cfg: &Setting, process: u8, connection: Connection) {
        let Some(sent) = self.line(process, connection).requests.front().copied() else { return };
        self.turn(cfg, process, Input::Taken { connection });
        let takes = match sent.command {
            Command::Take { key, .. } => self.server.keys[usize::from(key)].lock.is_free(),
            _ => false,
        };
        let Some(result) = self.execute(cfg, sent) else {
            let Command::Take { key, token, ttl, seen } = sent.command else { return };
            let command = Command::Draw { key, token, ttl, taken: takes, seen };
            let rest = Sent { command, ..sent };
            self.turn(cfg, process, Input::HalfTaken { connection, rest });
            return;
        };
        if !self.process(process).alive {
            return;
        }
        let answer = Answer { sent, result };
        if cfg.prompt {
            self.answer(cfg, process, answer);
        } else {
            self.turn(cfg, process, Input::Answered { connection, answer });
        }
    }

    /// The answer to a command that was sent so, at once.
    fn answer(&mut self, cfg: &Setting, process: u8, answer: Answer) {
        let sent = answer.sent;
        self.turn(cfg, process, Input::Answer(answer));
        self.on_answered(sent);
    }

    /// The next answer of a connection.
    fn read(&mut self, cfg: &Setting, process: u8, connection: Connection) {
        let answer = self.line(process, connection).answers.front();
        if let Some(sent) = answer.map(|answer| answer.sent) {
            self.turn(cfg, process, Input::Read { connection });
            self.on_answered(sent);
        }
    }

    fn on_answered(&mut self, sent: Sent) {
        if let Some((key, token)) = sent.command.believed().filter(|_| sent.robbed) {
            self.ghost.rob(key, token);
        }
    }

    fn line(&self, process: u8, connection: Connection) -> &Wire {
        self.process(process).wire(connection)
    }

    fn tick(&mut self, cfg: &Setting, slow: Option<u8>) {
        self.measure(cfg);
        // A waiter for a lock that was kept looks right after its end, which here is a tick.
        let kept = |holder: &Holder| holder.kept && holder.ttl <= cfg.tick;
        self.ghost.unordered |= self.server.keys.iter().any(|key| key.lock.live().any(kept));
        // Leases end by the clock, also in what is saved.
        if let Some(saved) = &mut self.saved {
            saved.tick(cfg.tick);
        }
        for key in self.server.tick(cfg.tick) {
            self.on_expired(cfg, key);
        }
        for place in 0..cfg.processes {
            let drift = if slow == Some(place) { cfg.drift } else { 0 };
            self.turn(cfg, place, Input::Tick { passed: cfg.tick - drift });
        }
        self.ghost.epoch += 1;
    }

    /// The lock is taken from its holder, by something outside the protocol.
    fn rob(&mut self, cfg: &Setting, key: u8) {
        self.ghost.unordered = true;
        let holders = self.server.keys[usize::from(key)].lock.holders.clone();
        holders.into_iter().for_each(|holder| self.rob_of(cfg, key, holder.token));
    }

    fn rob_of(&mut self, cfg: &Setting, key: u8, token: Token) {
        self.ghost.rob(key, token);
        let Some(place) = self.place_of(token) else { return };
        self.turn(cfg, place, Input::Robbed(token));
    }

    fn lose_data(&mut self, cfg: &Setting, drops_connections: bool) {
        for key in 0..cfg.keys {
            self.rob(cfg, key);
        }
        self.server.keys.fill(Key::default());
        if cfg.server_time {
            self.server.clock = self.server.clock.max(self.server.fence);
        }
        // A replica that takes over lacks the last writes; `FLUSHALL` leaves nothing.
        self.server.fence = if drops_connections { self.server.fence / 2 } else { 0 };
        self.drop_connections(cfg, drops_connections);
    }

    fn drop_connections(&mut self, cfg: &Setting, drops_connections: bool) {
        for process in 0..cfg.processes {
            if drops_connections && self.process(process).alive {
                for connection in [Connection::Main, Connection::Renewals] {
                    self.turn(cfg, process, Input::Reconnect { connection, lingers: false });
                }
            }
        }
    }

    /// What was done since is undone. Holders of a lock that has others now have lost it.
    fn restore(&mut self, cfg: &Setting, drops_connections: bool) {
        let Some(saved) = self.saved.clone() else { return };
        self.ghost.unordered = true;
        for key in 0..cfg.keys {
            let place = usize::from(key);
            let now = self.server.keys[place].lock.holders.clone();
            let then = &saved.keys[place];
            // Also those that are in it: with a lease that is not as long as they know it to be.
            now.iter().for_each(|holder| self.rob_of(cfg, key, holder.token));
            // They may have it once more without knowing that others had it in between.
            let again = then.lock.holders.iter().map(|holder| holder.token);
            let again = again.chain(then.queue.iter().map(|entry| entry.token));
            self.ghost.outdated.extend(again.map(|token| (key, token)));
        }
        if cfg.server_time {
            self.server.clock = self.server.clock.max(self.server.fence);
        }
        self.server.restore(&saved);
        self.drop_connections(cfg, drops_connections);
    }

    pub(crate) fn apply(&mut self, cfg: &Setting, action: &Action) {
        let before = self.faults;
        match *action {
            Action::Call { process, ask } => {
                let exempt = !self.process(process).subscribed && cfg.silent;
                self.turn(cfg, process, Input::Call { ask, exempt });
            }
            Action::Begin { process, task } => {
                self.turn(cfg, process, Input::Begin { task });
            }
            Action::Engine { process } => self.turn(cfg, process, Input::Engine),
            Action::Run { process, connection } => self.run(cfg, process, connection),
            Action::RunStale { process, again } => {
                let sent = self.process(process).stale.front().copied();
                if !again {
                    self.turn(cfg, process, Input::TakenLate);
                }
                // Without an answer, the second half of a fast path changes nothing but a counter.
                let _ = sent.map(|sent| self.execute(cfg, sent));
            }
            Action::Answer { process, connection } => {
                self.read(cfg, process, connection);
            }
            Action::Hear { process } => {
                self.turn(cfg, process, Input::Hear);
            }
            Action::Finish { process, task } => {
                self.turn(cfg, process, Input::Finish { task });
            }
            Action::Downgrade { process, task } => {
                self.turn(cfg, process, Input::Downgrade { task });
            }
            Action::Wake { process, task } => self.turn(cfg, process, Input::Wake { task }),
            Action::Tick { slow } => self.tick(cfg, slow),
            Action::Start { process } => self.start(cfg, process),
            Action::HearAgain { process } => self.turn(cfg, process, Input::HearAgain),
            Action::Attend { process } => self.turn(cfg, process, Input::Attend),
            Action::Reply { process } => self.reply(cfg, process),
            _ => self.go_wrong(cfg, action),
        }
        if cfg.endless {
            self.faults = before;
        }
        let calm = matches!(
            action,
            Action::Call { .. }
                | Action::Begin { .. }
                | Action::Engine { .. }
                | Action::Run { .. }
                | Action::Answer { .. }
                | Action::Hear { .. }
                | Action::Finish { .. }
                | Action::Downgrade { .. }
                | Action::Tick { slow: None }
                | Action::Ask { .. }
                | Action::Attend { .. }
                | Action::Reply { .. }
        );
        if cfg.endless && !calm {
            self.ghost.begin_again();
        }
    }

    fn go_wrong(&mut self, cfg: &Setting, action: &Action) {
        match *action {
            Action::Cancel { process, task } => {
                self.faults.cancels -= 1;
                self.turn(cfg, process, Input::Cancel { task });
            }
            Action::Doze { process, task } => {
                self.faults.dozes -= 1;
                self.turn(cfg, process, Input::Doze { task });
            }
            Action::TimeOut { process, connection } => {
                self.faults.timeouts -= 1;
                self.turn(cfg, process, Input::TimeOut { connection });
            }
            Action::Crash { process, lingers } => {
                self.faults.crashes -= 1;
                self.turn(cfg, process, Input::Die { cut_off: false, lingers });
            }
            Action::Vanish { process } => {
                self.faults.vanishings -= 1;
                self.turn(cfg, process, Input::Die { cut_off: true, lingers: false });
            }
            Action::Disconnect { process, connection, lingers } => {
                self.faults.disconnects -= 1;
                self.turn(cfg, process, Input::Reconnect { connection, lingers });
            }
            Action::LoseHint { process } => {
                self.faults.lost_hints -= 1;
                let hint = self.process(process).hints.front().copied();
                self.turn(cfg, process, Input::Untold);
                self.ghost.unordered |= hint.is_some_and(|hint| hint.kind == HintKind::Seal);
            }
            Action::Forge { process, key, batch, kind } => {
                self.faults.forged_hints -= 1;
                if let Some(token) = self.process(process).token_at(key, batch) {
                    self.publish(cfg, Hint { kind, key, token });
                }
            }
            Action::Deafen { process } => {
                self.faults.deafenings -= 1;
                self.turn(cfg, process, Input::Deafen);
            }
            Action::ForceRelease { key } => {
                self.faults.force_releases -= 1;
                self.rob(cfg, key);
                let all = self.script(cfg, |script| script.force_release(key));
                all.into_iter().for_each(|token| self.ghost.rob(key, token));
            }
            Action::LoseData { drops_connections } => {
                self.faults.data_losses -= 1;
                self.lose_data(cfg, drops_connections);
            }
            Action::Save => {
                self.faults.saves -= 1;
                self.saved = Some(self.server.clone());
            }
            Action::Restore { drops_connections } => {
                self.faults.restores -= 1;
                self.restore(cfg, drops_connections);
            }
            Action::LoseQueue { key } => {
                self.faults.queue_losses -= 1;
                self.ghost.unordered = true;
                self.server.keys[usize::from(key)].queue.clear();
            }
            Action::Ask { process, of, question } => {
                if question != Question::Again {
                    self.faults.questions -= 1;
                }
                self.ask(cfg, process, of, question);
            }
            _ => unreachable!("everything else goes well"),
        }
    }

    /// R15: a question is sent.
    fn ask(&mut self, cfg: &Setting, asker: u8, of: u8, question: Question) {
        if question == Question::All {
            self.turn(cfg, asker, Input::Asks);
        }
        let asking = self.process(asker);
        let Some(text) = self.process(of).census.text_of(question, asking) else { return };
        self.turn(cfg, of, Input::Said(Word::Question(text)));
    }

    /// R15: a process answers all that have asked, as far as these listen.
    fn reply(&mut self, cfg: &Setting, place: u8) {
        let answers = self.process(place).answers();
        self.turn(cfg, place, Input::Reply);
        for (identity, nonces) in answers {
            let asker = (0..).zip(&self.processes).find(|(_, process)| {
                process.identity == identity && process.alive && process.subscribed
            });
            if let Some(asker) = asker.map(|(place, _)| place) {
                self.turn(cfg, asker, Input::Said(Word::Answer(nonces)));
            }
        }
    }

    /// A new process in the place of a dead one. What that one sent may still run.
    fn start(&mut self, cfg: &Setting, place: u8) {
        // The lowest number of tokens that none of its forerunners has had.
        let identity = self.process(place).identity + u16::from(cfg.processes);
        self.turn(cfg, place, Input::Start { identity, seen: self.server.clock });
    }
}

/// Traces.
impl World {
    /// What matters most of it, in a few lines.
    pub(crate) fn brief(&self) -> String {
        let mut text = String::new();
        for (number, key) in self.server.keys.iter().enumerate() {
            let of = |holder: &Holder| (holder.token, holder.ttl, holder.claimed, holder.kept);
            let lock: Vec<_> = key.lock.holders.iter().map(of).collect();
            let queue: Vec<_> = key.queue.iter().map(|entry| (entry.ticket, entry.token)).collect();
            text.push_str(&format!("    key {number}: {lock:?} queue {queue:?}\n"));
        }
        for process in &self.processes {
            process.brief(&mut text);
        }
        text
    }
}
