//! R15 changes nothing: what can be reached with questions is, but for these, what can be reached without.

use std::collections::{HashSet, VecDeque};

use crate::config::{Config, Faults};
use crate::driver::Census;
use crate::scenarios::scenarios;
use crate::setting::Setting;
use crate::world::World;

/// Every state, with what has to do with questions taken out of it; and how many there were before that.
fn reached(cfg: &Config) -> (HashSet<u64>, usize) {
    let (setting, plain) = (Setting::with_memory(cfg.clone()), Setting::with_memory(cfg.clone()));
    let mut first = World::new(&setting);
    let mut known = HashSet::from([first.normalise(&setting)]);
    let (mut waiting, mut actions) = (VecDeque::from([first]), Vec::new());
    let mut without = HashSet::new();
    while let Some(world) = waiting.pop_front() {
        without.insert(without_questions(&world, &plain));
        actions.clear();
        setting.possible(&world, &mut actions);
        for action in &actions {
            let mut next = world.clone();
            next.apply(&setting, action);
            if known.insert(next.normalise(&setting)) {
                waiting.push_back(next);
            }
        }
    }
    (without, known.len())
}

fn without_questions(world: &World, setting: &Setting) -> u64 {
    let mut world = world.clone();
    world.faults.questions = 0;
    for process in &mut world.processes {
        if process.census != Census::default() {
            process.change().census = Census::default();
        }
    }
    world.normalise(setting)
}

#[test]
fn by_questions_nothing_is_reached_that_is_not_reached_without_and_nothing_is_missed() {
    let scenario = scenarios().into_iter().find(|scenario| scenario.name == "questions");
    let asks = scenario.expect("a scenario").config().clone();
    assert!(asks.faults.questions > 0);
    let silent = Config { faults: Faults { questions: 0, ..asks.faults }, ..asks.clone() };
    let ((with, all), (without, fewer)) = (reached(&asks), reached(&silent));
    assert!(all > 2 * fewer, "{all} states with questions, {fewer} without");
    assert!(with == without, "{} of {} states, {}", with.len(), all, without.len());
}
