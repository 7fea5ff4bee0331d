//! A: the server dies, stops, loses its data, or its keys are tampered with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockManager};
use distlock_testkit::{
    LONG, Mode, Proxy, RedisServer, assert_lost, backend, clients, connect, connections, ms, owner,
    patient, patient_builder, queue, runs, stored, wait_for, wait_until, wait_within, whole_text,
};
use tokio::task::JoinSet;

use crate::support::{
    BACK, COMMAND_TIMEOUT, Ledger, Watch, connected, freed, impatient, impatient_builder, in_time,
    renewed, works_again,
};

#[tokio::test]
async fn a1_a_restart_with_data_leaves_the_holder_its_lock() {
    let server = RedisServer::builder().durable().start();
    let manager = patient(&server.url()).await;
    let guard = manager.lock("k").ttl(ms(6000)).acquire().await.expect("granted");
    let token = owner(&server, "k").expect("it is held");
    let server = server.blocking(RedisServer::restart).await;
    renewed(&guard).await;
    assert!(guard.is_held());
    assert_eq!(owner(&server, "k"), Some(token));
    guard.release().await.expect("it was held");
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn a1_no_update_is_lost_over_restarts_with_data() {
    let mut server = RedisServer::builder().durable().start();
    let (ledger, over) = (Arc::new(Ledger::default()), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let manager = impatient(&server.url()).await;
        for _ in 0..3 {
            let (manager, ledger, over) = (manager.clone(), ledger.clone(), over.clone());
            tasks.spawn(async move {
                while !over.load(SeqCst) {
                    let request = manager.lock("k").ttl(ms(500)).wait(LONG);
                    if request.run(ledger.add_one()).await.is_err() {
                        tokio::time::sleep(ms(5)).await;
                    }
                }
            });
        }
    }
    for round in 0..5 {
        let enough = ledger.written() + 10 + round;
        wait_for("updates go on", async || ledger.written() >= enough).await;
        server = server.blocking(RedisServer::restart).await;
    }
    over.store(true, SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    ledger.nothing_was_lost();
    wait_until("no key is left", || server.lock_keys().is_empty());
}

#[tokio::test]
async fn a2_data_loss_is_noticed_and_fences_still_grow() {
    let server = RedisServer::start();
    let (manager, other) = (patient(&server.url()).await, patient(&server.url()).await);
    let mut last = 0;
    for manager in [&manager, &other] {
        let guard = manager.lock("k").acquire().await.expect("granted");
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        guard.release().await.expect("it was held");
    }

    let watch = Arc::new(Watch::default());
    let call = tokio::spawn({
        let (manager, watch) = (manager.clone(), watch.clone());
        let request = manager.lock("held").ttl(ms(6000));
        async move { request.run(watch.endless(&manager, "held")).await }
    });
    watch.polled(10).await;
    let server = server.blocking(RedisServer::restart_empty).await;
    let error = tokio::time::timeout(LONG, call).await.expect("it hears of it").expect("no panic");
    let error = error.expect_err("the lock is gone");
    assert!(error.is_lost(), "{error}");
    // By the answer to a renewal, not by its clock.
    assert!(error.to_string().contains("free or with another owner"), "{error}");
    watch.ended_in_time();

    // Also those that know nothing of the time before.
    let new = patient(&server.url()).await;
    for manager in [&new, &manager, &other, &new] {
        let mut guard = None;
        wait_for("a lock", async || {
            guard = manager.lock("k").ttl(LONG).acquire().await.ok();
            guard.is_some()
        })
        .await;
        let guard = guard.expect("granted");
        assert!(guard.fencing_token() > last, "{} after {last}", guard.fencing_token());
        last = guard.fencing_token();
        guard.release().await.expect("it was held");
    }
    // Nor did the renewals make the lock again that was lost.
    assert!(server.lock_keys().is_empty());
}

/// A restarted server counts its clients from the start: the name of a connection of before may be
/// another client's now.
#[tokio::test]
async fn a2_clients_of_a_restarted_server_are_left_alone() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = impatient(&proxy.url()).await;
    let id = |client: &mut redis::Connection| {
        redis::cmd("CLIENT").arg("ID").query::<u64>(client).expect("its number")
    };
    let before = id(&mut server.eye());
    proxy.set(Mode::Reset);
    let server = server.blocking(RedisServer::restart_empty).await;
    // One of them has the number that the manager's connection had.
    let mut others = vec![server.eye()];
    assert!(id(&mut others[0]) < before, "the server did not count from the start");
    while others.last_mut().is_some_and(|last| id(last) < before) {
        others.push(server.eye());
    }
    proxy.set(Mode::Pass);
    works_again(&manager, &server).await;
    for other in &mut others {
        redis::cmd("PING").query::<()>(other).expect("its connection is still there");
    }
}

/// A manager that gives up on commands soon, and on connections never.
async fn hasty(server: &RedisServer) -> LockManager {
    connected(impatient_builder(&server.url()).connect_timeout(LONG)).await
}

/// Calls that give up, and calls that are given up, while nothing answers.
async fn give_up(manager: &LockManager) {
    let mut calls = JoinSet::new();
    for n in 0..10 {
        let wait = if n % 2 == 0 { Duration::ZERO } else { 2 * COMMAND_TIMEOUT };
        let request = manager.lock(format!("given-up-{n}")).ttl(LONG).wait(wait);
        calls.spawn(async move {
            let kind = backend(in_time(wait, request.acquire()).await);
            assert!(matches!(kind, BackendKind::TimedOut | BackendKind::Unreachable), "{kind:?}");
        });
        let request = manager.lock(format!("cancelled-{n}")).ttl(LONG);
        calls.spawn(async move {
            let early = tokio::time::timeout(COMMAND_TIMEOUT / 10, request.acquire()).await;
            assert!(!matches!(early, Ok(Ok(_))), "granted without an answer");
        });
    }
    while let Some(call) = calls.join_next().await {
        call.expect("it ends in time");
    }
}

#[tokio::test]
async fn a3_a_stopped_server_leaves_nothing_when_it_goes_on() {
    let server = RedisServer::start();
    let manager = hasty(&server).await;
    let guard = manager.lock("held").ttl(LONG).wait(LONG).acquire().await.expect("granted");
    server.stop();
    give_up(&manager).await;
    // What was sent runs now; what gives it back was sent behind it.
    server.cont();
    let probe = async || manager.lock("probe").ttl(LONG).acquire().await.is_ok();
    wait_for("the manager works again", probe).await;
    let held = [stored("held")];
    wait_within(BACK, "only what is held is left", || {
        server.lock_keys().iter().all(|key| held.contains(key))
    });
    assert!(guard.is_held());
    freed(guard).await;
    works_again(&manager, &server).await;
}

/// The server has never seen the script that frees, so what was sent behind the acquire does
/// nothing; and when the server goes on, the caller could long think the lock expired.
#[tokio::test]
async fn a3_a_server_stopped_for_longer_than_the_ttl_leaves_nothing() {
    let server = RedisServer::start();
    let manager = impatient(&server.url()).await;
    let (ttl, sets) = (ms(4000), runs(&server, "set"));
    server.stop();
    let start = Instant::now();
    backend(manager.lock("ghost").ttl(ttl).acquire().await);
    tokio::time::sleep((ttl + 2 * COMMAND_TIMEOUT).saturating_sub(start.elapsed())).await;
    server.cont();
    wait_until("the acquire has run", || runs(&server, "set") > sets);
    // In less than its ttl, by which it would be gone in the end.
    wait_within(ttl * 3 / 4, "no key is left", || server.lock_keys().is_empty());
}

#[tokio::test]
async fn a3_stopped_the_body_stops_at_its_deadline() {
    let server = RedisServer::start();
    let manager = impatient(&server.url()).await;
    let watch = Watch::default();
    let call = async {
        let request = manager.lock("k").ttl(ms(3000)).wait(LONG);
        let result = request.run(watch.endless(&manager, "k")).await;
        watch.ended_in_time();
        assert_lost(result);
    };
    let stop = async {
        watch.renewed().await;
        server.stop();
    };
    tokio::join!(call, stop);
    server.cont();
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn a4_a_slow_command_costs_no_lock_and_leaves_nothing() {
    let server = RedisServer::builder().args(["--enable-debug-command", "yes"]).start();
    let manager = hasty(&server).await;
    // A renewal, after a third of it, falls into the sleep.
    let request = manager.lock("held").ttl(ms(15_000)).wait(LONG);
    let guard = request.acquire().await.expect("granted");
    let mut slow = server.eye();
    let sleep = redis::cmd("DEBUG").arg("SLEEP").arg(6).get_packed_command();
    slow.send_packed_command(&sleep).expect("sent");
    // One may still come before it.
    wait_for("the server sleeps", async || manager.inspect("k").await.is_err()).await;
    give_up(&manager).await;
    slow.recv_response().expect("it has slept");
    renewed(&guard).await;
    freed(guard).await;
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn a5_a_script_without_end_is_waited_for_and_not_killed() {
    let server = RedisServer::builder().args(["--busy-reply-threshold", "50"]).start();
    let manager = patient(&server.url()).await;
    let guard = manager.lock("held").ttl(ms(10_000)).acquire().await.expect("granted");
    let mut endless = server.eye();
    let endless = thread::spawn(move || {
        let script = redis::cmd("EVAL").arg("while true do end").arg(0).to_owned();
        script.query::<()>(&mut endless).expect_err("it is killed").to_string()
    });
    let mut probe = server.eye();
    wait_until("the server is busy", || redis::cmd("PING").query::<()>(&mut probe).is_err());

    let error = manager.lock("k").ttl(LONG).acquire().await.expect_err("the server is busy");
    assert!(whole_text(&error).contains("BUSY"), "{error:?}");
    assert_eq!(backend::<()>(Err(error)), BackendKind::Other);
    let waiter = tokio::spawn(manager.lock("k").ttl(LONG).wait(LONG).acquire());
    tokio::task::yield_now().await;
    let pinged = redis::cmd("PING").query::<()>(&mut probe);
    assert_eq!(pinged.expect_err("the script still runs").code(), Some("BUSY"));
    redis::cmd("SCRIPT").arg("KILL").query::<()>(&mut probe).expect("it wrote nothing");
    assert!(endless.join().expect("no panic").contains("SCRIPT KILL"));

    drop(waiter.await.expect("no panic").expect("granted as soon as there are answers"));
    assert!(guard.is_held());
    guard.release().await.expect("it is held to the end");
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn a6_a_loading_server_is_no_answer_and_is_waited_for() {
    // Every key takes a while to load, so that loading can be seen.
    let server = RedisServer::builder().durable().args(["--key-load-delay", "200"]).start();
    let manager = patient(&server.url()).await;
    let mut data = redis::pipe();
    for n in 0..10_000 {
        data.cmd("SET").arg(format!("data-{n}")).arg(n).ignore();
    }
    data.query::<()>(&mut server.eye()).expect("SET");
    let restart = tokio::spawn(server.blocking(RedisServer::restart));
    let mut seen = String::new();
    wait_for("the server loads", async || {
        if let Err(error) = manager.lock("k").ttl(LONG).acquire().await {
            seen = whole_text(&error);
            backend::<()>(Err(error));
        }
        seen.contains("loading")
    })
    .await;
    let guard = manager.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("once it is loaded");
    guard.release().await.expect("it was held");
    let server = restart.await.expect("no panic");
    assert!(owner(&server, "k").is_none());
}

#[tokio::test]
async fn a7_an_orderly_shutdown_is_an_outage_and_the_server_is_found_again() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let sets = runs(&server, "set");
    // Some are under way when it happens.
    let mut calls = JoinSet::new();
    for n in 0..10 {
        let manager = manager.clone();
        calls.spawn(async move {
            loop {
                let call = manager.lock(n.to_string()).ttl(LONG).acquire().await;
                let Ok(guard) = call else { return backend(call) };
                let freed = guard.release().await;
                if freed.is_err() {
                    return backend(freed);
                }
            }
        });
    }
    wait_for("calls are under way", async || runs(&server, "set") > sets + 50).await;
    let mut last = server.eye();
    redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut last).expect_err("nobody answers");
    while let Some(kind) = calls.join_next().await {
        let kind = kind.expect("no panic");
        assert!(matches!(kind, BackendKind::Unreachable | BackendKind::TimedOut), "{kind:?}");
    }
    let server = server.blocking(RedisServer::restart).await;
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn a8_connections_closed_by_the_server_do_not_show() {
    let server = RedisServer::start();
    let manager = impatient(&server.url()).await;
    let mut hand = server.eye();
    for n in 0..30 {
        let skip = if n % 2 == 0 { "yes" } else { "no" };
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
        let call = manager.lock("k").ttl(LONG).wait(LONG).acquire();
        // Before the call, and while it is under way.
        if skip == "yes" {
            kill.query::<()>(&mut hand).expect("killed");
        }
        let call = tokio::spawn(call);
        if skip == "no" {
            tokio::task::yield_now().await;
            kill.query::<()>(&mut hand).expect("killed");
        }
        let guard = call.await.expect("no panic").expect("it goes on on a new connection");
        // The lease may be gone only if the server says so, which it does not.
        drop(guard);
        wait_within(BACK, "no key is left", || server.lock_keys().is_empty());
    }
    assert!(connections(&server) <= 2);
}

#[tokio::test]
async fn a8_idle_connections_closed_by_the_server_are_made_again_before_they_are_missed() {
    let server = RedisServer::builder().args(["--timeout", "1"]).start();
    // Its subscription is there, and will not be closed: what is new is for commands.
    let manager = connect(&server.url()).await;
    for _ in 0..2 {
        let before = clients(&server);
        wait_until("the idle connection was closed and made again", || {
            !clients(&server).is_subset(&before)
        });
        let guard = manager.lock("k").ttl(LONG).acquire().await.expect("granted at once");
        guard.release().await.expect("it was held");
    }
}

#[tokio::test]
async fn a9_a_flushed_server_is_a_loss_and_the_release_says_so() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    // Found out by a renewal, and by the release.
    let renewed = manager.lock("renewed").ttl(ms(600)).acquire().await.expect("granted");
    let fixed = manager.lock("fixed").ttl(LONG).renew(false).acquire().await.expect("granted");
    server.cli::<()>(&["FLUSHALL"]);
    tokio::time::timeout(LONG, renewed.lost()).await.expect("a renewal finds out");
    assert_lost(renewed.release().await);
    assert_lost(fixed.release().await);
    assert!(server.lock_keys().is_empty());
}

/// The counter is lost under live connections, one of which was never used for a lock.
#[tokio::test]
async fn a9_a_flush_lowers_no_fencing_token_of_a_manager_without_a_past() {
    let server = RedisServer::start();
    let (first, second) = (patient(&server.url()).await, patient(&server.url()).await);
    let guard = first.lock("k").ttl(LONG).acquire().await.expect("granted");
    let before = guard.fencing_token();
    guard.release().await.expect("it was held");
    server.cli::<()>(&["FLUSHALL"]);
    let guard = second.lock("k").ttl(LONG).acquire().await.expect("granted");
    assert!(guard.fencing_token() > before, "{} after {before}", guard.fencing_token());
    guard.release().await.expect("it was held");
}

#[tokio::test]
async fn a11_the_holder_gives_a_lock_without_end_its_end_back() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let guard = manager.lock("k").ttl(ms(6000)).acquire().await.expect("granted");
    assert_eq!(server.cli::<i64>(&["PERSIST", &stored("k")]), 1);
    wait_until("it has an end again", || server.cli::<i64>(&["PTTL", &stored("k")]) > 0);
    guard.release().await.expect("it is held to the end");
}

/// A key without end is not ours, and no message says when it goes.
#[tokio::test]
async fn a11_a_waiter_looks_at_a_foreign_key_without_end() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    server.cli::<()>(&["SET", &stored("k"), "somebody else's"]);
    let error = manager.lock("k").acquire().await.expect_err("it is taken");
    assert!(error.is_busy() && error.lease_remaining().is_none(), "{error}");
    let waiter = tokio::spawn(manager.lock("k").wait(2 * LONG).acquire());
    wait_for("it stands in the queue", async || queue(&server, "k").len() == 1).await;
    let looks = runs(&server, "evalsha");
    wait_for("it looks", async || runs(&server, "evalsha") > looks).await;
    server.cli::<()>(&["DEL", &stored("k")]);
    let guard = tokio::time::timeout(LONG, waiter).await.expect("it sees that it is gone");
    guard.expect("no panic").expect("granted").release().await.expect("it was held");
}

#[tokio::test]
async fn a12_another_type_at_the_key_is_an_error_that_names_the_lock() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    server.cli::<()>(&["RPUSH", &stored("k"), "x"]);
    for wait in [Duration::ZERO, LONG] {
        let call = manager.lock("k").name("invoices").wait(wait).acquire();
        let error = tokio::time::timeout(LONG / 2, call).await.expect("it is not waited for");
        let error = error.expect_err("no lock can be there");
        assert!(matches!(error, LockError::Backend { kind: BackendKind::Other, .. }), "{error:?}");
        let text = whole_text(&error);
        assert!(text.contains("invoices") && text.contains("WRONGTYPE"), "{text}");
    }
    assert_eq!(server.cli::<String>(&["TYPE", &stored("k")]), "list", "it is left alone");
    let elsewhere = patient_builder(&server.url()).prefix("elsewhere");
    let manager = elsewhere.connect().await.expect("connect");
    drop(manager.lock("k").acquire().await.expect("granted"));
}
