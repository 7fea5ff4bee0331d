//! Every scenario is exhausted, and nothing in it violates an invariant.

use distlock_model::{check, scenarios};

/// The scenarios that have a test below.
const NAMES: &[&str] = &[
    "cancel",
    "connection",
    "deaf",
    "expiry",
    "forged hints",
    "grace",
    "lag",
    "lost hints",
    "mode n",
    "overtaking",
    "queue",
    "renewal",
    "renewal lost",
    "three",
    "unreachable",
];

fn holds(names: impl Fn(usize) -> bool) {
    for (place, scenario) in scenarios().iter().enumerate() {
        if !names(place) {
            continue;
        }
        let outcome = check(scenario, None, None);
        if let Some(violation) = outcome.violation {
            panic!("{}: {:?}\n{}", scenario.name, violation.invariant, violation.trace);
        }
        assert!(outcome.exhausted, "{} was not exhausted", scenario.name);
    }
}

#[test]
fn all_are_named() {
    let mut names: Vec<_> = scenarios().iter().map(|scenario| scenario.name).collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
}

#[test]
fn even_ones_hold() {
    holds(|place| place % 2 == 0);
}

#[test]
fn odd_ones_hold() {
    holds(|place| place % 2 == 1);
}
