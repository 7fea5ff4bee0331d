//! What must hold in every state, and the history ("ghosts") needed to say it.

use crate::config::Config;
use crate::driver::{self, Body, Process, Shared, Started, Task};
use crate::mutants::Mutant;
use crate::network::{Command, Sent};
use crate::server::Holder;
use crate::token::Token;
use crate::world::World;

/// The invariants, with the names of the protocol's list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Invariant {
    /// I2: at most one body runs per key.
    Exclusion,
    /// I2a: a body that has the lock alone runs beside no other.
    Alone,
    /// I2b: a token that is let in is one of no more holders than its limit allows.
    Limit,
    /// I1: while a body runs, the lock is in its lease's name.
    Lease,
    /// I3: whatever can still make a lock is owned, waiting, or with the janitor.
    Accounted,
    /// I3: after a release was sent, no local holder uses its token.
    Terminal,
    /// I3: no lock is held for long in the name of a live process that does not want it.
    Stray,
    /// I4: the lock does not lie idle under a live waiter for longer than the bound.
    Idle,
    /// I4a: the first in the queue waits no longer than the bound for a lock that it could have.
    Front,
    /// J: a script that can let others in leaves no token at the front of the queue that could have the lock.
    Next,
    /// K: a lock ends with the last of its leases.
    End,
    /// I5: a live waiter is back at its place within the bound.
    Place,
    /// I6: fencing tokens grow with every body.
    Fencing,
    /// I7: first come, first served, up to what is allowed.
    Order,
    /// A body starts with about the ttl it asked for.
    Ttl,
    /// A holder whose lock was taken away finds out within the bound.
    Robbed,
    /// No lock is free before its `min_hold`.
    Kept,
    /// An engine comes to an end of what is due at one moment.
    Rest,
    /// R15: a question, and an answer to one, changes nothing.
    Asked,
    /// R15: an answer names every lock that a body has and every place at which a call waits, and no call that
    /// is gone.
    Told,
}

/// History that no process has.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ghost {
    /// The highest fencing token a body of each key has had.
    pub(crate) highest: Vec<u64>,
    /// The highest of one that had the lock alone.
    pub(crate) highest_alone: Vec<u64>,
    /// Ticks for which each key has lain idle under a live waiter.
    pub(crate) idle: Vec<u16>,
    /// Ticks for which the first in each queue could have had the lock.
    pub(crate) front: Vec<u16>,
    /// Ticks for which nothing has run although there is a waiter.
    pub(crate) stall: u16,
    /// Ticks for which a lock has been held in the name of a live process that does not know the token.
    pub(crate) stray: Vec<Noted>,
    /// Ticks for which a batch (of a process, by key and token) has been neither in the queue nor in
    /// the lock.
    pub(crate) outside: Vec<Noted>,
    /// Ticks since a lock was taken away from this token, from outside.
    pub(crate) robbed: Vec<Noted>,
    /// Tokens whose lock was taken away from outside and made again by bytes of a dead connection: their
    /// process does not hear of that, and goes on under its old counter value.
    pub(crate) outdated: Vec<(u8, Token)>,
    /// The tick, as far as arrivals need it.
    pub(crate) epoch: u32,
    /// The tick in which each key's lock expired last: a call that arrives then may pass.
    pub(crate) expired: Vec<u32>,
    /// Something has happened after which I7 promises less.
    pub(crate) unordered: bool,
    /// An invariant about a step was violated.
    pub(crate) broken: Option<Invariant>,
}

/// An exhaustive run copies states into those that it is done with.
impl Clone for Ghost {
    fn clone(&self) -> Self {
        Self {
            highest: self.highest.clone(),
            highest_alone: self.highest_alone.clone(),
            idle: self.idle.clone(),
            front: self.front.clone(),
            stray: self.stray.clone(),
            outside: self.outside.clone(),
            robbed: self.robbed.clone(),
            outdated: self.outdated.clone(),
            expired: self.expired.clone(),
            ..*self
        }
    }

    fn clone_from(&mut self, from: &Self) {
        self.highest.clone_from(&from.highest);
        self.highest_alone.clone_from(&from.highest_alone);
        self.idle.clone_from(&from.idle);
        self.front.clone_from(&from.front);
        self.stray.clone_from(&from.stray);
        self.outside.clone_from(&from.outside);
        self.robbed.clone_from(&from.robbed);
        self.outdated.clone_from(&from.outdated);
        self.expired.clone_from(&from.expired);
        (self.stall, self.epoch) = (from.stall, from.epoch);
        (self.unordered, self.broken) = (from.unordered, from.broken);
    }
}

/// A token, and for how many ticks something has been true of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Noted {
    pub(crate) key: u8,
    pub(crate) token: Token,
    pub(crate) ticks: u16,
}

impl Ghost {
    pub(crate) fn new(cfg: &Config) -> Self {
        let keys = usize::from(cfg.keys);
        Self {
            highest: vec![0; keys],
            highest_alone: vec![0; keys],
            idle: vec![0; keys],
            front: vec![0; keys],
            stall: 0,
            stray: Vec::new(),
            outside: Vec::new(),
            robbed: Vec::new(),
            outdated: Vec::new(),
            epoch: 1,
            expired: vec![0; keys],
            unordered: !cfg.order,
            broken: None,
        }
    }

    /// Something went wrong: what takes time may take it from here.
    pub(crate) fn begin_again(&mut self) {
        self.idle.fill(0);
        self.front.fill(0);
        self.stray.clear();
        self.stall = 0;
        self.outside.clear();
        self.robbed.iter_mut().for_each(|noted| noted.ticks = 0);
    }

    /// The lock of this token was taken away from outside, and it may not have heard of it.
    pub(crate) fn is_robbed(&self, key: u8, token: Token) -> bool {
        self.robbed.iter().any(|noted| (noted.key, noted.token) == (key, token))
    }

    pub(crate) fn rob(&mut self, key: u8, token: Token) {
        if !self.is_robbed(key, token) {
            self.robbed.push(Noted { key, token, ticks: 0 });
        }
    }
}

type Condition = fn(&Config, &World) -> bool;

/// Each with its name in figures, and what must be true.
const ALL: [(Invariant, &str, Condition); 20] = [
    (Invariant::Exclusion, "I2 exclusion", |_, world| world.excludes()),
    (Invariant::Alone, "I2a alone", |_, world| world.are_alone()),
    (Invariant::Limit, "I2b limit", |_, world| world.keeps(Invariant::Limit)),
    (Invariant::Lease, "I1 lease", |_, world| world.leases()),
    (Invariant::Accounted, "I3 accounted", |cfg, world| {
        world.living().all(|process| process.accounts(cfg))
    }),
    (Invariant::Terminal, "I3 terminal", |_, world| {
        world.living().all(|process| process.is_terminal())
    }),
    (Invariant::Stray, "I3 stray", |cfg, world| noted_within(cfg.bounds.stray, &world.ghost.stray)),
    (Invariant::Idle, "I4 idle", |cfg, world| {
        within(cfg.bounds.idle, &world.ghost.idle) && within(cfg.bounds.idle, &[world.ghost.stall])
    }),
    (Invariant::Front, "I4a front", |cfg, world| within(cfg.bounds.idle, &world.ghost.front)),
    (Invariant::Next, "J next", |_, world| world.keeps(Invariant::Next)),
    (Invariant::End, "K end", |_, world| world.ends()),
    (Invariant::Place, "I5 place", |cfg, world| world.places(cfg)),
    (Invariant::Fencing, "I6 fencing", |_, world| world.keeps(Invariant::Fencing)),
    (Invariant::Order, "I7 order", |_, world| world.keeps(Invariant::Order)),
    (Invariant::Ttl, "ttl", |_, world| world.keeps(Invariant::Ttl)),
    (Invariant::Robbed, "robbed", |cfg, world| world.finds_out(cfg)),
    (Invariant::Kept, "kept", |_, world| world.keeps(Invariant::Kept)),
    (Invariant::Rest, "rest", |_, world| world.keeps(Invariant::Rest)),
    (Invariant::Asked, "R15 asked", |_, world| world.keeps(Invariant::Asked)),
    (Invariant::Told, "R15 told", |_, world| world.keeps(Invariant::Told)),
];

impl Invariant {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(invariant, ..)| *invariant == self).map_or("", |(_, name, _)| name)
    }
}

impl World {
    /// The first invariant that does not hold.
    pub(crate) fn violated(&self, cfg: &Config) -> Option<Invariant> {
        let broken = ALL.iter().find(|(_, _, condition)| !condition(cfg, self))?;
        Some(broken.0)
    }

    /// No step has broken it.
    fn keeps(&self, invariant: Invariant) -> bool {
        self.ghost.broken != Some(invariant)
    }
}

fn within(bound: Option<u16>, ticks: &[u16]) -> bool {
    bound.is_none_or(|bound| ticks.iter().all(|ticks| *ticks <= bound))
}

fn noted_within(bound: Option<u16>, noted: &[Noted]) -> bool {
    bound.is_none_or(|bound| noted.iter().all(|noted| noted.ticks <= bound))
}

/// It has been so for one tick more.
fn once_more(before: &[Noted], key: u8, token: Token, bound: u16) -> Noted {
    let noted = before.iter().find(|noted| (noted.key, noted.token) == (key, token));
    let ticks = noted.map_or(1, |noted| (noted.ticks + 1).min(bound + 1));
    Noted { key, token, ticks }
}

impl World {
    fn living(&self) -> impl Iterator<Item = &Shared> {
        self.processes.iter().filter(|process| process.alive)
    }

    /// Every body that runs, by key.
    fn bodies(&self) -> impl Iterator<Item = Body> {
        self.living().flat_map(Shared::bodies).copied()
    }

    /// Of no two bodies of one key this is true, unless the lock of one of them was taken away from outside.
    fn no_two(&self, are_amiss: impl Fn(&Body, &Body) -> bool) -> bool {
        let own = |body: &Body| {
            let tokens = [Some(body.token), body.or].into_iter().flatten();
            tokens.into_iter().all(|token| !self.ghost.is_robbed(body.key, token))
        };
        self.bodies().enumerate().all(|(at, one)| {
            let mut others = self.bodies().skip(at + 1).filter(|other| other.key == one.key);
            !others.any(|other| own(&one) && own(&other) && are_amiss(&one, &other))
        })
    }

    /// Only readers share an owner token, and no two have the lock alone.
    fn excludes(&self) -> bool {
        self.no_two(|one, other| {
            let alone = one.limit.is_alone() && other.limit.is_alone();
            alone || one.token == other.token && !one.limit.is_read()
        })
    }

    fn are_alone(&self) -> bool {
        self.no_two(|one, other| one.limit.is_alone() || other.limit.is_alone())
    }

    fn ends(&self) -> bool {
        self.server.keys.iter().all(|key| {
            let last = key.lock.holders.iter().map(|holder| holder.ttl).max();
            last.unwrap_or_default() == key.lock.end
        })
    }

    fn leases(&self) -> bool {
        self.bodies().all(|body| {
            let lock = &self.server.keys[usize::from(body.key)].lock;
            lock.live().any(|holder| [Some(body.token), body.or].contains(&Some(holder.token)))
                || body.or.is_some_and(|old| self.ghost.is_robbed(body.key, old))
                || self.ghost.is_robbed(body.key, body.token)
        })
    }

    fn places(&self, cfg: &Config) -> bool {
        noted_within(cfg.bounds.outside, &self.ghost.outside)
    }

    fn finds_out(&self, cfg: &Config) -> bool {
        let Some(bound) = cfg.bounds.robbed else { return true };
        let late = |noted: &&Noted| noted.ticks > bound;
        self.ghost.robbed.iter().filter(late).all(|noted| {
            self.bodies()
                .all(|body| (body.key, body.token) != (noted.key, noted.token) || body.or.is_some())
        })
    }

    /// A live, awake and (where that matters) connected process waits for this key.
    fn waits(&self, cfg: &Config, key: u8) -> bool {
        self.living()
            .filter(|process| process.subscribed || !cfg.silent)
            .flat_map(|process| &process.tasks)
            .filter(|task| cfg.hopeless != Some(task.ask))
            // One that waits for none of its locks gives back those that it has when another is taken.
            .filter(|task| task.parts.len() == 1 || cfg.asks[usize::from(task.ask)].patient)
            .any(|task| task.waits_for(key) && !task.dozes && !task.unsent)
    }

    /// Before time passes: how long has what must not last lasted?
    pub(crate) fn measure(&mut self, cfg: &Config) {
        self.measure_robbed(cfg.bounds.robbed);
        for key in 0..cfg.keys {
            let place = usize::from(key);
            let lock = &self.server.keys[place].lock;
            let used = self.living().any(|process| process.uses(key));
            // Of many that died each may have the lock reserved once.
            let excused = lock.live().any(|holder| {
                let dead = self.process_of(holder.token).is_none();
                holder.kept || (dead && (!holder.claimed || cfg.endless))
            });
            let idle = self.waits(cfg, key) && !used && !excused;
            count(&mut self.ghost.idle[place], idle, cfg.bounds.idle);
            let could = self.is_first_kept_out(cfg, key);
            count(&mut self.ghost.front[place], could, cfg.bounds.idle);
        }
        let runs = self.bodies().next().is_some();
        let waits = (0..cfg.keys).any(|key| self.waits(cfg, key));
        let dead = |holder: &Holder| holder.kept || self.process_of(holder.token).is_none();
        let dead = self.server.keys.iter().any(|key| key.lock.live().any(dead));
        count(&mut self.ghost.stall, waits && !runs && !dead, cfg.bounds.idle);
        self.measure_places(cfg);
        self.measure_stray(cfg);
    }

    fn measure_stray(&mut self, cfg: &Config) {
        let before = std::mem::take(&mut self.ghost.stray);
        let Some(bound) = cfg.bounds.stray else { return };
        let mut stray = Vec::new();
        for (key, state) in (0..).zip(&self.server.keys) {
            let unknown = state.lock.live().filter(|holder| {
                let process = self.process_of(holder.token);
                !holder.kept && process.is_some_and(|process| !process.knows(key, holder.token))
            });
            stray.extend(unknown.map(|holder| once_more(&before, key, holder.token, bound)));
        }
        self.ghost.stray = stray;
    }

    /// I4a: the first in the queue could have the lock, and is waited under.
    fn is_first_kept_out(&self, cfg: &Config, key: u8) -> bool {
        let state = &self.server.keys[usize::from(key)];
        let Some(first) = state.queue.first().map(|entry| entry.token) else { return false };
        let Some(process) = self.process_of(first) else { return false };
        let waits = |task: &Task| task.waits_for(key) && !task.dozes && !task.unsent;
        let lives = process.knows(key, first) && process.tasks.iter().any(waits);
        lives && (process.subscribed || !cfg.silent) && state.lock.has_room_for(first)
    }

    /// The living process that issued a token.
    fn process_of(&self, token: Token) -> Option<&Shared> {
        self.living().find(|process| process.identity == token.process)
    }

    fn measure_robbed(&mut self, bound: Option<u16>) {
        let Self { ghost, processes, .. } = self;
        ghost
            .outdated
            .retain(|(key, token)| processes.iter().any(|process| process.knows(*key, *token)));
        ghost.robbed.retain_mut(|noted| {
            noted.ticks = (noted.ticks + 1).min(bound.unwrap_or_default() + 1);
            processes.iter().any(|process| process.knows(noted.key, noted.token))
        });
    }

    fn measure_places(&mut self, cfg: &Config) {
        let before = std::mem::take(&mut self.ghost.outside);
        let Some(bound) = cfg.bounds.outside else { return };
        let mut outside = Vec::new();
        for process in self.living().filter(|process| process.subscribed || !cfg.silent) {
            for (key, token) in process.queued() {
                let state = &self.server.keys[usize::from(key)];
                let stands = state.queue.iter().any(|entry| entry.token == token)
                    || state.lock.of(token).is_some();
                if !stands {
                    outside.push(once_more(&before, key, token, bound));
                }
            }
        }
        self.ghost.outside = outside;
    }

    /// I6 and I7 are about the moment a body starts.
    pub(crate) fn on_started(&mut self, cfg: &Config, started: &Started) {
        let key = usize::from(started.key);
        let lock = &self.server.keys[key].lock;
        // A holder that was robbed and has not heard of it is behind those that came after, and should be.
        let holds = lock.of(started.token).is_some()
            && !self.ghost.outdated.contains(&(started.key, started.token));
        // Those that have the lock together have no order among them.
        let alone = started.token.limit.is_alone();
        let Ghost { highest, highest_alone, .. } = &mut self.ghost;
        let before = if alone { highest[key] } else { highest_alone[key] };
        if holds {
            highest[key] = started.fencing.max(highest[key]);
            highest_alone[key] = highest_alone[key].max(if alone { started.fencing } else { 0 });
        }
        if holds && started.fencing <= before {
            self.ghost.broken = Some(Invariant::Fencing);
        }
        if cfg.lag == 0 && !started.fits() {
            self.ghost.broken = Some(Invariant::Ttl);
        }
        (self.ghost.idle[key], self.ghost.stall) = (0, 0);
        if self.ghost.unordered {
            return;
        }
        for process in self.processes.iter_mut().filter(|process| process.alive) {
            let line = &process.lines[key];
            // What is let in together starts in any order.
            let is_let_in = |task: u32| {
                driver::tokens_of_waiter(line, task).any(|token| lock.of(token).is_some())
            };
            let overtaken = |task: &Task| {
                let waits = task.waits_for(started.key) && !task.unsent && !task.dozes;
                let own = cfg.asks[usize::from(task.ask)].limit;
                let reads_too = started.token.limit.is_read() && own.is_read();
                let waits = waits && !reads_too && !is_let_in(task.id);
                let overtaken = waits && task.stands + cfg.grace < started.epoch;
                let passes = started.epoch == self.ghost.expired[key];
                overtaken && !task.exempt && !passes
            };
            let overtaken: Vec<_> = (0..)
                .zip(&process.tasks)
                .filter(|(_, task)| overtaken(task))
                .map(|(at, _): (usize, _)| at)
                .collect();
            for at in overtaken {
                let task = &mut process.change().tasks[at];
                if task.licence == 0 {
                    self.ghost.broken = Some(Invariant::Order);
                }
                task.licence = task.licence.saturating_sub(1);
            }
        }
    }

    /// One newcomer per expiry (I7).
    pub(crate) fn on_expired(&mut self, cfg: &Config, key: u8) {
        self.ghost.unordered |= cfg.expiry_ends_order;
        if !cfg.order || !cfg.expiry_excuses {
            return;
        }
        self.ghost.expired[usize::from(key)] = self.ghost.epoch + 1;
        for process in &mut self.processes {
            if process.tasks.iter().any(|task| task.waits_for(key)) {
                let tasks = process.change().tasks.iter_mut();
                let waiting = tasks.filter(|task| task.waits_for(key));
                waiting.for_each(|task| task.licence = (task.licence + 1).min(2));
            }
        }
    }
}

fn count(ticks: &mut u16, lasts: bool, bound: Option<u16>) {
    *ticks = match bound {
        Some(bound) if lasts => (*ticks + 1).min(bound + 1),
        _ => 0,
    };
}

/// What is about one process alone.
impl Process {
    /// I3: what can still make a lock is known.
    pub(crate) fn accounts(&self, cfg: &Config) -> bool {
        let harmless = |sent: &&Sent| sent.expires == Some(0) && !cfg.is(Mutant::NoNotAfter);
        let sent = self.main.requests.iter().chain(&self.stale);
        sent.filter(|sent| !harmless(sent))
            .filter_map(|sent| sent.command.creates())
            // Not of a process that died in this place.
            .filter(|(_, token)| token.process == self.identity)
            .all(|(key, token)| self.accounts_for(key, token))
    }

    /// I3: nothing runs under what was released.
    pub(crate) fn is_terminal(&self) -> bool {
        let released = |key, token| {
            let lines = self.main.requests.iter().chain(&self.renewals.requests);
            lines.chain(&self.stale).any(|sent| {
                matches!(sent.command, Command::Release { key: of, token: own, .. }
                    if (of, own) == (key, token))
            })
        };
        self.bodies().all(|body| {
            let tokens = [Some(body.token), body.or].into_iter().flatten();
            tokens.into_iter().all(|token| !released(body.key, token))
        })
    }
}
