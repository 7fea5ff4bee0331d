//! Clocks that jump, processes that stand still, renewals that are late or unheard: section F.
//!
//! No clock of this machine is set. Where an entry speaks of one that steps, the test makes what such
//! a step does: keys that expire early or late, a counter ahead of the server's time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Instant;

use distlock::{LockManager, OnLost};
use distlock_runtime::macro_support::run;
use distlock_runtime::testing::faults::{Faults, Script};
use distlock_testkit::{
    Data, Fork, LONG, Mode, Proxy, RedisServer, Running, SECOND, assert_busy, assert_lost, connect,
    environment, fork_self, in_fork, ms, nothing_is_left, owner, settle, stored, this_test, ttl_of,
    wait_for,
};

/// The server's clock steps forward: every key is at its end. Two holders for a moment is what no
/// lease can prevent; that the later one wins is what fencing is for, and the first one is notified.
#[tokio::test]
async fn f1_a_lock_that_expires_early_is_lost_at_the_next_renewal_and_fenced_at_once() {
    let server = RedisServer::start();
    let (manager, rival) = (connect(&server.url()).await, connect(&server.url()).await);
    let data = Data::of(&server);
    let first = manager.lock("k").ttl(3 * SECOND).acquire().await.expect("granted");
    assert!(data.write_fenced("account", first.fencing_token(), "first"));
    server.cli::<()>(&["PEXPIRE", &stored("k"), "1"]);
    let second = rival.lock("k").ttl(LONG).wait(30 * SECOND).acquire().await.expect("free");
    assert!(second.fencing_token() > first.fencing_token());
    assert!(data.write_fenced("account", second.fencing_token(), "second"));
    assert!(!data.write_fenced("account", first.fencing_token(), "first again"));
    assert_eq!(data.read_fenced("account").as_deref(), Some("second"));
    first.lost().await;
    assert_lost(first.release().await);
    assert!(second.is_held());
    second.release().await.expect("it was held");
}

/// The server's clock steps back by an hour: its counter of fences is ahead of its time, and keys
/// live an hour longer.
#[tokio::test]
async fn f2_a_clock_set_back_lowers_no_fence_and_lengthens_no_wait() {
    let server = RedisServer::start();
    let before = connect(&server.url()).await;
    let guard = before.lock("k").ttl(LONG).acquire().await.expect("granted");
    server.cli::<i64>(&["INCRBY", "distlock:fence", "3600000000"]);
    let ahead = before.lock("other").acquire().await.expect("granted");
    let highest = ahead.fencing_token();
    server.cli::<()>(&["PEXPIRE", &stored("k"), "3720000"]);

    // One that was not there before, and has seen nothing of it.
    let after = connect(&server.url()).await;
    let start = Instant::now();
    assert_busy(after.lock("k").wait(ms(300)).acquire().await);
    assert!(start.elapsed() < 10 * SECOND, "it waited for the key");
    wait_for("its place is gone", async || server.lock_keys() == server.held_locks()).await;
    guard.release().await.expect("it was held");
    let next = after.lock("k").acquire().await.expect("free at once");
    assert!(next.fencing_token() > highest, "{} after {highest}", next.fencing_token());
}

/// The client's wall clock may do what it likes: nothing reads it but what reports processes to people.
#[test]
fn f3_no_wall_clock_is_read() {
    fn visit(dir: &std::path::Path, seen: &mut u32) {
        for entry in std::fs::read_dir(dir).expect("the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                visit(&path, seen);
            } else {
                let text = std::fs::read_to_string(&path).expect("a source file");
                let is = |end: &str| path.ends_with(end);
                assert!(
                    !text.contains("SystemTime") || is("src/wall_clock.rs"),
                    "{} reads it",
                    path.display()
                );
                let tells_people =
                    is("src/lib.rs") || is("etcd/record.rs") || is("zookeeper/mod.rs");
                assert!(!text.contains("wall_clock") || tells_people, "{}", path.display());
                *seen += 1;
            }
        }
    }
    let mut seen = 0;
    visit(
        &std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("distlock-runtime/src"),
        &mut seen,
    );
    assert!(seen > 20, "looked at only {seen} files");
}

/// Stops the child while its body is at an await, which the body marks.
fn stop_at_await(child: &Fork, data: &Data) {
    loop {
        data.wait_until_is("at", "await");
        child.stop();
        if data.get("at").as_deref() == Some("await") {
            return;
        }
        child.cont();
    }
}

#[tokio::test]
async fn f4_a_holder_stopped_past_its_ttl_is_not_polled_again_and_touches_nothing() {
    if in_fork() {
        return f4_child().await;
    }
    let server = RedisServer::start();
    let (rival, data) = (connect(&server.url()).await, Data::of(&server));
    let env = environment(&server);
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    for _ in 0..3 {
        data.run::<()>(&["FLUSHDB"]);
        let child = fork_self(this_test!(), &env);
        stop_at_await(&child, &data);
        let guard = rival.lock("k").ttl(LONG).wait(30 * SECOND).acquire().await.expect("expired");
        assert!(data.write_fenced("account", guard.fencing_token(), "rival"));
        data.set("rival", "has it");
        let owner_before = owner(&server, "k");
        child.cont();
        child.join();

        assert_eq!(data.get("polled late"), None, "its body ran beside the rival's");
        assert_eq!(data.get("caller").as_deref(), Some("lost"));
        assert_eq!(data.get("late write").as_deref(), Some("refused"));
        assert_eq!(data.read_fenced("account").as_deref(), Some("rival"));
        assert_eq!(owner(&server, "k"), owner_before);
        assert!(ttl_of(&server, "k") > 60_000, "the rival's ttl was touched");
        assert!(guard.is_held());
        guard.release().await.expect("it was held");
    }
}

async fn f4_child() {
    let data = Data::of_parent();
    let manager = distlock::manager().expect("of the environment");
    let guard = manager.lock("k").ttl(2 * SECOND).acquire().await.expect("granted");
    let body = async {
        loop {
            data.set("at", "await");
            tokio::time::sleep(ms(300)).await;
            data.set("at", "body");
            if data.get("rival").is_some() {
                data.set("polled late", "yes");
                return;
            }
        }
    };
    // What the attribute and `run` do, with the guard in hand for its token.
    let result: Result<(), _> = run(&guard, body).await;
    data.set("caller", if result.is_err_and(|error| error.is_lost()) { "lost" } else { "?" });
    let written = data.write_fenced("account", guard.fencing_token(), "late");
    data.set("late write", if written { "accepted" } else { "refused" });
    assert_lost(guard.release().await);
    // Whatever was sent is answered before the process ends.
    let report = manager.close(LONG).await;
    assert!(report.is_complete(), "{report:?}");
}

/// The pause comes between the check and the write, where no lock can look again.
#[tokio::test]
async fn f5_a_write_that_a_pause_delayed_past_the_lease_is_refused_by_its_fence() {
    if in_fork() {
        return f5_child().await;
    }
    let server = RedisServer::start();
    let (rival, data) = (connect(&server.url()).await, Data::of(&server));
    let env = environment(&server);
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let child = fork_self(this_test!(), &env);
    data.wait_until_is("state", "checked");
    child.stop();
    let guard = rival.lock("k").ttl(LONG).wait(30 * SECOND).acquire().await.expect("expired");
    data.set("unfenced", "rival");
    assert!(data.write_fenced("fenced", guard.fencing_token(), "rival"));
    data.run::<()>(&["RPUSH", "go on", "now"]);
    child.cont();
    child.join();
    assert_eq!(data.read_fenced("fenced").as_deref(), Some("rival"));
    assert_eq!(data.get("unfenced").as_deref(), Some("late"), "nothing was written late");
}

async fn f5_child() {
    let data = Data::of_parent();
    let manager = distlock::manager().expect("of the environment");
    let guard = manager.lock("k").ttl(ms(300)).acquire().await.expect("granted");
    assert!(guard.is_held());
    data.set("state", "checked");
    data.run::<Vec<String>>(&["BLPOP", "go on", "60"]);
    data.set("unfenced", "late");
    assert!(!data.write_fenced("fenced", guard.fencing_token(), "late"));
    assert!(!guard.is_held());
}

/// The only thread of the caller's runtime is blocked: renewals go on without it.
#[tokio::test]
async fn f6_a_blocked_runtime_does_not_lose_the_lock() {
    let server = RedisServer::start();
    let (manager, rival) = (connect(&server.url()).await, connect(&server.url()).await);
    let body = async {
        let before = owner(&server, "k");
        std::thread::sleep(3 * SECOND);
        tokio::task::yield_now().await;
        (before, owner(&server, "k"))
    };
    let (before, after) =
        manager.lock("k").ttl(2 * SECOND).run(body).await.expect("held throughout");
    assert!(before.is_some());
    assert_eq!(before, after);
    rival.lock("k").acquire().await.expect("free now").release().await.expect("it was held");
}

/// Blocked, and the network frozen as well: lost at the deadline, not polled after it, and the
/// renewals that arrive at last bring nothing back.
#[tokio::test]
async fn f6_a_blocked_runtime_does_not_keep_a_lost_lock() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = LockManager::connect(&proxy.url()).await.expect("connect");
    let rival = connect(&server.url()).await;
    let polled_again = AtomicBool::new(false);
    let body = async {
        proxy.set(Mode::Freeze);
        std::thread::sleep(SECOND);
        tokio::task::yield_now().await;
        polled_again.store(true, SeqCst);
    };
    assert_lost(manager.lock("k").ttl(ms(400)).run(body).await);
    assert!(!polled_again.load(SeqCst));
    let guard = rival.lock("k").ttl(LONG).wait(30 * SECOND).acquire().await.expect("expired");
    let owner_before = owner(&server, "k");
    proxy.set(Mode::Pass);
    settle(&manager).await;
    assert_eq!(owner(&server, "k"), owner_before);
    assert!(ttl_of(&server, "k") > 60_000);
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
}

/// The server extends the lock and cannot say so: the holder goes by the last answer.
#[tokio::test]
async fn f7_a_renewal_without_an_answer_does_not_move_the_deadline() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = LockManager::connect(&proxy.url()).await.expect("connect");
    let unheard = AtomicBool::new(false);
    let body = async {
        let mut last = i64::MAX;
        let mut is_renewed = || std::mem::replace(&mut last, ttl_of(&server, "k")) < last;
        // The first renewal makes its connection; those after it go out on that.
        wait_for("a renewal", async || is_renewed()).await;
        proxy.set(Mode::DropDown);
        wait_for("a renewal that nobody hears of", async || is_renewed()).await;
        unheard.store(true, SeqCst);
        std::future::pending::<()>().await;
    };
    assert_lost(manager.lock("k").ttl(3 * SECOND).run(body).await);
    assert!(unheard.load(SeqCst), "no renewal arrived, and the loss shows nothing");
    proxy.set(Mode::Pass);
    nothing_is_left(&server);
}

/// The same where every answer to a renewal is lost, and then one is not.
#[tokio::test]
async fn f7_a_later_answer_moves_the_deadline_after_all() {
    let (manager, network) = Faults::as_remote().start().expect("in memory");
    let lossy = || Some(Script::seeded(7).lost(100));
    let guard = manager.lock("k").ttl(3 * SECOND).acquire().await.expect("granted");
    network.script(lossy());
    wait_for("two renewals nobody heard of", async || network.renewals() >= 2).await;
    network.script(None);
    let start = Instant::now();
    while start.elapsed() < 4 * SECOND {
        assert!(guard.is_held(), "lost after {:?}", start.elapsed());
        tokio::time::sleep(ms(10)).await;
    }
    network.script(lossy());
    guard.lost().await;
    network.script(None);
    assert_lost(guard.release().await);
}

/// An operator deletes the key and another process takes the lock: the renewal finds another token.
/// Fault: A10.
#[tokio::test]
async fn f8_a_renewal_after_the_loss_neither_takes_the_lock_back_nor_extends_it() {
    let server = RedisServer::start();
    let (manager, rival) = (connect(&server.url()).await, connect(&server.url()).await);
    for on_lost in [OnLost::Cancel, OnLost::Continue] {
        let running = AtomicBool::new(false);
        let steps = AtomicU32::new(0);
        let body = async {
            let _running = Running::new(&running);
            // Long enough for several renewals after the loss, if there were any.
            while steps.fetch_add(1, SeqCst) < 30 {
                tokio::time::sleep(ms(50)).await;
            }
        };
        let holder = manager.lock("k").ttl(ms(600)).on_lost(on_lost).run(body);
        let thief = async {
            wait_for("the body runs", async || running.load(SeqCst)).await;
            server.cli::<()>(&["DEL", &stored("k")]);
            let request = rival.lock("k").ttl(LONG).renew(false);
            let guard = request.wait(30 * SECOND).acquire().await.expect("free");
            (guard, owner(&server, "k"))
        };
        let (result, (guard, owner_before)) = tokio::join!(holder, thief);
        if on_lost == OnLost::Cancel {
            assert_lost(result);
        } else {
            result.expect("it runs to its end");
        }
        settle(&manager).await;
        assert_eq!(owner(&server, "k"), owner_before);
        assert!(ttl_of(&server, "k") > 60_000);
        assert!(guard.is_held());
        guard.release().await.expect("it was held");
    }
}
