//! Every scenario is exhausted, and nothing in it violates an invariant.

use distlock_model::{check, scenarios};

fn holds(name: &str) {
    let scenario = scenarios().into_iter().find(|scenario| scenario.name == name);
    let scenario = scenario.unwrap_or_else(|| panic!("no scenario {name}"));
    let outcome = check(&scenario, None, None);
    if let Some(violation) = outcome.violation {
        panic!(
            "{name}: {:?} in {} steps\n{}",
            violation.invariant, violation.steps, violation.trace
        );
    }
    assert!(outcome.exhausted, "{name} was not exhausted");
}

macro_rules! each_holds {
    ($($test:ident: $name:literal,)*) => {
        /// The test command runs these beside its other tests, by this name.
        mod every_state {
            use super::{holds, scenarios};

            $(
                #[test]
                fn $test() {
                    holds($name);
                }
            )*

            #[test]
            fn none_is_forgotten() {
                let here = [$($name),*];
                let all: Vec<_> = scenarios().iter().map(|scenario| scenario.name).collect();
                assert_eq!(here[..], all[..]);
            }
        }
    };
}

each_holds! {
    lag: "lag",
    late_grants: "late grants",
    renewal: "renewal",
    renewal_lost: "renewal lost",
    slow_link: "slow link",
    too_far_away: "too far away",
    parked: "parked",
    queue: "queue",
    overtaking: "overtaking",
    three: "three",
    cancel: "cancel",
    grace: "grace",
    take_over: "take-over",
    fences: "fences",
    fences_of_two: "fences of two",
    expiry: "expiry",
    unreachable: "unreachable",
    cluster: "cluster",
    connection: "connection",
    doubled: "doubled",
    lost_hints: "lost hints",
    forged_hints: "forged hints",
    deaf: "deaf",
    mode_n: "mode n",
    deaf_unknowingly: "deaf unknowingly",
    late_hints: "late hints",
    flapping: "flapping",
    flapping_line: "flapping line",
    questions: "questions",
    questions_to_readers: "questions to readers",
    lost_queue: "lost queue",
    ttls_that_grow: "ttls that grow",
    ttls_that_shrink: "ttls that shrink",
    lost_lease: "lost lease",
    min_hold: "min_hold",
    stored_for_longer: "stored for longer",
    unpolled: "unpolled",
    two_keys: "two keys",
    data_loss: "data loss",
    older_data: "older data",
    older_data_shared: "older data, shared",
    force_release: "force release",
    force_release_unheard: "force release unheard",
    readers_and_a_writer: "readers and a writer",
    runs_of_readers: "runs of readers",
    readers_overtaking: "readers overtaking",
    permits: "permits",
    local_permits: "local permits",
    different_limits: "different limits",
    cancelled_in_front: "cancelled in front",
    dead_in_front: "dead in front",
    deaf_in_front: "deaf in front",
    lost_seals: "lost seals",
    told_of_a_writer: "told of a writer",
    told_of_another_writer: "told of another writer",
    downgrade: "downgrade",
    downgrade_lost: "downgrade lost",
    late_share: "late share",
    readers_leases: "readers' leases",
}
