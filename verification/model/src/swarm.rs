//! The world of a seed: how large it is, how long things take in it, and what goes wrong.
//!
//! *Swarm testing* (Groce, Zhang, Eide, Chen, Regehr, 2012): a history in which everything can happen
//! hides what shows only where something does not.

use std::time::Duration;

use distlock_core::line::Limit;
use distlock_core::store::owner::RELEASE_REPEATS;

use crate::actions::Action;
use crate::config::{Ask, Bounds, Config, Faults};
use crate::driver::ms;
use crate::network::HintKind;
use crate::random::Random;

/// What a lapsed reservation grows to, and the time between two looks at the most, in ms.
const LONGEST_RESERVATION: u32 = 8_000;
const LOOK: u32 = 5_000;

/// What one seed gives.
pub(crate) fn config(seed: u64) -> Config {
    let mut random = Random::new(seed);
    let random = &mut random;
    let keys = 1 + random.below(3) as u8;
    let processes = 1 + random.below(4) as u8;
    let tick = [250, 1000][random.below(2) as usize];
    let lag = random.below(3) as u8;
    let mut faults = faults(random);
    // Of its own, so that worlds without it stay what they were.
    let restores = u8::from(one_in(&mut Random::new(!seed), 2));
    (faults.saves, faults.restores) = (restores, restores);
    let mut cfg = Config {
        processes,
        keys,
        tasks: 1 + random.below(5) as u8,
        arrivals: None,
        tick,
        drift: tick / 200,
        lag,
        prompt: one_in(random, 4),
        prompt_hints: one_in(random, 3),
        prompt_engine: one_in(random, 2),
        fast_path: !one_in(random, 5),
        split_fast_path: one_in(random, 2),
        take_over: one_in(random, 2),
        stale_life: Some(1 + random.below(longest_life(tick)) as u8),
        not_after: None,
        server_time: true,
        doubles: one_in(random, 3),
        silent: false,
        taken_unheard: one_in(random, 3),
        wakes: true,
        restarts: true,
        endless: true,
        few_tokens: one_in(random, 3),
        faults,
        ..Config::default()
    };
    let mixed = one_in(random, 2);
    cfg.downgrades = mixed;
    cfg.asks = (0..2 + random.below(5)).map(|_| ask(random, keys, tick, lag, mixed)).collect();
    cfg.bounds = bounds(&cfg);
    cfg
}

/// R9: for so many ticks bytes of a dead connection run at the most. Releases are repeated for as long as
/// that; what runs later still makes a lock without an owner, for one ttl.
fn longest_life(tick: u32) -> u64 {
    let covered: Duration = RELEASE_REPEATS.iter().sum();
    u64::from(ms(covered) / tick)
}

fn one_in(random: &mut Random, many: u64) -> bool {
    random.below(many) == 0
}

/// Several locks are never permits.
fn limit(random: &mut Random, mixed: bool, several: bool) -> Limit {
    match random.below(4) {
        _ if !mixed => Limit::ALONE,
        0 => Limit::ALONE,
        1 if !several => Limit::permits(2).unwrap_or(Limit::ALONE),
        2 if !several => Limit::permits(3).unwrap_or(Limit::ALONE),
        _ => Limit::READ,
    }
}

fn ask(random: &mut Random, keys: u8, tick: u32, lag: u8, mixed: bool) -> Ask {
    let first = random.below(keys.into()) as u8;
    let second = random.below(keys.into()) as u8;
    let several = one_in(random, 4) && first != second;
    let keys = if several { vec![first.min(second), first.max(second)] } else { vec![first] };
    let ttl = tick * (2 + u32::from(lag) + random.below(7) as u32);
    // Some differ by little.
    let ttl = ttl + ttl / 25 * random.below(3) as u32;
    let min_hold = if one_in(random, 5) { tick * (1 + random.below(4) as u32) } else { 0 };
    let (renew, patient) = (!one_in(random, 3), !one_in(random, 6));
    let limit = limit(random, mixed, several);
    Ask { keys, limit, ttl, renew, patient, min_hold }
}

fn faults(random: &mut Random) -> Faults {
    let mut or_not = || u8::from(one_in(random, 2));
    Faults {
        crashes: or_not(),
        vanishings: or_not(),
        lost_hints: or_not(),
        forged_hints: or_not(),
        disconnects: or_not(),
        deafenings: or_not(),
        force_releases: or_not(),
        data_losses: or_not(),
        saves: 0,
        restores: 0,
        queue_losses: or_not(),
        dozes: or_not(),
        slow_ticks: or_not(),
        cancels: or_not(),
        timeouts: or_not(),
        questions: or_not(),
    }
}

/// In a calm every waiter has to be served within the longest lease and what it takes to see that its
/// owner is gone.
fn bounds(cfg: &Config) -> Bounds {
    let longest = cfg.asks.iter().map(|ask| ask.ttl.max(ask.min_hold)).max().unwrap_or_default();
    let ms = longest + LONGEST_RESERVATION + LOOK + 1_000;
    let ticks = (ms / cfg.tick) as u16 + 2 * u16::from(cfg.lag);
    Bounds { idle: Some(ticks), outside: Some(ticks), stray: Some(ticks), robbed: Some(ticks) }
}

/// How often something happens, beside everything else that is possible.
pub(crate) fn weight(action: &Action, storm: bool) -> u64 {
    let wrong = u64::from(storm);
    match action {
        Action::Run { .. } | Action::Answer { .. } | Action::Hear { .. } => 40,
        Action::Engine { .. } | Action::Begin { .. } => 40,
        Action::Call { .. } => 10,
        Action::Attend { .. } | Action::Reply { .. } => 10,
        Action::Finish { .. } => 20,
        Action::Downgrade { .. } => 5,
        Action::Tick { slow: None } => 30,
        Action::Tick { slow: Some(_) } => 2 * wrong,
        Action::RunStale { .. } | Action::Start { .. } => 8,
        Action::Wake { .. } | Action::HearAgain { .. } => 20 - 16 * wrong,
        Action::Forge { kind: HintKind::Taken, .. } => wrong,
        Action::Cancel { .. } | Action::Doze { .. } => wrong,
        Action::Ask { .. } => 1,
        Action::Disconnect { .. } | Action::Deafen { .. } | Action::LoseHint { .. } => wrong,
        Action::Forge { .. } | Action::TimeOut { .. } => wrong,
        Action::Crash { .. } | Action::Vanish { .. } => wrong,
        Action::ForceRelease { .. } | Action::LoseData { .. } | Action::LoseQueue { .. } => wrong,
        // Some time before the storm, or in it.
        Action::Save => 1,
        Action::Restore { .. } => wrong,
    }
}
