//! Runs one scenario.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::config::Config;
use crate::invariants::Invariant;

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
    let violation = Invariant::ALL.iter().find_map(|(invariant, name)| {
        let path = found.get(name)?.clone();
        let steps: Vec<_> = path.into_vec();
        let mut trace = String::new();
        for (world, action) in &steps {
            trace.push_str(&format!("{world:?}\n"));
            if let Some(action) = action {
                trace.push_str(&format!("  -> {action:?}\n"));
            }
        }
        Some(Violation { invariant: *invariant, steps: steps.len() - 1, trace })
    });
    let exhausted = violation.is_none() && most.is_none_or(|most| states < most.get());
    Outcome { states, unique, depth, took: start.elapsed(), exhausted, violation }
}

pub use crate::scenarios::check;
