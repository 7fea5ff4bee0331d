//! Runs one scenario.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::actions::Action;
use crate::config::Config;
use crate::explore::{Explored, explore};
use crate::invariants::Invariant;
use crate::setting::Setting;
use crate::world::World;

/// What a run has found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Steps that were taken, from each state all that are possible in it.
    pub steps: usize,
    /// Different states that were reached.
    pub states: usize,
    /// Steps to the last of them, by the shortest way.
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

pub(crate) fn run(cfg: Config, most: Option<NonZeroUsize>) -> Outcome {
    let start = Instant::now();
    let setting = Setting::with_memory(cfg);
    let Explored { steps, states, depth, exhausted, violation } = explore(&setting, most);
    let violation = violation.map(|(invariant, steps)| {
        let trace = trace(&setting, &steps);
        Violation { invariant, steps: steps.len(), trace }
    });
    Outcome { steps, states, depth, took: start.elapsed(), exhausted, violation }
}

fn trace(setting: &Setting, steps: &[Action]) -> String {
    let mut world = World::new(setting);
    world.normalise(setting);
    let mut trace = format!("{}\n", world.brief());
    for action in steps {
        world.apply(setting, action);
        world.normalise(setting);
        trace.push_str(&format!("  -> {action:?}\n{}\n", world.brief()));
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
