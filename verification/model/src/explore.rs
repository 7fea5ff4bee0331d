//! Every state that can be reached, breadth first.
//!
//! A state that waits for its turn is kept whole; of those whose turn is over 16 bytes are left: their
//! fingerprint, and by which step from which other one they were reached first. Processes in which
//! nothing has happened are the same in a state and in those after it, and those that have come to be the
//! same in different ways are made one.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use crate::actions::Action;
use crate::fingerprint::Reached;
use crate::invariants::Invariant;
use crate::setting::Setting;
use crate::world::World;

/// What was explored.
#[derive(Debug)]
pub(crate) struct Explored {
    /// Steps from a state to another one.
    pub(crate) steps: usize,
    /// Different states.
    pub(crate) states: usize,
    /// Steps to the last of them.
    pub(crate) depth: usize,
    /// None is left.
    pub(crate) exhausted: bool,
    /// What was violated first, and the steps to it.
    pub(crate) violation: Option<(Invariant, Vec<Action>)>,
}

/// So many states are kept to copy others into.
const SPARE: usize = 64;

/// A way to a state: the number of the one before it, and which of its steps.
type Way = (u32, u16);

struct Explorer<'a> {
    setting: &'a Setting,
    reached: Reached,
    /// Of each state, in the order in which they were reached.
    ways: Vec<Way>,
    /// Those whose turn has not come.
    waiting: VecDeque<World>,
    /// Those that are no longer needed.
    spare: Vec<World>,
    steps: usize,
}

/// Goes on until so many different states were reached.
pub(crate) fn explore(setting: &Setting, most: Option<NonZeroUsize>) -> Explored {
    let most = most.map_or(usize::MAX, NonZeroUsize::get).min(u32::MAX as usize);
    let mut explorer = Explorer::new(setting);
    let (mut turn, mut depth, mut level_ends) = (0, 0, 1);
    let (mut actions, mut violation) = (Vec::new(), None);
    while explorer.reached.count() < most {
        let Some(world) = explorer.waiting.pop_front() else { break };
        if turn == level_ends {
            // Of all that is violated in as few steps the gravest is reported.
            if violation.is_some() {
                break;
            }
            (depth, level_ends) = (depth + 1, explorer.ways.len());
        }
        match world.violated(setting) {
            Some(broken) if violation.is_none_or(|(before, _)| broken < before) => {
                violation = Some((broken, turn));
            }
            None if violation.is_none() => explorer.step(&world, turn as u32, &mut actions),
            _ => {}
        }
        explorer.done_with(world);
        turn += 1;
    }
    let violation = violation.map(|(broken, turn)| (broken, explorer.way_to(turn)));
    explorer.outcome(depth, violation)
}

impl<'a> Explorer<'a> {
    fn new(setting: &'a Setting) -> Self {
        let mut first = World::new(setting);
        let mut reached = Reached::new();
        reached.insert(first.normalise(setting));
        let (ways, waiting) = (vec![(0, 0)], VecDeque::from([first]));
        Self { setting, reached, ways, waiting, spare: Vec::new(), steps: 1 }
    }

    /// Wherever one step leads from here.
    fn step(&mut self, world: &World, number: u32, actions: &mut Vec<Action>) {
        actions.clear();
        self.setting.possible(world, actions);
        for (step, action) in (0..).zip(actions.iter()) {
            let mut next = self.copy(world);
            next.apply(self.setting, action);
            self.steps += 1;
            if self.reached.insert(next.normalise(self.setting)) {
                self.ways.push((number, step));
                self.waiting.push_back(next);
            } else {
                self.done_with(next);
            }
        }
    }

    fn copy(&mut self, world: &World) -> World {
        match self.spare.pop() {
            Some(mut spare) => {
                spare.clone_from(world);
                spare
            }
            None => world.clone(),
        }
    }

    fn done_with(&mut self, world: World) {
        if self.spare.len() < SPARE {
            self.spare.push(world);
        }
    }

    /// The steps to a state.
    fn way_to(&self, number: usize) -> Vec<Action> {
        let (mut ways, mut at) = (Vec::new(), number);
        while at > 0 {
            let (before, step) = self.ways[at];
            ways.push(step);
            at = before as usize;
        }
        let (mut world, mut steps) = (World::new(self.setting), Vec::new());
        world.normalise(self.setting);
        for step in ways.into_iter().rev() {
            let mut actions = Vec::new();
            self.setting.possible(&world, &mut actions);
            let action = actions[usize::from(step)];
            world.apply(self.setting, &action);
            world.normalise(self.setting);
            steps.push(action);
        }
        steps
    }

    fn outcome(self, depth: usize, violation: Option<(Invariant, Vec<Action>)>) -> Explored {
        let (steps, states) = (self.steps, self.reached.count());
        let exhausted = violation.is_none() && self.waiting.is_empty();
        Explored { steps, states, depth, exhausted, violation }
    }
}
