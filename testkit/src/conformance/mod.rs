//! What every store has to keep, as one list of tests: [`conformance!`](macro@crate::conformance).
//!
//! Each promise is a function over a [`Subject`]; the macro makes a test of each. What only one store
//! does, and what the engine does whatever the store, is tested elsewhere.

mod alone;
mod faults;
mod line;
mod modes;
mod processes;
mod subject;
mod tools;

pub use alone::{
    a_lease_that_is_not_renewed_ends, a_lease_that_is_renewed_lasts,
    a_lock_taken_away_is_lost_and_free, inspect_says_who_holds_and_who_waits,
    no_more_than_there_are_permits, nobody_overtakes, readers_are_together_and_a_writer_alone,
    several_locks_are_taken_together, what_is_dropped_leaves_nothing,
};
pub use faults::{
    a_frozen_store_is_an_outage_and_no_lock, an_answer_that_is_lost_costs_no_lock,
    fencing_tokens_grow_over_a_restart,
};
pub use line::{a_lock_is_handed_on_at_once, first_come_first_served};
pub use modes::{
    a_try_beside_changing_modes_is_granted_or_busy, a_waiter_that_gives_up_keeps_nobody_out,
    a_writer_that_goes_on_as_a_reader_lets_readers_in,
};
pub use processes::{
    a_dead_holder_is_outlived, a_dead_waiter_is_passed_over,
    holders_and_waiters_are_named_and_gone_when_they_close, one_at_a_time_over_processes,
    updates_are_lost_without_a_lock,
};
pub use subject::{InMemory, Remote, Subject};

/// Makes a test of each promise for a [`Remote`] store, or with `in_process:` for any [`Subject`], whose
/// managers are all in this process. Where a server is slow to start, tests that leave it alone may share one: then
/// `that fails:` names one of a test's own.
///
/// ```no_run
/// mod redis {
///     distlock_testkit::conformance!(distlock_testkit::RedisServer);
/// }
/// mod memory {
///     distlock_testkit::conformance!(in_process: distlock_testkit::conformance::InMemory);
/// }
/// ```
#[macro_export]
macro_rules! conformance {
    (in_process: $subject:ty) => {
        $crate::conformance!(@tests $subject:
            a_lease_that_is_not_renewed_ends,
            a_lease_that_is_renewed_lasts,
            a_lock_is_handed_on_at_once,
            a_lock_taken_away_is_lost_and_free,
            a_try_beside_changing_modes_is_granted_or_busy,
            a_waiter_that_gives_up_keeps_nobody_out,
            a_writer_that_goes_on_as_a_reader_lets_readers_in,
            inspect_says_who_holds_and_who_waits,
            no_more_than_there_are_permits,
            nobody_overtakes,
            readers_are_together_and_a_writer_alone,
            several_locks_are_taken_together,
            what_is_dropped_leaves_nothing,
        );
    };
    ($subject:ty) => {
        $crate::conformance!($subject, that fails: $subject);
    };
    ($subject:ty, that fails: $failing:ty) => {
        $crate::conformance!(in_process: $subject);
        $crate::conformance!(@tests $subject:
            a_dead_holder_is_outlived,
            a_dead_waiter_is_passed_over,
            an_answer_that_is_lost_costs_no_lock,
            first_come_first_served,
            one_at_a_time_over_processes,
            updates_are_lost_without_a_lock,
        );
        $crate::conformance!(@tests $failing:
            a_frozen_store_is_an_outage_and_no_lock,
            fencing_tokens_grow_over_a_restart,
        );
    };
    (@tests $subject:ty: $($promise:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            $crate::conformance::$promise::<$subject>($crate::this_test!()).await;
        }
    )*};
}
