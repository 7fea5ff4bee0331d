//! A quorum of servers: scenarios hold up to so many states, and random histories; and what is broken is seen.

mod each;

use distlock_model::quorum::{Invariant, Mutant, check, scenarios, simulate};

/// Different states of each scenario: about a second in all.
const MOST: usize = 8_000;

#[test]
fn each_scenario_holds() {
    each::in_parallel(&scenarios(), |scenario| {
        let outcome = check(scenario, MOST);
        if let Some((invariant, way)) = outcome.violation {
            panic!("{}: {invariant:?} in {} steps\n{}", scenario.name, way.len(), way.join("\n"));
        }
    });
}

#[test]
fn histories_hold() {
    let outcome = simulate(1, 600_000, None);
    if let Some((invariant, way)) = outcome.violation {
        panic!("{invariant:?} in {} steps\n{}", way.len(), way.join("\n"));
    }
    assert!(outcome.bodies > 5_000, "{} bodies", outcome.bodies);
}

/// What is broken, by histories from which seed on it is seen, and by which invariant.
const CAUGHT: &[(Mutant, u64, Invariant)] = &[
    (Mutant::AcceptsAnyFence, 1, Invariant::Fencing),
    (Mutant::OffersKeep, 1, Invariant::Progress),
    (Mutant::DeafToSeals, 1, Invariant::Progress),
    // Other votes have to come in between two steps of one process, which few seeds bring about.
    (Mutant::OffersLater, 181, Invariant::Exclusion),
    (Mutant::NothingGivenBack, 1, Invariant::GivenBack),
];

#[test]
fn each_mutant_is_caught() {
    each::in_parallel(CAUGHT, |(mutant, seed, invariant)| {
        let outcome = simulate(*seed, 1_000_000, Some(*mutant));
        let caught = outcome.violation.map(|(violated, _)| violated);
        assert_eq!(caught, Some(*invariant), "{mutant:?}");
    });
}
