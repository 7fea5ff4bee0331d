//! Every state that can be reached, breadth first, and long random histories: for a world that is small
//! enough to be copied whole.

use std::collections::VecDeque;
use std::hash::Hash;

use crate::fingerprint::{Reached, fingerprint};
use crate::random::Random;

/// A world, and what can happen in it.
pub(super) trait Space: Clone + Hash {
    type Step: Copy + PartialEq;
    type Broken: Copy + PartialEq;

    /// What can happen now.
    fn possible(&self, steps: &mut Vec<Self::Step>);
    fn apply(&mut self, step: Self::Step);
    fn broken(&self) -> Option<Self::Broken>;
    /// How often something happens in a random history, beside everything else that is possible.
    fn weight(step: Self::Step, storm: bool) -> u64;
}

/// What was explored.
#[derive(Debug)]
pub(super) struct Found<W: Space> {
    pub(super) states: usize,
    /// Steps from a state to another one.
    pub(super) steps: usize,
    /// Every state there is was reached.
    pub(super) exhausted: bool,
    pub(super) broken: Option<(W::Broken, Vec<W::Step>)>,
}

/// Goes on until so many different states were reached, or one in which something is broken.
pub(super) fn explore<W: Space>(first: &W, most: usize) -> Found<W> {
    let mut reached = Reached::new();
    reached.insert(fingerprint(first));
    // Of each state, in the order in which they were reached: the one before it, and the step from there.
    let mut ways: Vec<(u32, W::Step)> = Vec::new();
    let mut waiting = VecDeque::from([(0, first.clone())]);
    let (mut steps, mut possible) = (0, Vec::new());
    while reached.count() < most {
        let Some((number, world)) = waiting.pop_front() else { break };
        if let Some(broken) = world.broken() {
            let way = way_to(&ways, number);
            return Found {
                states: reached.count(),
                steps,
                exhausted: false,
                broken: Some((broken, way)),
            };
        }
        possible.clear();
        world.possible(&mut possible);
        for step in &possible {
            let mut next = world.clone();
            next.apply(*step);
            steps += 1;
            if reached.insert(fingerprint(&next)) {
                ways.push((number, *step));
                waiting.push_back((ways.len() as u32, next));
            }
        }
    }
    Found { states: reached.count(), steps, exhausted: waiting.is_empty(), broken: None }
}

/// The first state has the number 0, and no way.
fn way_to<S: Copy>(ways: &[(u32, S)], mut number: u32) -> Vec<S> {
    let mut way = Vec::new();
    while number > 0 {
        let (before, step) = ways[number as usize - 1];
        way.push(step);
        number = before;
    }
    way.reverse();
    way
}

/// In so many steps of a history a storm is over, and in so many it is calm again.
const STORM: usize = 300;
const CALM: usize = 600;

/// A history of so many steps, up to the first one that breaks something.
pub(super) fn history<W: Space>(
    first: &W,
    seed: u64,
    steps: usize,
) -> (Vec<W::Step>, W, Option<W::Broken>) {
    let (mut world, mut random) = (first.clone(), Random::new(seed));
    let (mut way, mut possible) = (Vec::new(), Vec::new());
    for step in 0..steps {
        let storm = step % (STORM + CALM) < STORM;
        possible.clear();
        world.possible(&mut possible);
        let all: u64 = possible.iter().map(|step| W::weight(*step, storm)).sum();
        if all == 0 {
            break;
        }
        let mut at = random.below(all);
        let chosen = possible.iter().copied().find(|step| {
            let own = W::weight(*step, storm);
            let found = at < own;
            at = at.saturating_sub(own);
            found
        });
        let Some(chosen) = chosen else { break };
        world.apply(chosen);
        way.push(chosen);
        if let Some(broken) = world.broken() {
            return (way, world, Some(broken));
        }
    }
    (way, world, None)
}

/// The steps that were possible, up to the first that breaks this.
fn replay<W: Space>(first: &W, steps: &[W::Step], wanted: W::Broken) -> Option<Vec<W::Step>> {
    let (mut world, mut done, mut possible) = (first.clone(), Vec::new(), Vec::new());
    for step in steps {
        possible.clear();
        world.possible(&mut possible);
        if possible.contains(step) {
            world.apply(*step);
            done.push(*step);
            if world.broken() == Some(wanted) {
                return Some(done);
            }
        }
    }
    None
}

/// A short list of steps that breaks the same: none of them can be left out alone.
pub(super) fn shrink<W: Space>(first: &W, steps: Vec<W::Step>, wanted: W::Broken) -> Vec<W::Step> {
    let mut best = replay(first, &steps, wanted).unwrap_or(steps);
    let mut chunk = best.len().div_ceil(2);
    while chunk > 0 {
        let (mut at, before) = (0, best.len());
        while at < best.len() {
            let end = (at + chunk).min(best.len());
            let without: Vec<_> = best[..at].iter().chain(&best[end..]).copied().collect();
            match replay(first, &without, wanted) {
                Some(shorter) => best = shorter,
                None => at = end,
            }
        }
        if chunk == 1 && best.len() == before {
            break;
        }
        chunk = if chunk == 1 { 1 } else { chunk / 2 };
    }
    best
}
