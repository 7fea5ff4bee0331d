//! Random histories hold every invariant; and the simulator can fail.

use distlock_model::{Mutant, simulate, simulate_broken};

/// A few seconds of what the soak program does for long.
#[test]
fn histories_hold() {
    let outcome = simulate(1, 400_000, 1);
    if let Some(failure) = outcome.failure {
        panic!("{failure}");
    }
    assert!(outcome.bodies > 1_000, "{} bodies", outcome.bodies);
}

#[test]
fn a_seed_is_a_history() {
    let [once, again] = [(); 2].map(|()| simulate(7, 1, 1));
    assert_eq!((once.steps, once.bodies), (again.steps, again.bodies));
}

/// A script that frees what is not its token's is found, and the way there is short.
#[test]
fn what_is_found_is_made_short() {
    let outcome = simulate_broken(1, 5_000_000, Mutant::BlindRelease);
    let failure = outcome.failure.expect("it breaks exclusion");
    assert!(failure.trace.len() < failure.after, "{failure}");
    assert!(failure.trace.len() <= 40, "{failure}");
}
