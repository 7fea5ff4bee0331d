//! What is explored, each about one concern, and what random histories are like.

use super::{Faults, Rules};
use crate::config::Config;
use crate::random::Random;

/// A scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    pub(super) rules: Rules,
}

fn base() -> Rules {
    Rules {
        nodes: 3,
        clients: 2,
        calls: 1,
        ttl: 2,
        guard: 0,
        lag: 0,
        prompt: true,
        tries: true,
        renews: false,
        ticks: 1,
        stale_life: 1,
        clocks: None,
        endless: false,
        faults: Faults::default(),
        idle: 0,
        stray: 0,
        broken: None,
        cfg: Config::default(),
    }
}

/// All of them.
pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, about, rules| Scenario { name, about, rules };
    vec![
        scenario("two", "two processes, a free lock, votes that split", base()),
        scenario("two again", "two calls in each of two processes", Rules { calls: 2, ..base() }),
        scenario(
            "three",
            "three processes at three servers",
            Rules { clients: 3, tries: false, ..base() },
        ),
        scenario(
            "four servers",
            "two processes at four servers, votes that split",
            Rules { nodes: 4, tries: false, ..base() },
        ),
        scenario(
            "five servers",
            "two processes at five servers",
            Rules { nodes: 5, tries: false, ..base() },
        ),
        scenario(
            "joined",
            "a second caller depends on a try, servers that are not waited for",
            Rules {
                faults: Faults { joins: 1, graces: 2, cancels: 1, ..Faults::default() },
                ..base()
            },
        ),
        scenario("answers", "answers in any order", Rules { prompt: false, ..base() }),
        scenario(
            "late",
            "commands and answers that take up to a tick, leases that run out",
            Rules { lag: 1, ticks: 4, ttl: 2, idle: 6, stray: 3, ..base() },
        ),
        scenario(
            "lost",
            "connections that are lost, with what they carry or before it runs",
            Rules {
                ticks: 3,
                idle: 3,
                stray: 3,
                faults: Faults { disconnects: 1, cancels: 1, ..Faults::default() },
                ..base()
            },
        ),
        scenario(
            "lost hints",
            "a message that is lost",
            Rules {
                ticks: 5,
                idle: 4,
                stray: 2,
                faults: Faults { lost_hints: 1, ..Faults::default() },
                ..base()
            },
        ),
        scenario(
            "deaths",
            "a process that dies",
            Rules {
                ticks: 6,
                idle: 3,
                stray: 2,
                faults: Faults { deaths: 1, ..Faults::default() },
                ..base()
            },
        ),
        scenario(
            "restarts",
            "a server that starts again without its data, clocks that differ by less than the guard",
            Rules {
                calls: 2,
                guard: 2,
                clocks: Some(2),
                ticks: 4,
                idle: 4,
                stray: 3,
                faults: Faults { restarts: 1, ..Faults::default() },
                ..base()
            },
        ),
        scenario(
            "renewals",
            "leases that are renewed and come to rest on every server",
            Rules {
                renews: true,
                guard: 2,
                clocks: Some(2),
                ticks: 4,
                idle: 4,
                stray: 3,
                faults: Faults { restarts: 1, ..Faults::default() },
                ..base()
            },
        ),
    ]
}

/// What one seed gives: sizes, times, and which faults happen.
pub(super) fn swarm(seed: u64) -> Rules {
    let mut random = Random::new(seed);
    let mut below = |end| random.below(end);
    if below(4) == 0 {
        // Nothing goes wrong: a lock that is free is taken before the next tick.
        let (nodes, clients) = (3 + below(3) as usize, 2 + below(3) as u16);
        let (prompt, tries) = (below(2) == 0, below(2) == 0);
        let faults = Faults { graces: 1, joins: 1, ..Faults::default() };
        let (endless, ticks) = (true, u32::MAX);
        return Rules { nodes, clients, prompt, tries, faults, endless, ticks, ttl: 3, ..base() };
    }
    let ttl = 3 + below(4) as u32;
    let lag = below(2) as u8;
    let guard = ttl + 1;
    let mut or_not = || below(2) as u8;
    let faults = Faults {
        restarts: or_not(),
        disconnects: or_not(),
        lost_hints: or_not(),
        deaths: 0,
        cancels: or_not(),
        timeouts: or_not(),
        graces: or_not(),
        joins: or_not(),
    };
    let (prompt, renews) = (or_not() == 0, or_not() == 0);
    // After a restart tokens begin again with the time.
    let clocks = (faults.restarts > 0).then_some(ttl - 1);
    // Of three servers one may be out for the guard at a time; a waiter that is not notified looks again.
    let idle = (guard + ttl + 8 + 3 * u32::from(lag)) as u8;
    Rules {
        nodes: if below(3) == 0 { 5 } else { 3 },
        clients: 2 + below(3) as u16,
        calls: u8::MAX,
        ttl,
        guard,
        lag,
        prompt,
        renews,
        ticks: u32::MAX,
        clocks,
        endless: true,
        faults,
        idle,
        stray: idle,
        ..base()
    }
}
