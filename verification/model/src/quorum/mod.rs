//! A quorum of servers, checked: the product's own counting of votes (`store::quorum::tally`) over
//! modelled servers and a modelled network.
//!
//! A client here is simpler than a process of the product: one call at a time, one token for each. What
//! a line of callers does is the other model's concern.

mod client;
mod node;
mod scenarios;
mod search;
mod world;

use std::rc::Rc;
use std::time::{Duration, Instant};

pub use scenarios::{Scenario, scenarios};
pub use world::Invariant;

use crate::config::Config;
use search::Found;
use world::{Step, World};

/// ms of a tick.
const TICK: u32 = 1_000;

/// What the clients or the nodes do wrong, to show that it is seen. The product's own rules are broken by
/// patches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// A node accepts every fencing token.
    AcceptsAnyFence,
    /// A token that is offered keeps its vote, even if another came earlier.
    OffersKeep,
    /// It is decided that votes are offered, and other votes are asked for before that is noted and sent.
    OffersLater,
    /// A token with none in front does not hear that others came earlier.
    DeafToSeals,
    /// What a call has that did not get the lock is not released.
    NothingGivenBack,
}

/// How many of each fault may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Faults {
    /// Nodes that start again without their data.
    restarts: u8,
    /// Connections that are lost.
    disconnects: u8,
    lost_hints: u8,
    /// Processes that die.
    deaths: u8,
    cancels: u8,
    timeouts: u8,
    /// Nodes that are slower than a majority, and not waited for.
    graces: u8,
    /// Second callers that depend on a try.
    joins: u8,
}

/// One scenario's sizes and times, in ticks.
#[derive(Clone, Debug)]
struct Rules {
    nodes: usize,
    clients: u16,
    /// Of each client.
    calls: u8,
    ttl: u32,
    /// The restart guard; 0 where nothing restarts.
    guard: u32,
    /// For how many ticks a message may be under way.
    lag: u8,
    /// Answers arrive as commands run.
    prompt: bool,
    /// A call tries before it enters the queues.
    tries: bool,
    renews: bool,
    /// The last tick.
    ticks: u32,
    /// For how many ticks bytes of a dead connection may run.
    stale_life: u8,
    /// The clocks by which fencing tokens are proposed run, and the first client's is ahead by so many ticks.
    clocks: Option<u32>,
    /// Faults are not counted.
    endless: bool,
    faults: Faults,
    /// Bounds.
    idle: u8,
    stray: u8,
    broken: Option<Mutant>,
    /// What the scripts go by.
    cfg: Config,
}

impl Rules {
    fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl.into())
    }

    fn guard(&self) -> Duration {
        Duration::from_secs(self.guard.into())
    }

    /// The time in µs by the servers' clocks, as a client knows it; 0 where it does not.
    fn clock(&self, client: u16, tick: u32) -> u64 {
        let ahead = |ahead: u32| if client == 0 { ahead } else { 0 };
        self.clocks.map_or(0, |skew| 1_000 * u64::from(tick + ahead(skew)))
    }

    fn breaks(&self, mutant: Mutant) -> bool {
        self.broken == Some(mutant)
    }
}

/// What a run has found.
#[derive(Debug)]
pub struct Outcome {
    /// Different states that were reached, or histories that were followed.
    pub states: usize,
    /// Bodies that have started in random histories.
    pub bodies: u64,
    /// Steps that were taken.
    pub steps: usize,
    /// Every reachable state was visited.
    pub exhausted: bool,
    /// How long it took.
    pub took: Duration,
    /// What was violated first, and the way there.
    pub violation: Option<(Invariant, Vec<String>)>,
}

/// Runs a scenario up to so many different states.
pub fn check(scenario: &Scenario, most: usize) -> Outcome {
    let start = Instant::now();
    let first = World::new(&Rc::new(scenario.rules.clone()));
    let Found { states, steps, exhausted, broken } = search::explore(&first, most);
    let violation = broken.map(|(invariant, way)| (invariant, told(first, &way)));
    Outcome { states, bodies: 0, steps, exhausted, took: start.elapsed(), violation }
}

/// Steps of one random history.
const HISTORY: usize = 6_000;

/// Follows random histories with all faults from a seed on, with something broken if a mutant is given, until
/// there were so many steps or something is violated.
pub fn simulate(seed: u64, steps: usize, broken: Option<Mutant>) -> Outcome {
    let start = Instant::now();
    let (mut done, mut histories, mut bodies) = (0, 0, 0);
    while done < steps {
        let seed = seed + histories as u64;
        let first = World::new(&Rc::new(Rules { broken, ..scenarios::swarm(seed) }));
        let (way, last, found) = search::history(&first, seed, HISTORY);
        bodies += last.bodies_so_far();
        done += way.len();
        histories += 1;
        if let Some(invariant) = found {
            // Of a mutant it is enough to know that it is seen.
            let short = match broken {
                None => search::shrink(&first, way, invariant),
                Some(_) => way,
            };
            let violation = Some((invariant, told(first, &short)));
            return Outcome {
                states: histories,
                bodies,
                steps: done,
                exhausted: false,
                took: start.elapsed(),
                violation,
            };
        }
    }
    let (took, states) = (start.elapsed(), histories);
    Outcome { states, bodies, steps: done, exhausted: false, took, violation: None }
}

fn told(mut world: World, way: &[Step]) -> Vec<String> {
    use search::Space as _;
    let told = way.iter().map(|step| {
        world.apply(*step);
        format!("{step:?}\n{}", world.brief())
    });
    told.collect()
}
