//! Every scenario is exhausted, and nothing in it violates an invariant.

mod each;

use distlock_model::{check, scenarios};

#[test]
fn all_hold() {
    each::in_parallel(&scenarios(), |scenario| {
        let outcome = check(scenario, None, None);
        if let Some(violation) = outcome.violation {
            panic!("{}: {:?}\n{}", scenario.name, violation.invariant, violation.trace);
        }
        assert!(outcome.exhausted, "{} was not exhausted", scenario.name);
    });
}
