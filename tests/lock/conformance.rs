//! What every store has to keep: the same tests for each.

mod redis {
    distlock_testkit::conformance!(distlock_testkit::RedisServer);
}

mod memory {
    distlock_testkit::conformance!(in_process: distlock_testkit::conformance::InMemory);
}

/// Over three servers, of which one that crashes or loses an answer is no news. There are no permits.
mod redlock {
    distlock_testkit::conformance!(@tests distlock_testkit::Quorum:
        a_dead_holder_is_outlived,
        a_dead_waiter_is_passed_over,
        a_frozen_store_is_an_outage_and_no_lock,
        a_lease_that_is_not_renewed_ends,
        a_lease_that_is_renewed_lasts,
        a_lock_is_handed_on_at_once,
        a_lock_taken_away_is_lost_and_free,
        a_try_beside_changing_modes_is_granted_or_busy,
        a_waiter_that_gives_up_keeps_nobody_out,
        a_writer_that_goes_on_as_a_reader_lets_readers_in,
        fencing_tokens_grow_over_a_restart,
        first_come_first_served,
        inspect_says_who_holds_and_who_waits,
        nobody_overtakes,
        one_at_a_time_over_processes,
        readers_are_together_and_a_writer_alone,
        several_locks_are_taken_together,
        what_is_dropped_leaves_nothing,
    );
}

mod etcd {
    distlock_testkit::conformance!(distlock_testkit::EtcdServer);
    distlock_testkit::conformance!(@tests distlock_testkit::EtcdServer:
        holders_and_waiters_are_named_and_gone_when_they_close,
    );
}

mod postgres {
    distlock_testkit::conformance!(distlock_testkit::PostgresServer);
}

/// One that is no part of distlock.
mod foreign {
    distlock_testkit::conformance!(in_process: crate::foreign::Shelf);
    distlock_testkit::conformance!(@tests crate::foreign::Shelf:
        first_come_first_served,
    );
}

mod zookeeper {
    distlock_testkit::conformance!(
        distlock_testkit::ZooKeeperPath,
        that fails: distlock_testkit::ZooKeeperServer
    );
    distlock_testkit::conformance!(@tests distlock_testkit::ZooKeeperPath:
        holders_and_waiters_are_named_and_gone_when_they_close,
    );
}
