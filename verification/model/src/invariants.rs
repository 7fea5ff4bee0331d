//! What must hold in every state, and the history ("ghosts") needed to say it.

use stateright::Property;

use crate::config::Config;
use crate::mutants::Mutant;
use crate::network::{Command, Sent};
use crate::process::{Batch, Holder, Stage, Started, Waiter};
use crate::token::Fencing;
use crate::world::World;

/// The invariants, with the names of the protocol's list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Invariant {
    /// I2: at most one body runs per key.
    Exclusion,
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
}

/// History that no process has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ghost {
    /// The highest fencing token a body of each key has had.
    pub(crate) highest: Vec<Fencing>,
    /// Ticks for which each key has lain idle under a live waiter.
    pub(crate) idle: Vec<u8>,
    /// Ticks for which nothing has run although somebody waits.
    pub(crate) stall: u8,
    pub(crate) stray: Vec<u8>,
    /// The tick, as far as arrivals need it.
    pub(crate) epoch: u16,
    /// The tick in which each key's lock expired last: who arrives then may pass.
    pub(crate) expired: Vec<u16>,
    /// Something has happened after which I7 promises less.
    pub(crate) unordered: bool,
    /// An invariant about a step was violated.
    pub(crate) broken: Option<Invariant>,
}

impl Ghost {
    pub(crate) fn new(cfg: &Config) -> Self {
        let keys = usize::from(cfg.keys);
        Self {
            highest: vec![Fencing::default(); keys],
            idle: vec![0; keys],
            stall: 0,
            stray: vec![0; keys],
            epoch: 1,
            expired: vec![0; keys],
            unordered: !cfg.order,
            broken: None,
        }
    }
}

impl Invariant {
    pub(crate) const ALL: [(Self, &'static str); 12] = [
        (Self::Exclusion, "I2 exclusion"),
        (Self::Lease, "I1 lease"),
        (Self::Accounted, "I3 accounted"),
        (Self::Terminal, "I3 terminal"),
        (Self::Stray, "I3 stray"),
        (Self::Idle, "I4 idle"),
        (Self::Place, "I5 place"),
        (Self::Fencing, "I6 fencing"),
        (Self::Order, "I7 order"),
        (Self::Ttl, "ttl"),
        (Self::Robbed, "robbed"),
        (Self::Kept, "kept"),
    ];

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(invariant, _)| *invariant == self)
            .map(|(_, name)| *name)
            .unwrap_or_default()
    }

    pub(crate) fn properties() -> Vec<Property<Config>> {
        vec![
            Property::always("I2 exclusion", |_, world: &World| world.excludes()),
            Property::always("I1 lease", |_, world: &World| world.leases()),
            Property::always("I3 accounted", |cfg: &Config, world: &World| world.accounts(cfg)),
            Property::always("I3 terminal", |_, world: &World| world.is_terminal()),
            Property::always("I3 stray", |cfg: &Config, world: &World| {
                within(cfg.bounds.stray, &world.ghost.stray)
            }),
            Property::always("I4 idle", |cfg: &Config, world: &World| {
                within(cfg.bounds.idle, &world.ghost.idle)
                    && within(cfg.bounds.idle, &[world.ghost.stall])
            }),
            Property::always("I5 place", |cfg: &Config, world: &World| world.places(cfg)),
            Property::always("I6 fencing", |_, world: &World| {
                world.ghost.broken != Some(Self::Fencing)
            }),
            Property::always("I7 order", |_, world: &World| {
                world.ghost.broken != Some(Self::Order)
            }),
            Property::always("ttl", |_, world: &World| world.ghost.broken != Some(Self::Ttl)),
            Property::always("robbed", |cfg: &Config, world: &World| world.finds_out(cfg)),
            Property::always("kept", |_, world: &World| world.ghost.broken != Some(Self::Kept)),
        ]
    }
}

fn within(bound: Option<u8>, ticks: &[u8]) -> bool {
    bound.is_none_or(|bound| ticks.iter().all(|ticks| *ticks <= bound))
}

impl World {
    fn living(&self) -> impl Iterator<Item = (u8, &Batch)> {
        self.processes.iter().filter(|process| process.alive).flat_map(|process| process.batches())
    }

    fn excludes(&self) -> bool {
        (0..self.server.keys.len()).all(|key| {
            let bodies = self.living().filter(|(at, batch)| {
                usize::from(*at) == key
                    && batch.is_running()
                    && batch.lease().is_some_and(|lease| lease.robbed.is_none())
            });
            bodies.count() <= 1
        })
    }

    fn leases(&self) -> bool {
        self.living().all(|(key, batch)| {
            let Some(lease) = batch.lease() else { return true };
            let lock = self.server.keys[usize::from(key)].lock;
            !batch.is_running()
                || lease.robbed.is_some()
                || lock.is_some_and(|lock| lock.token == batch.token)
        })
    }

    fn accounts(&self, cfg: &Config) -> bool {
        let harmless = |sent: &&Sent| sent.expires == Some(0) && !cfg.is(Mutant::NoNotAfter);
        self.processes.iter().filter(|process| process.alive).all(|process| {
            let sent = process.main.requests.iter().chain(&process.stale);
            sent.filter(|sent| !harmless(sent)).filter_map(|sent| sent.command.creates()).all(
                |(key, token)| {
                    process.batch(key, token).is_some()
                        || process
                            .chores
                            .iter()
                            .any(|chore| (chore.key, chore.token) == (key, token))
                },
            )
        })
    }

    fn is_terminal(&self) -> bool {
        self.processes.iter().filter(|process| process.alive).all(|process| {
            let released = |token| {
                let lines = process.main.requests.iter().chain(&process.renewals.requests);
                lines.chain(&process.stale).any(|sent| {
                    matches!(sent.command, Command::Release { .. })
                        && sent.command.token() == Some(token)
                })
            };
            process.batches().all(|(_, batch)| !batch.is_running() || !released(batch.token))
        })
    }

    fn places(&self, cfg: &Config) -> bool {
        let Some(bound) = cfg.bounds.outside else { return true };
        self.living().all(|(_, batch)| match batch.stage {
            Stage::Queued { outside, .. } => outside <= bound,
            _ => true,
        })
    }

    fn finds_out(&self, cfg: &Config) -> bool {
        let Some(bound) = cfg.bounds.robbed else { return true };
        self.living().all(|(_, batch)| {
            !batch.is_running()
                || batch.lease().and_then(|lease| lease.robbed).is_none_or(|ticks| ticks <= bound)
        })
    }

    /// Somebody alive, awake and (where that is told apart) connected waits for this key.
    fn waits(&self, cfg: &Config, key: u8) -> bool {
        let processes = self.processes.iter().filter(|process| process.alive);
        processes.filter(|process| process.subscribed || !cfg.silent).any(|process| {
            let batches = process.keys[usize::from(key)].batches.iter();
            // A caller that has not sent its fast path yet has not been polled.
            let sent = batches.filter(|batch| !(batch.unsent && batch.stage == Stage::Trying));
            sent.flat_map(|batch| &batch.waiters).any(|waiter| !waiter.dozes)
        })
    }

    /// Before time passes: how long has what must not last lasted?
    pub(crate) fn measure(&mut self, cfg: &Config) {
        self.measure_robbed();
        for key in 0..cfg.keys {
            let place = usize::from(key);
            let lock = self.server.keys[place].lock;
            let used = self.living().any(|(at, batch)| {
                at == key
                    && batch.lease().is_some_and(|lease| {
                        matches!(lease.holder, Holder::Running(..) | Holder::Part(_))
                    })
            });
            let owner = lock.map(|lock| self.processes[usize::from(lock.token.process)].alive);
            let excused =
                lock.is_some_and(|lock| lock.kept || (owner == Some(false) && !lock.claimed));
            let idle = self.waits(cfg, key) && !used && !excused;
            count(&mut self.ghost.idle[place], idle, cfg.bounds.idle);
            let unknown = lock.is_some_and(|lock| {
                let process = &self.processes[usize::from(lock.token.process)];
                process.alive && !lock.kept && process.batch(key, lock.token).is_none()
            });
            count(&mut self.ghost.stray[place], unknown, cfg.bounds.stray);
        }
        let runs = self.living().any(|(_, batch)| batch.is_running());
        let waits = (0..cfg.keys).any(|key| self.waits(cfg, key));
        let dead = self
            .server
            .keys
            .iter()
            .filter_map(|key| key.lock)
            .any(|lock| lock.kept || !self.processes[usize::from(lock.token.process)].alive);
        count(&mut self.ghost.stall, waits && !runs && !dead, cfg.bounds.idle);
        self.measure_places(cfg);
    }

    /// An `acquire` that was under way may have made the lock again.
    fn measure_robbed(&mut self) {
        for process in &mut self.processes {
            for (key, state) in self.server.keys.iter().zip(&mut process.keys) {
                for batch in &mut state.batches {
                    let again = key.lock.is_some_and(|lock| lock.token == batch.token);
                    if let Some(lease) = batch.lease_mut().filter(|_| again) {
                        lease.robbed = None;
                    }
                }
            }
        }
    }

    fn measure_places(&mut self, cfg: &Config) {
        let keys = &self.server.keys;
        for process in self.processes.iter_mut().filter(|process| process.alive) {
            let counts = process.subscribed || !cfg.silent;
            for (key, state) in keys.iter().zip(&mut process.keys) {
                for batch in &mut state.batches {
                    let token = batch.token;
                    let Stage::Queued { outside, .. } = &mut batch.stage else { continue };
                    let stands = key.queue.iter().any(|entry| entry.token == token)
                        || key.lock.is_some_and(|lock| lock.token == token);
                    count(outside, counts && !stands, cfg.bounds.outside);
                }
            }
        }
    }

    /// I6 and I7 are about the moment a body starts.
    pub(crate) fn on_started(&mut self, cfg: &Config, started: &Started) {
        let lock = self.server.keys[usize::from(started.key)].lock;
        let highest = &mut self.ghost.highest[usize::from(started.key)];
        // Who was robbed and has not heard of it is behind those who came after, and should be.
        let holds = lock.is_some_and(|lock| lock.token == started.token);
        if (holds && started.fencing <= *highest) || started.fencing.step >= cfg.steps {
            self.ghost.broken = Some(Invariant::Fencing);
        }
        let (least, most) = (started.asked, started.asked + 1);
        if cfg.lag == 0 && !(least..=most).contains(&started.left) {
            self.ghost.broken = Some(Invariant::Ttl);
        }
        *highest = started.fencing.max(*highest);
        (self.ghost.idle[usize::from(started.key)], self.ghost.stall) = (0, 0);
        if self.ghost.unordered {
            return;
        }
        let grace = u16::from(cfg.grace);
        let (key, broken) = (usize::from(started.key), &mut self.ghost.broken);
        for process in self.processes.iter_mut().filter(|process| process.alive) {
            let batches = process.keys[key].batches.iter_mut();
            let sent = batches.filter(|batch| !(batch.unsent && batch.stage == Stage::Trying));
            for waiter in sent.flat_map(|batch| &mut batch.waiters) {
                let overtaken = waiter.epoch + grace < started.epoch && !waiter.dozes;
                let passes = started.epoch == self.ghost.expired[key];
                if !overtaken || waiter.exempt || passes {
                    continue;
                }
                if waiter.licence == 0 {
                    *broken = Some(Invariant::Order);
                }
                waiter.licence = waiter.licence.saturating_sub(1);
            }
        }
    }

    /// One newcomer per expiry (I7).
    pub(crate) fn on_expired(&mut self, cfg: &Config, key: u8) {
        if !cfg.order || !cfg.expiry_excuses {
            return;
        }
        self.ghost.expired[usize::from(key)] = self.ghost.epoch + 1;
        for process in &mut self.processes {
            let batches = process.keys[usize::from(key)].batches.iter_mut();
            for waiter in batches.flat_map(|batch| &mut batch.waiters) {
                waiter.licence = (waiter.licence + 1).min(2);
            }
        }
    }
}

fn count(ticks: &mut u8, lasts: bool, bound: Option<u8>) {
    *ticks = match bound {
        Some(bound) if lasts => (*ticks + 1).min(bound + 1),
        _ => 0,
    };
}

/// Keeps of the ghosts what can still matter.
pub(crate) fn normalise(world: &mut World, cfg: &Config) {
    let unordered = world.ghost.unordered;
    let mut epochs = Vec::new();
    let mut each = |act: &mut dyn FnMut(&mut Waiter)| {
        for process in &mut world.processes {
            for batch in process.keys.iter_mut().flat_map(|state| &mut state.batches) {
                batch.waiters.iter_mut().for_each(&mut *act);
                if let Some(lease) = batch.lease_mut() {
                    match &mut lease.holder {
                        Holder::Nobody => {}
                        Holder::Offered(waiter, _) => act(waiter),
                        Holder::Running(waiter, _) | Holder::Part(waiter) => {
                            (waiter.epoch, waiter.licence) = (0, 0);
                        }
                    }
                }
            }
        }
    };
    if unordered {
        each(&mut |waiter| (waiter.epoch, waiter.licence) = (0, 0));
        world.ghost.epoch = 0;
        world.ghost.expired.fill(0);
        return;
    }
    each(&mut |waiter| epochs.push(waiter.epoch));
    epochs.sort_unstable();
    epochs.dedup();
    epochs.push(world.ghost.epoch.max(epochs.last().copied().unwrap_or_default()));
    let gap = u16::from(cfg.grace) + 1;
    let mut ranks = Vec::with_capacity(epochs.len());
    let (mut rank, mut before) = (1, epochs[0]);
    for epoch in &epochs {
        rank += (epoch - before).min(gap);
        before = *epoch;
        ranks.push(rank);
    }
    let of = |epoch: u16| ranks[epochs.partition_point(|other| *other < epoch)];
    each(&mut |waiter| waiter.epoch = of(waiter.epoch));
    // Nobody who arrived before the first of them can start any more.
    for expired in &mut world.ghost.expired {
        *expired = if *expired < epochs[0] { 0 } else { of(*expired) };
    }
    world.ghost.epoch = of(world.ghost.epoch);
}
