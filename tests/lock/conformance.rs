//! What every store has to keep: the same tests for each.

mod redis {
    distlock_testkit::conformance!(distlock_testkit::RedisServer);
}

mod memory {
    distlock_testkit::conformance!(in_process: distlock_testkit::conformance::InMemory);
}

mod postgres {
    distlock_testkit::conformance!(distlock_testkit::PostgresServer);
}
