//! Configurations by name, each about one concern.

use std::num::NonZeroUsize;

use crate::check::{Outcome, run};
use crate::config::{Ask, Bounds, Config, Faults};
use crate::mutants::Mutant;

/// A scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    cfg: Config,
}

/// All of them.
pub fn scenarios() -> Vec<Scenario> {
    let strict = Bounds { idle: Some(0), outside: Some(5), stray: Some(0), robbed: None };
    let scenario = |name, cfg| Scenario { name, cfg };
    vec![
        scenario(
            "exclusion",
            Config {
                lag: true,
                arrivals: Some(1),
                margin: 1,
                faults: Faults { slow_ticks: 1, ..Faults::default() },
                ..Config::default()
            },
        ),
        scenario(
            "queue",
            Config {
                tasks: 2,
                prompt: true,
                order: true,
                bounds: strict,
                asks: vec![Ask { renew: true, ..Ask::default() }],
                ..Config::default()
            },
        ),
    ]
}

/// Runs a scenario, with one rule broken if a mutant is given, up to so many states.
pub fn check(scenario: &Scenario, mutant: Option<Mutant>, most: Option<NonZeroUsize>) -> Outcome {
    let cfg = Config { mutant, ..scenario.cfg.clone() };
    run(&cfg, most, 1)
}
