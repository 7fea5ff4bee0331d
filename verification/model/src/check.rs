//! Runs one scenario: every state that can be reached, breadth first.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::actions::Action;
use crate::config::Config;
use crate::invariants::Invariant;
use crate::world::World;

/// What a run has found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// States that were reached, each as often as it was.
    pub states: usize,
    /// Different ones.
    pub unique: usize,
    /// The longest way there.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Every reachable state was visited.
    pub exhausted: bool,
    /// The invariant that was violated, in how many steps, and how.
    pub violation: Option<Violation>,
}

/// A way to a state that must not be.
#[derive(Debug, Clone)]
pub struct Violation {
    /// What it violates.
    pub invariant: Invariant,
    /// Steps from the start.
    pub steps: usize,
    /// The way, one step a line.
    pub trace: String,
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

pub(crate) fn run(cfg: &Config, most: Option<NonZeroUsize>, threads: usize) -> Outcome {
    let start = Instant::now();
    let builder = cfg.clone().checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let builder = match most {
        Some(most) => builder.target_state_count(most.get()),
        None => builder,
    };
    let checker = builder.spawn_bfs().join();
    let (states, unique, depth) =
        (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    let found = checker.discoveries();
    let violation = Invariant::names().find_map(|(invariant, name)| {
        let steps: Vec<_> = found.get(name)?.clone().into_vec();
        let trace = trace(&steps);
        Some(Violation { invariant, steps: steps.len() - 1, trace })
    });
    let exhausted = violation.is_none() && most.is_none_or(|most| states < most.get());
    Outcome { states, unique, depth, took: start.elapsed(), exhausted, violation }
}

fn trace(steps: &[(World, Option<Action>)]) -> String {
    let mut trace = String::new();
    for (world, action) in steps {
        trace.push_str(&format!("{}\n", world.brief()));
        if let Some(action) = action {
            trace.push_str(&format!("  -> {action:?}\n"));
        }
    }
    trace
}

/// The most memory this program has used so far, in MiB; 0 where that is not told.
pub fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

pub use crate::scenarios::check;
