//! Configurations by name, each about one concern.

use std::num::NonZeroUsize;

use distlock_core::line::Limit;

use crate::check::{Outcome, run};
use crate::config::{Ask, Bounds, Config, Faults};
use crate::mutants::Mutant;

const NONE: Faults = Faults {
    crashes: 0,
    vanishings: 0,
    lost_hints: 0,
    forged_hints: 0,
    disconnects: 0,
    deafenings: 0,
    force_releases: 0,
    data_losses: 0,
    saves: 0,
    restores: 0,
    queue_losses: 0,
    dozes: 0,
    slow_ticks: 0,
    cancels: 0,
    timeouts: 0,
    questions: 0,
};

/// Nothing but messages may delay anybody.
const STRICT: Bounds = Bounds { idle: Some(0), outside: Some(0), stray: Some(0), robbed: None };

/// What an older state has in the names of processes that are done with it lasts until a waiter looks, and no
/// whole lease of nine ticks.
const OLDER: Bounds = Bounds { idle: Some(6), outside: Some(6), stray: None, robbed: Some(4) };

/// A scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    cfg: Config,
}

/// All of them.
pub fn scenarios() -> Vec<Scenario> {
    [clocks(), queue(), deaths(), messages(), holders(), outsiders(), together()].concat()
}

impl Scenario {
    #[cfg(test)]
    pub(crate) fn config(&self) -> &Config {
        &self.cfg
    }

    /// The same with more calls, or more tasks where calls are without end.
    #[must_use]
    pub fn larger(&self) -> Self {
        let mut cfg = self.cfg.clone();
        cfg.arrivals_of.iter_mut().for_each(|arrivals| *arrivals += 1);
        match &mut cfg.arrivals {
            Some(arrivals) => *arrivals += 1,
            None => cfg.tasks += 1,
        }
        // A call that comes when a reservation has lapsed may have the lock first, and its answer takes time.
        cfg.bounds.idle = cfg.bounds.idle.map(|idle| idle + 2 * u16::from(cfg.lag));
        // One after the other, processes that die may delay different waiters of the same key.
        if cfg.faults.crashes > 1 {
            cfg.bounds.idle = cfg.bounds.idle.map(|idle| idle + 1);
        }
        Self { cfg, ..*self }
    }
}

/// Runs a scenario, with one rule broken if a mutant is given, up to so many different states.
pub fn check(scenario: &Scenario, mutant: Option<Mutant>, most: Option<NonZeroUsize>) -> Outcome {
    let cfg = Config { mutant, ..scenario.cfg.clone() };
    run(cfg, most)
}

/// Every message takes less than a tick.
fn base() -> Config {
    Config { prompt: true, order: true, bounds: STRICT, asks: vec![ask(2000)], ..Config::default() }
}

/// Messages take up to a tick and more.
fn lagging() -> Config {
    Config {
        prompt: false,
        order: false,
        lag: 1,
        bounds: Bounds::default(),
        asks: vec![fixed(3000)],
        ..base()
    }
}

/// A renewed lease.
fn ask(ttl: u32) -> Ask {
    Ask { ttl, renew: true, ..Ask::default() }
}

/// A lease that is not renewed.
fn fixed(ttl: u32) -> Ask {
    Ask { ttl, renew: false, ..Ask::default() }
}

/// Time, clocks and late answers: I1.
fn clocks() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "lag",
            about: "grants that are late by a tick, clocks that drift, expiry",
            cfg: Config {
                arrivals: Some(1),
                faults: Faults { slow_ticks: 1, ..NONE },
                ..lagging()
            },
        },
        Scenario {
            name: "late grants",
            about: "grants that arrive after their deadline",
            cfg: Config {
                processes: 1,
                lag: 2,
                prompt_hints: true,
                arrivals: Some(1),
                asks: vec![fixed(2000)],
                ..lagging()
            },
        },
        Scenario {
            name: "renewal",
            about: "renewals that are late, clocks that drift",
            cfg: Config {
                arrivals: Some(1),
                asks: vec![ask(3000)],
                faults: Faults { slow_ticks: 0, ..NONE },
                ..lagging()
            },
        },
        Scenario {
            name: "renewal lost",
            about: "renewals and commands lost with their connection, and late",
            cfg: Config {
                prompt_hints: true,
                arrivals: Some(1),
                asks: vec![ask(2000)],
                faults: Faults { disconnects: 1, ..NONE },
                ..lagging()
            },
        },
        Scenario {
            name: "slow link",
            about: "round trips longer than a claim (R12)",
            cfg: Config {
                lag: 2,
                prompt_hints: true,
                arrivals: Some(1),
                asks: vec![fixed(4000)],
                bounds: Bounds { idle: Some(6), ..Bounds::default() },
                ..lagging()
            },
        },
        Scenario {
            name: "too far away",
            about: "a process whose answers take longer than its ttl, beside another one (R3)",
            cfg: Config {
                lag: 2,
                prompt_hints: true,
                arrivals: Some(1),
                asks: vec![fixed(2000), fixed(5000)],
                who_asks: vec![vec![0], vec![1]],
                hopeless: Some(0),
                bounds: Bounds { idle: Some(12), ..Bounds::default() },
                ..lagging()
            },
        },
        Scenario {
            name: "parked",
            about: "no fast path; commands that a client sends again much later, with `not_after`",
            cfg: Config {
                prompt_hints: true,
                arrivals: Some(1),
                fast_path: false,
                stale_life: None,
                not_after: Some(1000),
                faults: Faults { disconnects: 1, cancels: 0, ..NONE },
                ..lagging()
            },
        },
    ]
}

/// Waiting and handing on, without deaths: I4, I6, I7.
fn queue() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "queue",
            about: "two tasks in each of two processes, without end",
            cfg: Config { tasks: 2, arrivals: Some(3), prompt_hints: true, ..base() },
        },
        Scenario {
            name: "overtaking",
            about: "answers and messages in any order",
            cfg: Config { arrivals: Some(2), prompt: false, ..base() },
        },
        Scenario {
            name: "three",
            about: "three processes",
            cfg: Config { processes: 3, arrivals: Some(1), prompt_hints: true, ..base() },
        },
        Scenario {
            name: "cancel",
            about: "waiters that go at any time",
            cfg: Config {
                tasks: 2,
                arrivals: Some(1),
                faults: Faults { cancels: 1, ..NONE },
                ..base()
            },
        },
        Scenario {
            name: "grace",
            about: "sealed batches that admit arrivals for a tick (R4b), without end",
            cfg: Config { tasks: 2, arrivals: Some(2), prompt_hints: true, ..base() },
        },
        Scenario {
            name: "take-over",
            about: "a fast path that is sent after another caller's `acquire`; `wait = none`",
            cfg: Config {
                tasks: 2,
                arrivals: Some(1),
                prompt: false,
                prompt_hints: true,
                take_over: true,
                late_tries: true,
                order: false,
                bounds: Bounds { idle: Some(2), ..STRICT },
                asks: vec![ask(2000), Ask { patient: false, ..ask(2000) }],
                who_asks: vec![vec![0, 1], vec![0]],
                ..base()
            },
        },
        Scenario {
            name: "fences",
            about: "three tasks of one process, F drawn by renewals and anew",
            cfg: Config {
                tasks: 3,
                arrivals: Some(6),
                prompt_hints: true,
                split_fast_path: true,
                few_tokens: true,
                who_asks: vec![vec![0], vec![]],
                ..base()
            },
        },
        Scenario {
            name: "fences of two",
            about: "the same in two processes; `SET` and `INCR` apart",
            cfg: Config {
                tasks: 2,
                arrivals: Some(2),
                prompt_hints: true,
                split_fast_path: true,
                few_tokens: true,
                ..base()
            },
        },
    ]
}

/// Processes that die: I4's bounds.
fn deaths() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "expiry",
            about: "three processes, two of which die anywhere",
            cfg: Config {
                processes: 3,
                arrivals: Some(1),
                prompt_hints: true,
                faults: Faults { crashes: 2, ..NONE },
                bounds: Bounds { idle: Some(3), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "unreachable",
            about: "three processes, one of which is cut off while the server believes it listens",
            cfg: Config {
                processes: 3,
                arrivals: Some(1),
                prompt_hints: true,
                faults: Faults { vanishings: 1, ..NONE },
                bounds: Bounds { idle: Some(2), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "cluster",
            about: "no fast path, so an expiry excuses no overtaking",
            cfg: Config {
                processes: 3,
                arrivals: Some(1),
                prompt_hints: true,
                fast_path: false,
                expiry_excuses: false,
                faults: Faults { crashes: 1, ..NONE },
                bounds: Bounds { idle: Some(3), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "connection",
            about: "connections that die twice, whose bytes run later, and cancelled waiters",
            cfg: Config {
                arrivals: Some(1),
                prompt: false,
                prompt_hints: true,
                faults: Faults { disconnects: 2, cancels: 1, ..NONE },
                bounds: Bounds { stray: Some(3), idle: Some(3), outside: Some(2), robbed: None },
                ..base()
            },
        },
        Scenario {
            name: "doubled",
            about: "bytes of a dead connection that run any number of times",
            cfg: Config {
                arrivals: Some(1),
                prompt_hints: true,
                doubles: true,
                faults: Faults { disconnects: 1, cancels: 1, ..NONE },
                bounds: Bounds { stray: Some(2), idle: Some(2), ..STRICT },
                ..base()
            },
        },
    ]
}

/// Messages lost, forged and unheard: I4, I5, I7.
fn messages() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "lost hints",
            about: "a message that is lost",
            cfg: Config {
                arrivals: Some(2),
                faults: Faults { lost_hints: 1, ..NONE },
                bounds: Bounds { idle: Some(3), outside: Some(3), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "forged hints",
            about: "a message that was never sent (or came twice)",
            cfg: Config { arrivals: Some(2), faults: Faults { forged_hints: 1, ..NONE }, ..base() },
        },
        Scenario {
            name: "deaf",
            about: "a subscriber that is down: looks every tick",
            cfg: Config {
                arrivals: Some(1),
                faults: Faults { deafenings: 1, ..NONE },
                bounds: Bounds { idle: Some(2), outside: Some(1), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "mode n",
            about: "a subscriber that is down: mode `n` (R13)",
            cfg: Config {
                arrivals: Some(2),
                prompt_hints: true,
                faults: Faults { deafenings: 1, ..NONE },
                bounds: Bounds { idle: Some(2), outside: Some(1), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "deaf unknowingly",
            about: "a subscriber that is down and does not know",
            cfg: Config {
                arrivals: Some(2),
                silent: true,
                faults: Faults { deafenings: 1, ..NONE },
                bounds: Bounds { idle: Some(2), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "late hints",
            about: "a message that comes when its token is given back and kept (`min_hold`)",
            cfg: Config {
                arrivals: Some(1),
                who_asks: vec![vec![0], vec![1]],
                asks: vec![Ask { min_hold: 2000, ..ask(3000) }, ask(3000)],
                bounds: Bounds { idle: Some(1), ..STRICT },
                faults: Faults { forged_hints: 1, ..NONE },
                ..base()
            },
        },
        Scenario {
            name: "flapping",
            about: "a subscriber that comes and goes beside grants and cancelled waiters",
            cfg: Config {
                arrivals: Some(1),
                prompt_hints: true,
                order: false,
                faults: Faults { deafenings: 2, cancels: 1, ..NONE },
                bounds: Bounds { idle: Some(2), outside: Some(1), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "flapping line",
            about: "the same beside connections that are lost",
            cfg: Config {
                arrivals: Some(1),
                prompt_hints: true,
                order: false,
                faults: Faults { deafenings: 1, disconnects: 1, ..NONE },
                bounds: Bounds { stray: Some(2), idle: Some(3), outside: Some(2), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "questions",
            about: "processes that ask who holds the lock; questions never asked, twice, late, in no form (R15)",
            cfg: Config {
                arrivals: Some(1),
                prompt_hints: true,
                asks: vec![read(2000), ask(2000)],
                who_asks: vec![vec![0], vec![1]],
                tasks: 2,
                tasks_of: vec![2, 1],
                faults: Faults { questions: 1, ..NONE },
                ..base()
            },
        },
        Scenario {
            name: "questions to readers",
            about: "the same to a process of which several calls read together",
            cfg: Config {
                tasks: 2,
                arrivals_of: vec![2, 0],
                prompt_hints: true,
                asks: vec![read(2000)],
                who_asks: vec![vec![0], vec![]],
                faults: Faults { questions: 1, ..NONE },
                ..base()
            },
        },
        Scenario {
            name: "lost queue",
            about: "the queue key is lost (I5)",
            cfg: Config {
                arrivals: Some(2),
                prompt_hints: true,
                faults: Faults { queue_losses: 1, ..NONE },
                bounds: Bounds { idle: Some(3), outside: Some(3), ..STRICT },
                ..base()
            },
        },
    ]
}

/// What the tasks of a batch may ask for: R5, R6, several keys.
fn holders() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "ttls that grow",
            about: "a next holder with a longer ttl",
            cfg: Config {
                tasks: 2,
                arrivals: Some(1),
                order: false,
                prompt_hints: true,
                asks: vec![ask(2000), fixed(5000)],
                who_asks: vec![vec![0, 1], vec![0]],
                ..base()
            },
        },
        Scenario {
            name: "ttls that shrink",
            about: "a next holder with a shorter ttl",
            cfg: Config {
                tasks: 2,
                arrivals: Some(2),
                order: false,
                prompt_hints: true,
                asks: vec![fixed(5000), fixed(2000)],
                who_asks: vec![vec![0, 1], vec![1]],
                ..base()
            },
        },
        Scenario {
            name: "lost lease",
            about: "a batch that loses its lease keeps its place",
            cfg: Config {
                tasks: 2,
                arrivals: Some(2),
                prompt_hints: true,
                prompt_engine: false,
                few_tokens: true,
                asks: vec![ask(2000)],
                only_renewals_die: true,
                tasks_of: vec![2, 1],
                expiry_ends_order: true,
                faults: Faults { disconnects: 1, ..NONE },
                bounds: Bounds { idle: Some(1), outside: Some(1), stray: Some(2), robbed: None },
                ..base()
            },
        },
        Scenario {
            name: "min_hold",
            about: "locks kept after their holder ended",
            cfg: Config {
                tasks: 2,
                order: false,
                arrivals: Some(1),
                prompt_hints: true,
                bounds: Bounds { idle: Some(1), ..STRICT },
                asks: vec![Ask { min_hold: 2000, ..ask(3000) }, ask(3000)],
                ..base()
            },
        },
        Scenario {
            name: "stored for longer",
            about: "locks stored for a `min_hold` beyond their ttl, and waiters that go",
            cfg: Config {
                tasks: 2,
                order: false,
                arrivals: Some(2),
                prompt_hints: true,
                bounds: Bounds { idle: Some(1), ..STRICT },
                faults: Faults { cancels: 1, ..NONE },
                asks: vec![Ask { min_hold: 3000, ..ask(1000) }, fixed(3000)],
                who_asks: vec![vec![0, 1], vec![]],
                ..base()
            },
        },
        Scenario {
            name: "unpolled",
            about: "a future that is no longer polled",
            cfg: Config {
                tasks: 2,
                wakes: true,
                order: false,
                arrivals: Some(1),
                prompt_hints: true,
                asks: vec![ask(2000), Ask { patient: false, ..ask(2000) }],
                who_asks: vec![vec![0, 1], vec![0]],
                faults: Faults { dozes: 1, ..NONE },
                bounds: Bounds { idle: Some(3), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "two keys",
            about: "holders of two keys among holders of one",
            cfg: Config {
                keys: 2,
                tasks: 2,
                arrivals: Some(1),
                order: false,
                prompt_hints: true,
                asks: vec![
                    Ask { keys: vec![0, 1], ..fixed(2000) },
                    ask(2000),
                    Ask { keys: vec![1], ..ask(2000) },
                ],
                who_asks: vec![vec![0, 1], vec![0, 2]],
                ..base()
            },
        },
    ]
}

fn read(ttl: u32) -> Ask {
    Ask { limit: Limit::READ, ..ask(ttl) }
}

fn permits(permits: u32, ask: Ask) -> Ask {
    Ask { limit: Limit::permits(permits).unwrap_or(Limit::ALONE), ..ask }
}

/// Locks that several hold: I2a, I2b, I4a, J, K.
fn together() -> Vec<Scenario> {
    let several = || Config { prompt_hints: true, arrivals: Some(1), ..base() };
    vec![
        Scenario {
            name: "readers and a writer",
            about: "two readers in one process, a reader and writer in another one",
            cfg: Config {
                tasks: 2,
                tasks_of: vec![2, 1],
                arrivals: Some(2),
                asks: vec![read(2000), ask(2000)],
                who_asks: vec![vec![0], vec![0, 1]],
                ..several()
            },
        },
        Scenario {
            name: "runs of readers",
            about: "writers and readers in three processes",
            cfg: Config {
                processes: 3,
                asks: vec![ask(2000), read(2000)],
                who_asks: vec![vec![0, 1], vec![1], vec![0, 1]],
                ..several()
            },
        },
        Scenario {
            name: "readers overtaking",
            about: "answers and messages to readers and writers in any order",
            cfg: Config {
                prompt: false,
                prompt_hints: false,
                asks: vec![read(2000), ask(2000)],
                tasks: 2,
                arrivals: Some(1),
                ..several()
            },
        },
        Scenario {
            name: "permits",
            about: "two permits and three processes, without renewal",
            cfg: Config {
                processes: 3,
                asks: vec![permits(2, fixed(2000))],
                bounds: Bounds { idle: Some(1), ..STRICT },
                ..several()
            },
        },
        Scenario {
            name: "local permits",
            about: "two permits and three tasks of one process, without end",
            cfg: Config {
                tasks: 3,
                tasks_of: vec![3, 1],
                who_asks: vec![vec![0], vec![]],
                arrivals: Some(4),
                asks: vec![permits(2, ask(2000))],
                ..several()
            },
        },
        Scenario {
            name: "different limits",
            about: "two permits, three permits and readers of one lock",
            cfg: Config {
                processes: 3,
                asks: vec![permits(2, ask(2000)), permits(3, ask(2000)), read(2000)],
                who_asks: vec![vec![0], vec![1, 2], vec![0, 2]],
                ..several()
            },
        },
        Scenario {
            name: "cancelled in front",
            about: "a writer in front of readers that goes",
            cfg: Config {
                processes: 3,
                asks: vec![ask(2000), read(2000)],
                who_asks: vec![vec![1], vec![0], vec![1]],
                faults: Faults { cancels: 1, ..NONE },
                ..several()
            },
        },
        Scenario {
            name: "dead in front",
            about: "readers, permits and writers of which one dies",
            cfg: Config {
                processes: 3,
                asks: vec![ask(2000), read(2000), permits(2, ask(2000))],
                who_asks: vec![vec![1], vec![0], vec![2]],
                faults: Faults { crashes: 1, ..NONE },
                bounds: Bounds { idle: Some(3), ..STRICT },
                ..several()
            },
        },
        Scenario {
            name: "deaf in front",
            about: "a reader and a writer, of which one is deaf and knows it",
            cfg: Config {
                arrivals: Some(2),
                // A process that was deaf keeps its place, but counts as having come when heard of again.
                order: false,
                asks: vec![ask(2000), read(2000)],
                who_asks: vec![vec![1], vec![0]],
                faults: Faults { deafenings: 1, ..NONE },
                bounds: Bounds { idle: Some(2), outside: Some(1), ..STRICT },
                ..several()
            },
        },
        Scenario {
            name: "lost seals",
            about: "readers, a writer and a message that is lost",
            cfg: Config {
                tasks: 2,
                prompt_hints: false,
                asks: vec![read(2000), ask(2000)],
                tasks_of: vec![2, 1],
                who_asks: vec![vec![0], vec![1]],
                arrivals: Some(2),
                faults: Faults { lost_hints: 1, ..NONE },
                bounds: Bounds { idle: Some(3), outside: Some(3), ..STRICT },
                ..several()
            },
        },
        Scenario {
            name: "told of a writer",
            about: "readers of two processes and a writer, with leases that are seldom renewed",
            cfg: Config {
                processes: 3,
                tasks_of: vec![2, 1, 1],
                tasks: 2,
                asks: vec![read(4000), ask(4000)],
                who_asks: vec![vec![0], vec![0], vec![1]],
                arrivals_of: vec![2, 1, 1],
                ..several()
            },
        },
        Scenario {
            name: "told of another writer",
            about: "readers of two processes between two writers, with leases that are not renewed",
            cfg: Config {
                processes: 3,
                tasks_of: vec![2, 1, 2],
                tasks: 2,
                asks: vec![Ask { limit: Limit::READ, ..fixed(2000) }, fixed(2000)],
                who_asks: vec![vec![0], vec![0], vec![1]],
                arrivals_of: vec![2, 1, 2],
                expiry_ends_order: true,
                bounds: Bounds { idle: Some(1), ..STRICT },
                ..several()
            },
        },
        Scenario {
            name: "downgrade",
            about: "writers that go on as readers beside readers and a writer",
            cfg: Config {
                downgrades: true,
                // Waiters behind a downgrade go to the queue only then: others may come first.
                order: false,
                tasks: 2,
                tasks_of: vec![2, 1],
                asks: vec![ask(2000), read(2000)],
                who_asks: vec![vec![0], vec![0, 1]],
                arrivals: Some(2),
                ..several()
            },
        },
        Scenario {
            name: "downgrade lost",
            about: "the same with connections that die, whose bytes run late and twice",
            cfg: Config {
                downgrades: true,
                doubles: true,
                prompt: false,
                asks: vec![ask(2000), read(2000)],
                who_asks: vec![vec![0], vec![0, 1]],
                order: false,
                faults: Faults { disconnects: 1, ..NONE },
                bounds: Bounds { stray: Some(2), idle: Some(2), ..STRICT },
                ..several()
            },
        },
        Scenario {
            name: "late share",
            about: "connections of readers and of permits that die, whose bytes run late and twice",
            cfg: Config {
                doubles: true,
                asks: vec![read(2000), permits(2, ask(2000)), ask(2000)],
                who_asks: vec![vec![0, 1], vec![1, 2]],
                faults: Faults { disconnects: 1, cancels: 1, ..NONE },
                bounds: Bounds { stray: Some(2), idle: Some(2), ..STRICT },
                ..several()
            },
        },
        Scenario {
            name: "readers' leases",
            about: "readers with leases that are renewed and not, kept and not, beside a writer",
            cfg: Config {
                tasks: 2,
                tasks_of: vec![2, 1],
                order: false,
                asks: vec![
                    Ask { limit: Limit::READ, ..fixed(2000) },
                    Ask { min_hold: 2000, ..read(3000) },
                    ask(3000),
                ],
                who_asks: vec![vec![0, 1], vec![2]],
                arrivals: Some(2),
                bounds: Bounds { idle: Some(1), ..STRICT },
                ..several()
            },
        },
    ]
}

/// What comes from outside the protocol: operators, lost data.
fn outsiders() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "data loss",
            about: "the server loses everything, or falls back to a replica",
            cfg: Config {
                arrivals: Some(1),
                prompt_hints: true,
                server_time: true,
                split_fast_path: true,
                faults: Faults { data_losses: 1, ..NONE },
                bounds: Bounds { robbed: Some(1), idle: Some(3), outside: Some(3), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "older data",
            about: "the server comes back with a state that it has saved",
            cfg: Config {
                arrivals: Some(1),
                prompt_hints: true,
                server_time: true,
                order: false,
                asks: vec![ask(9000)],
                faults: Faults { saves: 1, restores: 1, ..NONE },
                bounds: OLDER,
                ..base()
            },
        },
        Scenario {
            name: "older data, shared",
            about: "the same of a reader and a writer, with leases that are not renewed",
            cfg: Config {
                arrivals: Some(1),
                prompt_hints: true,
                server_time: true,
                order: false,
                asks: vec![Ask { limit: Limit::READ, ..fixed(9000) }, fixed(9000)],
                faults: Faults { saves: 1, restores: 1, ..NONE },
                bounds: Bounds { robbed: None, ..OLDER },
                ..base()
            },
        },
        Scenario {
            name: "force release",
            about: "an operator frees the lock, and the holder hears of it",
            cfg: Config {
                arrivals: Some(1),
                asks: vec![ask(2000), fixed(4000)],
                faults: Faults { force_releases: 1, ..NONE },
                bounds: Bounds { robbed: Some(0), ..STRICT },
                ..base()
            },
        },
        Scenario {
            name: "force release unheard",
            about: "an operator frees the lock, and the holder does not hear of it",
            cfg: Config {
                tasks: 1,
                arrivals: Some(2),
                prompt_hints: true,
                taken_unheard: true,
                asks: vec![ask(3000)],
                faults: Faults { force_releases: 1, ..NONE },
                bounds: Bounds { robbed: Some(1), idle: Some(3), outside: Some(3), ..STRICT },
                ..base()
            },
        },
    ]
}
