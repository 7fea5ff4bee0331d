//! I: many at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use distlock_testkit::{
    LONG, RedisServer, connect, connections, held, in_line, ms, queue, runs, served, stand,
    wait_until, waits,
};
use tokio::task::JoinSet;

use crate::support::{freed, impatient, renewed, works_again};

const MANY: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_ten_thousand_waiters_stand_at_one_place_and_are_served_in_order() {
    let server = RedisServer::start();
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = held(&holder, "k").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let (mut tasks, before) = (JoinSet::new(), runs(&server, "zadd"));
    for n in 0..MANY {
        let (request, order) = (waiter.lock("k").ttl(LONG).wait(2 * LONG), order.clone());
        let call = in_line(async move {
            let guard = request.acquire().await.expect("granted");
            order.lock().expect("no panic").push((Instant::now(), n));
            guard.release().await.expect("it was held");
        });
        tasks.spawn(call.await);
    }
    stand(&server, "k", 1);
    let (start, commands) = (Instant::now(), runs(&server, "evalsha"));
    guard.release().await.expect("it was held");
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    // One way into the queue, and looks every few seconds.
    let entered = runs(&server, "zadd") - before;
    let seconds = start.elapsed().as_secs();
    assert!(entered <= 3 + seconds, "asked {entered} times in {seconds} s");
    let commands = runs(&server, "evalsha") - commands;
    assert!(commands < 100 + 10 * seconds, "{commands} commands for {MANY} hand-overs");
    let order = std::mem::take(&mut *order.lock().expect("no panic"));
    assert_eq!(order.len(), MANY);
    // A waiter that does not take the lock within a second is passed over: that happens on a stalled machine.
    let times = std::iter::once(start).chain(order.iter().map(|(at, _)| *at));
    let pauses = times.clone().zip(times.skip(1)).map(|(one, next)| (next - one).as_secs());
    let still = pauses.sum::<u64>();
    let jumps = order.windows(2).filter(|pair| pair[0].1 > pair[1].1).count() as u64;
    assert!(jumps <= still, "not in order: {jumps} jumps, {still} s without a hand-over");
    works_again(&waiter, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i2_ten_thousand_waiters_of_twenty_processes_are_served() {
    const PROCESSES: usize = 20;
    let server = RedisServer::start();
    let holder = connect(&server.url()).await;
    let guard = held(&holder, "k").await;
    let mut managers = Vec::new();
    let mut tasks = JoinSet::new();
    for n in 0..PROCESSES {
        let manager = connect(&server.url()).await;
        for _ in 0..MANY / PROCESSES {
            let request = manager.lock("k").ttl(LONG).wait(2 * LONG);
            // At one place only if all are in line before the next process comes.
            tasks.spawn(
                in_line(async move {
                    request.acquire().await.expect("granted").release().await.expect("it was held");
                })
                .await,
            );
        }
        stand(&server, "k", n + 1);
        managers.push(manager);
    }
    let channels: Vec<String> = server.cli(&["PUBSUB", "CHANNELS"]);
    assert_eq!(channels.len(), PROCESSES + 1);
    assert!(connections(&server) <= 3 * (PROCESSES + 1));
    guard.release().await.expect("it was held");
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    works_again(&holder, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i2_processes_that_come_again_and_again_have_the_same_share() {
    const PROCESSES: usize = 5;
    const ALL: u64 = 3000;
    let server = RedisServer::start();
    let holder = connect(&server.url()).await;
    let guard = held(&holder, "k").await;
    let shares: Arc<[AtomicU64; PROCESSES]> = Arc::default();
    let total = |shares: &[AtomicU64]| shares.iter().map(|n| n.load(SeqCst)).sum::<u64>();
    let mut tasks = JoinSet::new();
    for n in 0..PROCESSES {
        let manager = connect(&server.url()).await;
        // The first in line has more tasks than all the others.
        for _ in 0..if n == 0 { 20 } else { 4 } {
            let (manager, shares) = (manager.clone(), shares.clone());
            let work = async move {
                while total(&*shares) < ALL {
                    let request = manager.lock("k").ttl(LONG).wait(LONG);
                    let guard = request.acquire().await.expect("granted");
                    shares[n].fetch_add(1, SeqCst);
                    guard.release().await.expect("it was held");
                }
            };
            // At one place only if all are in line before the next process comes.
            tasks.spawn(in_line(work).await);
        }
        stand(&server, "k", n + 1);
    }
    guard.release().await.expect("it was held");
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let shares: Vec<_> = shares.iter().map(|n| n.load(SeqCst)).collect();
    // Fair is each task's share: a ninth of all for each of the small ones.
    let fair = ALL / 9;
    assert!(shares[1..].iter().all(|share| *share > fair / 3), "{shares:?}, fair is {fair}");
    works_again(&holder, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_renewals_do_not_wait_behind_a_flood_of_calls() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let guard = manager.lock("held").ttl(ms(8000)).acquire().await.expect("granted");
    let over = Arc::new(AtomicBool::new(false));
    let mut flood = JoinSet::new();
    for n in 0..512 {
        let (manager, over) = (manager.clone(), over.clone());
        flood.spawn(async move {
            let mut calls = 0;
            while !over.load(SeqCst) {
                let guard = manager.lock(format!("k-{n}")).ttl(LONG).wait(LONG).acquire().await;
                guard.expect("granted").release().await.expect("it was held");
                calls += 1;
            }
            calls
        });
    }
    for _ in 0..2 {
        renewed(&guard).await;
    }
    over.store(true, SeqCst);
    let mut calls = 0;
    while let Some(task) = flood.join_next().await {
        calls += task.expect("no panic");
    }
    assert!(calls > 1000, "no flood: {calls} calls");
    guard.release().await.expect("it was held all the time");
    works_again(&manager, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i5_those_who_give_up_together_cost_no_command_each() {
    let server = RedisServer::start();
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = held(&holder, "k").await;
    // One at a time of an outer clock, the others by their own.
    let before = runs(&server, "evalsha") + runs(&server, "eval");
    let mut tasks = JoinSet::new();
    for n in 0..MANY {
        let wait = if n % 2 == 0 { LONG } else { ms(10_000) };
        let request = waiter.lock("k").ttl(LONG).wait(wait);
        tasks.spawn(async move {
            let call = tokio::time::timeout(ms(10_500), request.acquire()).await;
            assert!(call.is_err() || call.is_ok_and(|call| call.is_err_and(|e| e.is_busy())));
        });
    }
    stand(&server, "k", 1);
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    wait_until("nobody stands there", || queue(&server, "k").is_empty());
    let commands = runs(&server, "evalsha") + runs(&server, "eval") - before;
    assert!(commands < 50, "{commands} commands");
    guard.release().await.expect("it was held");
    works_again(&waiter, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_a_server_without_time_is_not_pressed() {
    let server = RedisServer::builder().args(["--enable-debug-command", "yes"]).start();
    let holder = connect(&server.url()).await;
    let guard = held(&holder, "k").await;
    let waiters = [impatient(&server.url()).await, impatient(&server.url()).await];
    let first = waits(&waiters[0], "k");
    stand(&server, "k", 1);
    let second = waits(&waiters[1], "k");
    stand(&server, "k", 2);
    let before = runs(&server, "evalsha");
    let mut hand = server.eye();
    // Each longer than they wait for an answer, with hardly a pause between two.
    let busy = tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        while start.elapsed() < ms(4000) {
            redis::cmd("DEBUG").arg("SLEEP").arg("0.5").query::<()>(&mut hand).expect("it sleeps");
        }
        start.elapsed().as_secs()
    });
    // They look as if they had been called.
    for token in queue(&server, "k") {
        let (process, _) = token.split_once('.').expect("a token");
        let text = format!("g {token} distlock:lock:{{k}}");
        server.cli::<u64>(&["PUBLISH", &format!("distlock:wake:{process}"), &text]);
    }
    let seconds = busy.await.expect("no panic");
    let commands = runs(&server, "evalsha") - before;
    // Less than three a second and process: pauses begin short, and become longer.
    assert!(commands <= 6 * (seconds + 1), "{commands} commands in {seconds} s");
    guard.release().await.expect("it was held");
    for waiting in [first, second] {
        freed(served(waiting).await).await;
    }
    works_again(&holder, &server).await;
}
