//! Every broken rule is seen, by the invariant it should be seen by.

mod each;

use distlock_model::{Mutant, check, scenarios};

#[test]
fn each_is_caught() {
    each::in_parallel(Mutant::CAUGHT, |(mutant, name, invariant)| {
        let scenario = scenarios().into_iter().find(|scenario| scenario.name == *name);
        let scenario = scenario.unwrap_or_else(|| panic!("no scenario {name}"));
        let outcome = check(&scenario, Some(*mutant), None);
        let caught = outcome.violation.map(|violation| violation.invariant);
        assert_eq!(caught, Some(*invariant), "{mutant:?} in {name}");
    });
}

#[test]
fn none_is_forgotten() {
    for (mutant, _) in Mutant::ALL {
        let caught = Mutant::CAUGHT.iter().filter(|(other, _, _)| other == mutant).count();
        let survives = Mutant::SURVIVORS.iter().filter(|(other, _)| other == mutant).count();
        assert_eq!(caught + survives, 1, "{mutant:?} is caught or survives, once");
    }
}
