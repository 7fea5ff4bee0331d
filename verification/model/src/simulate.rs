//! Random histories of the same world: many processes, tasks and keys, every fault there is, for
//! long. The invariants hold after every step; a history that breaks one is made short.
//!
//! Each seed has a world of its own (sizes, times, and which faults happen), so that a fault that
//! would hide another is missing from many of them. Storms and calms follow each other: in a calm
//! nothing goes wrong, and every waiter must get the lock within its bound.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::actions::Action;
use crate::config::Config;
use crate::invariants::Invariant;
use crate::mutants::Mutant;
use crate::random::Random;
use crate::setting::Setting;
use crate::shrink::{replay, shrink};
use crate::swarm;
use crate::world::World;

/// Steps of one history; in so many of them a storm is over, and in so many it is calm again.
const HISTORY: u64 = 20_000;
const STORM: u64 = 400;
const CALM: u64 = 1_200;

/// What many histories have come to.
#[derive(Debug)]
pub struct Simulated {
    /// The histories that were followed.
    pub histories: u64,
    /// What happened in them.
    pub steps: u64,
    /// How many bodies were started.
    pub bodies: u64,
    /// How long it took.
    pub took: Duration,
    /// The first history that broke an invariant.
    pub failure: Option<Failure>,
}

/// A history that broke an invariant.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Gives the same history again.
    pub seed: u64,
    /// What it violates.
    pub invariant: Invariant,
    /// How many steps it took.
    pub after: usize,
    /// The steps that are left when none can be left out, each with what it led to.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, steps) = (self.invariant.name(), self.trace.len());
        writeln!(f, "seed {}: {name} after {} steps, in {steps}:", self.seed, self.after)?;
        self.trace.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Follows histories from `first` on until there were so many steps, on so many threads. Stops at the
/// first that breaks an invariant.
pub fn simulate(first: u64, steps: u64, threads: usize) -> Simulated {
    simulate_with(first, steps, threads, None)
}

/// The same over a server one of whose scripts is broken.
pub fn simulate_broken(first: u64, steps: u64, mutant: Mutant) -> Simulated {
    simulate_with(first, steps, 1, Some(mutant))
}

fn simulate_with(first: u64, steps: u64, threads: usize, mutant: Option<Mutant>) -> Simulated {
    let start = Instant::now();
    let (next, done, bodies) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let failure = Mutex::new(None);
    let fails = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < steps && fails().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let history = History::follow(seed, mutant);
                    done.fetch_add(history.steps, Ordering::Relaxed);
                    bodies.fetch_add(history.bodies, Ordering::Relaxed);
                    if let Some(invariant) = history.broken {
                        fails().get_or_insert((seed, invariant));
                    }
                }
            });
        }
    });
    let failure = fails().take();
    Simulated {
        histories: next.into_inner() - first,
        steps: done.into_inner(),
        bodies: bodies.into_inner(),
        took: start.elapsed(),
        failure: failure.map(|(seed, invariant)| made_short(seed, mutant, invariant)),
    }
}

fn made_short(seed: u64, mutant: Option<Mutant>, invariant: Invariant) -> Failure {
    let setting = setting(seed, mutant);
    let steps = History::recorded(seed, mutant);
    let after = steps.len();
    let short = match replay(&setting, &steps, invariant) {
        Some(_) => shrink(&setting, &steps, invariant),
        None => steps,
    };
    let mut world = World::new(&setting);
    let told = short.iter().map(|step| {
        world.apply(&setting, step);
        format!("{step:?}\n    {}", world.brief())
    });
    Failure { seed, invariant, after, trace: told.collect() }
}

fn setting(seed: u64, mutant: Option<Mutant>) -> Setting {
    Setting::new(Config { mutant, ..swarm::config(seed) })
}

/// One history as it goes on.
struct History {
    setting: Setting,
    world: World,
    random: Random,
    steps: u64,
    bodies: u64,
    broken: Option<Invariant>,
    record: Option<Vec<Action>>,
    possible: Vec<Action>,
}

impl History {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let setting = setting(seed, mutant);
        let world = World::new(&setting);
        // Another stream than the one that the sizes come from.
        let random = Random::new(seed ^ 0x5851_f42d_4c95_7f2d);
        let (steps, bodies, broken, record, possible) = (0, 0, None, None, Vec::new());
        Self { setting, world, random, steps, bodies, broken, record, possible }
    }

    fn follow(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut history = Self::new(seed, mutant);
        history.run(HISTORY);
        history
    }

    /// The same once more, with every step.
    fn recorded(seed: u64, mutant: Option<Mutant>) -> Vec<Action> {
        let mut history = Self::new(seed, mutant);
        history.record = Some(Vec::new());
        history.run(HISTORY);
        history.record.unwrap_or_default()
    }

    fn run(&mut self, steps: u64) {
        while self.steps < steps && self.broken.is_none() {
            let storm = self.steps % (STORM + CALM) < STORM;
            let Some(action) = self.choose(storm) else { return };
            self.world.apply(&self.setting, &action);
            self.steps += 1;
            self.bodies += self.world.take_started();
            self.broken = self.world.violated(&self.setting);
            if let Some(record) = &mut self.record {
                record.push(action);
            }
        }
    }

    fn choose(&mut self, storm: bool) -> Option<Action> {
        self.possible.clear();
        self.setting.possible(&self.world, &mut self.possible);
        let weight = |action: &Action| swarm::weight(action, storm);
        let all: u64 = self.possible.iter().map(weight).sum();
        if all == 0 {
            return None;
        }
        let mut at = self.random.below(all);
        self.possible.iter().copied().find(|action| {
            let own = weight(action);
            let found = at < own;
            at = at.saturating_sub(own);
            found
        })
    }
}
