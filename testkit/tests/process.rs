//! A test can run itself in other processes, and hears when one of them fails.

use std::time::{Duration, Instant};

use distlock_testkit::{RedisServer, fork_self, in_fork, wait_for, wait_until, wait_within};

#[test]
fn children_run_the_same_test_in_processes_of_their_own() {
    const NAME: &str = "children_run_the_same_test_in_processes_of_their_own";
    if in_fork() {
        let client = redis::Client::open(std::env::var("URL").expect("URL")).expect("a URL");
        let mut connection = client.get_connection().expect("connect");
        let pid = std::process::id();
        redis::cmd("SADD").arg("pids").arg(pid).query::<()>(&mut connection).expect("SADD");
        return;
    }
    let server = RedisServer::start();
    let forks: Vec<_> = (0..4).map(|_| fork_self(NAME, &[("URL", &server.url())])).collect();
    for fork in forks {
        fork.join();
    }
    assert_eq!(server.cli::<usize>(&["SCARD", "pids"]), 4);
}

#[test]
fn a_child_that_fails_or_is_no_test_fails_the_parent() {
    if in_fork() {
        panic!("as it should");
    }
    for name in ["a_child_that_fails_or_is_no_test_fails_the_parent", "no_such_test"] {
        let fork = fork_self(name, &[]);
        let joined = std::panic::catch_unwind(move || fork.join());
        joined.expect_err("the parent must notice");
    }
}

#[test]
fn a_stopped_child_stands_still_until_it_goes_on() {
    const NAME: &str = "a_stopped_child_stands_still_until_it_goes_on";
    if in_fork() {
        let client = redis::Client::open(std::env::var("URL").expect("URL")).expect("a URL");
        let mut connection = client.get_connection().expect("connect");
        loop {
            redis::cmd("INCR").arg("beat").query::<()>(&mut connection).expect("INCR");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let server = RedisServer::start();
    let beat = || server.cli::<Option<u64>>(&["GET", "beat"]).unwrap_or(0);
    let fork = fork_self(NAME, &[("URL", &server.url())]);
    wait_until("the child beats", || beat() > 3);
    fork.stop();
    // One beat may be in the server's socket still.
    let stopped = beat() + 1;
    std::thread::sleep(Duration::from_millis(100));
    assert!(beat() <= stopped);
    fork.cont();
    wait_until("the child beats again", || beat() > stopped + 3);
    fork.kill9();
}

#[tokio::test]
async fn waiting_ends_with_the_condition_or_with_a_panic() {
    let start = Instant::now();
    wait_for("some time passes", async || start.elapsed() > Duration::from_millis(20)).await;
    let never = std::panic::catch_unwind(|| {
        wait_within(Duration::from_millis(20), "never", || false);
    });
    never.expect_err("the bound was reached");
}
