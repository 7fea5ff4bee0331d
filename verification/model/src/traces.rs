//! Ways to states in which the model once took something for an overtaking that the protocol permits (I7),
//! too long for a run with small bounds to come by.

use crate::actions::Action::{self, *};
use crate::network::Connection::{Main, Renewals};
use crate::scenarios::scenarios;
use crate::setting::Setting;
use crate::world::World;

/// Each step is possible, and nothing is violated by it.
fn holds(name: &str, steps: &[Action]) {
    let scenario = scenarios().into_iter().find(|scenario| scenario.name == name);
    let setting = Setting::new(scenario.expect("a scenario").larger().config().clone());
    let (mut world, mut possible) = (World::new(&setting), Vec::new());
    for (at, step) in steps.iter().enumerate() {
        possible.clear();
        setting.possible(&world, &mut possible);
        assert!(
            possible.contains(step),
            "{name}: step {at}, {step:?}, possible {possible:?}, after\n{}",
            world.brief()
        );
        world.apply(&setting, step);
        assert_eq!(world.violated(&setting), None, "{name}: step {at}\n{}", world.brief());
    }
}

fn run(process: u8) -> Action {
    Run { process, connection: Main }
}

fn answer(process: u8) -> Action {
    Answer { process, connection: Main }
}

fn call(process: u8, ask: u8) -> Action {
    Call { process, ask }
}

const TICK: Action = Tick { slow: None };

/// A waiter whose answer was lost finds itself where it stood before another one that came in the same tick.
#[test]
fn whoever_finds_itself_at_its_place_had_it_all_the_time() {
    let lost = |process| Disconnect { process, connection: Main, lingers: false };
    let steps = [
        call(0, 0),
        run(0),
        Cancel { process: 0, task: 0 },
        lost(0),
        call(0, 0),
        run(0),
        answer(0),
        call(1, 0),
        run(1),
        answer(1),
        run(1),
        run(0),
        answer(0),
        lost(1),
        // The first token of process 0, which its second one asks about, is released.
        run(0),
        answer(0),
        run(1),
        run(0),
        answer(1),
        answer(0),
    ];
    holds("connection", &steps);
}

/// Two readers behind a writer that does not hear that it is called have the lock before it.
#[test]
fn whoever_does_not_hear_that_it_is_called_is_passed_by_those_behind() {
    let steps = [
        call(0, 0),
        run(0),
        call(1, 1),
        run(1),
        run(1),
        Hear { process: 0 },
        TICK,
        call(0, 0),
        run(0),
        Run { process: 0, connection: Renewals },
        Hear { process: 1 },
        TICK,
        Finish { process: 0, task: 0 },
        run(0),
        Run { process: 0, connection: Renewals },
        call(0, 0),
        LoseHint { process: 1 },
        TICK,
        run(0),
    ];
    holds("lost seals", &steps);
}

/// Two writers one after the other have the lock before readers that do not hear that they are called: these
/// stand in no queue until they look.
#[test]
fn whoever_does_not_hear_that_it_is_called_is_passed_until_it_looks() {
    let steps = [
        call(0, 0),
        call(1, 1),
        run(1),
        run(0),
        run(0),
        Hear { process: 1 },
        Finish { process: 1, task: 0 },
        run(1),
        LoseHint { process: 0 },
        TICK,
        call(0, 0),
        TICK,
        run(1),
        call(1, 1),
        run(1),
        Finish { process: 1, task: 0 },
        run(1),
        call(1, 1),
        run(1),
    ];
    holds("lost seals", &steps);
}
