//! A long way to a violation made short: delta debugging over the list of what happened.
//!
//! Steps are named by places (the second task of the first process), not by tokens, so most of what
//! is left still means the same when something before it is taken out. What is not possible any more
//! at its turn is skipped.

use crate::actions::Action;
use crate::invariants::Invariant;
use crate::setting::Setting;
use crate::world::World;

/// The steps that were possible, up to the first violation of that invariant.
pub(crate) fn replay(
    setting: &Setting,
    steps: &[Action],
    wanted: Invariant,
) -> Option<Vec<Action>> {
    let mut world = World::new(setting);
    let (mut done, mut possible) = (Vec::new(), Vec::new());
    for step in steps {
        possible.clear();
        setting.possible(&world, &mut possible);
        if !possible.contains(step) {
            continue;
        }
        world.apply(setting, step);
        done.push(*step);
        if world.violated(setting) == Some(wanted) {
            return Some(done);
        }
    }
    None
}

/// A short list of steps that still violates the invariant: none of them can be left out alone.
pub(crate) fn shrink(setting: &Setting, steps: &[Action], wanted: Invariant) -> Vec<Action> {
    let mut best = replay(setting, steps, wanted).unwrap_or_else(|| steps.to_vec());
    let mut chunk = best.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        let before = best.len();
        while at < best.len() {
            let end = (at + chunk).min(best.len());
            let without: Vec<_> = best[..at].iter().chain(&best[end..]).cloned().collect();
            match replay(setting, &without, wanted) {
                Some(shorter) => best = shorter,
                None => at = end,
            }
        }
        // One pass may have made others possible.
        if chunk == 1 && best.len() == before {
            break;
        }
        chunk = if chunk == 1 { 1 } else { chunk / 2 };
    }
    best
}
