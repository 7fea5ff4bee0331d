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
    let strict = Bounds { idle: Some(0), outside: Some(0), stray: Some(0), robbed: None };
    let base = || Config {
        prompt: true,
        order: true,
        bounds: strict,
        asks: vec![ask(2)],
        look: 3,
        ..Config::default()
    };
    let lagging = || Config {
        prompt: false,
        order: false,
        lag: 1,
        bounds: Bounds::default(),
        asks: vec![fixed(3)],
        ..base()
    };
    let none = Faults::default();
    let list = [
        (
            "lag",
            Config {
                arrivals: Some(1),
                margin: 1,
                faults: Faults { slow_ticks: 1, ..none },
                ..lagging()
            },
        ),
        (
            "renewal",
            Config {
                arrivals: Some(1),
                margin: 1,
                asks: vec![ask(4)],
                faults: Faults { slow_ticks: 1, ..none },
                ..lagging()
            },
        ),
        (
            "renewal lost",
            Config {
                prompt_hints: true,
                arrivals: Some(1),
                asks: vec![ask(2)],
                faults: Faults { disconnects: 1, ..none },
                ..lagging()
            },
        ),
        ("queue", Config { tasks: 2, prompt_hints: true, ..base() }),
        ("overtaking", Config { prompt: false, ..base() }),
        ("three", Config { processes: 3, arrivals: Some(2), prompt_hints: true, ..base() }),
        (
            "cancel",
            Config { tasks: 2, arrivals: Some(2), faults: Faults { cancels: 2, ..none }, ..base() },
        ),
        ("grace", Config { tasks: 2, prompt_hints: true, grace: 1, ..base() }),
        (
            "expiry",
            Config {
                processes: 3,
                arrivals: Some(1),
                prompt_hints: true,
                faults: Faults { crashes: 2, ..none },
                bounds: Bounds { idle: Some(3), ..strict },
                ..base()
            },
        ),
        (
            "unreachable",
            Config {
                processes: 3,
                arrivals: Some(1),
                prompt_hints: true,
                faults: Faults { vanishings: 1, ..none },
                bounds: Bounds { idle: Some(2), ..strict },
                ..base()
            },
        ),
        (
            "lost hints",
            Config {
                arrivals: Some(2),
                faults: Faults { lost_hints: 1, ..none },
                bounds: Bounds { idle: Some(3), outside: Some(3), ..strict },
                ..base()
            },
        ),
        (
            "forged hints",
            Config { arrivals: Some(2), faults: Faults { forged_hints: 1, ..none }, ..base() },
        ),
        (
            "connection",
            Config {
                arrivals: Some(1),
                prompt: false,
                prompt_hints: true,
                faults: Faults { disconnects: 2, cancels: 1, ..none },
                bounds: Bounds { stray: Some(2), idle: Some(2), ..strict },
                ..base()
            },
        ),
        (
            "deaf",
            Config {
                arrivals: Some(2),
                faults: Faults { deafenings: 1, ..none },
                bounds: Bounds { idle: Some(2), outside: Some(1), ..strict },
                ..base()
            },
        ),
        (
            "mode n",
            Config {
                arrivals: Some(2),
                mode_n: true,
                faults: Faults { deafenings: 1, ..none },
                bounds: Bounds { idle: Some(2), outside: Some(1), ..strict },
                ..base()
            },
        ),
        (
            "late grants",
            Config {
                processes: 1,
                lag: 2,
                claim: 3,
                prompt_hints: true,
                arrivals: Some(1),
                asks: vec![fixed(2)],
                ..lagging()
            },
        ),
        (
            "slow link",
            Config {
                lag: 2,
                claim: 1,
                prompt_hints: true,
                arrivals: Some(1),
                asks: vec![fixed(4)],
                bounds: Bounds { idle: Some(4), ..Bounds::default() },
                ..lagging()
            },
        ),
        (
            "cluster",
            Config {
                processes: 3,
                arrivals: Some(1),
                prompt_hints: true,
                fast_path: false,
                expiry_excuses: false,
                faults: Faults { crashes: 1, ..none },
                bounds: Bounds { idle: Some(3), ..strict },
                ..base()
            },
        ),
        (
            "parked",
            Config {
                prompt_hints: true,
                arrivals: Some(1),
                fast_path: false,
                stale_life: None,
                not_after: Some(1),
                faults: Faults { disconnects: 1, cancels: 1, ..none },
                ..lagging()
            },
        ),
        (
            "doubled",
            Config {
                arrivals: Some(1),
                prompt_hints: true,
                doubles: true,
                claim: 4,
                faults: Faults { disconnects: 1, cancels: 1, ..none },
                bounds: Bounds { stray: Some(2), idle: Some(2), ..strict },
                ..base()
            },
        ),
        (
            "deaf unknowingly",
            Config {
                arrivals: Some(2),
                silent: true,
                faults: Faults { deafenings: 1, ..none },
                bounds: Bounds { idle: Some(2), ..strict },
                ..base()
            },
        ),
        (
            "fences",
            Config {
                tasks: 3,
                who_asks: vec![vec![0], vec![]],
                prompt_hints: true,
                split_fast_path: true,
                ..base()
            },
        ),
        (
            "fences of two",
            Config {
                tasks: 2,
                arrivals: Some(3),
                prompt_hints: true,
                split_fast_path: true,
                ..base()
            },
        ),
        (
            "ttls that grow",
            Config {
                tasks: 2,
                arrivals: Some(2),
                order: false,
                prompt_hints: true,
                asks: vec![ask(2), fixed(5)],
                who_asks: vec![vec![0, 1], vec![0]],
                ..base()
            },
        ),
        (
            "ttls that shrink",
            Config {
                tasks: 2,
                arrivals: Some(2),
                order: false,
                prompt_hints: true,
                asks: vec![fixed(5), fixed(2)],
                who_asks: vec![vec![0, 1], vec![1]],
                ..base()
            },
        ),
        (
            "lost lease",
            Config {
                tasks: 2,
                arrivals: Some(2),
                margin: 1,
                expiry_excuses: false,
                prompt_hints: true,
                asks: vec![fixed(3)],
                ..base()
            },
        ),
        (
            "data loss",
            Config {
                arrivals: Some(2),
                prompt_hints: true,
                server_time: true,
                split_fast_path: true,
                faults: Faults { data_losses: 1, ..none },
                bounds: Bounds { robbed: Some(1), idle: Some(3), outside: Some(3), ..strict },
                ..base()
            },
        ),
        (
            "force release",
            Config {
                arrivals: Some(2),
                asks: vec![ask(2), fixed(4)],
                faults: Faults { force_releases: 1, ..none },
                bounds: Bounds { robbed: Some(0), ..strict },
                ..base()
            },
        ),
        (
            "force release unheard",
            Config {
                arrivals: Some(2),
                tasks: 2,
                prompt_hints: true,
                taken_unheard: true,
                faults: Faults { force_releases: 1, ..none },
                bounds: Bounds { robbed: Some(1), idle: Some(3), outside: Some(3), ..strict },
                ..base()
            },
        ),
        (
            "lost queue",
            Config {
                arrivals: Some(2),
                prompt_hints: true,
                faults: Faults { queue_losses: 1, ..none },
                bounds: Bounds { idle: Some(3), outside: Some(3), ..strict },
                ..base()
            },
        ),
        (
            "min_hold",
            Config {
                tasks: 2,
                arrivals: Some(2),
                prompt_hints: true,
                asks: vec![Ask { min_hold: 2, ..ask(3) }, ask(3)],
                ..base()
            },
        ),
        (
            "unpolled",
            Config {
                tasks: 2,
                arrivals: Some(2),
                prompt_hints: true,
                faults: Faults { dozes: 1, ..none },
                bounds: Bounds { idle: Some(1), ..strict },
                ..base()
            },
        ),
        (
            "take-over",
            Config {
                tasks: 2,
                arrivals: Some(2),
                prompt: false,
                take_over: true,
                prompt_hints: true,
                asks: vec![ask(2), Ask { patient: false, ..ask(2) }],
                who_asks: vec![vec![0, 1], vec![0]],
                ..base()
            },
        ),
        (
            "two keys",
            Config {
                keys: 2,
                tasks: 2,
                arrivals: Some(2),
                order: false,
                prompt_hints: true,
                asks: vec![
                    Ask { keys: vec![0, 1], ..ask(2) },
                    ask(2),
                    Ask { keys: vec![1], ..ask(2) },
                ],
                who_asks: vec![vec![0, 1], vec![0, 2]],
                ..base()
            },
        ),
    ];
    list.into_iter().map(|(name, cfg)| Scenario { name, cfg }).collect()
}

/// A renewed lease.
fn ask(ttl: u8) -> Ask {
    Ask { ttl, renew: true, ..Ask::default() }
}

/// A lease that is not renewed.
fn fixed(ttl: u8) -> Ask {
    Ask { ttl, renew: false, ..Ask::default() }
}

/// Runs a scenario, with one rule broken if a mutant is given, up to so many states.
pub fn check(scenario: &Scenario, mutant: Option<Mutant>, most: Option<NonZeroUsize>) -> Outcome {
    let cfg = Config { mutant, ..scenario.cfg.clone() };
    run(&cfg, most, 1)
}
