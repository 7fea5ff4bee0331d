//! Every broken rule is seen, by the invariant it should be seen by.

use distlock_model::{Mutant, check, scenarios};

#[test]
fn each_is_caught() {
    for (mutant, name, invariant) in Mutant::CAUGHT {
        let scenario = scenarios().into_iter().find(|scenario| scenario.name == *name);
        let scenario = scenario.unwrap_or_else(|| panic!("no scenario {name}"));
        let outcome = check(&scenario, Some(*mutant), None);
        let caught = outcome.violation.map(|violation| violation.invariant);
        assert_eq!(caught, Some(*invariant), "{mutant:?} in {name}");
    }
}
