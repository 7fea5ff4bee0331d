//! Waiting: first come, first served, on the terms each caller asked for, and for as long as it said.
//!
//! Each manager is a process to all the others: they know of each other through the server only.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distlock::{LockError, LockGuard, LockManager, LockRequest, LockStatus};
use distlock_testkit::{
    LONG, RedisServer, connect, connect_all, held, in_line, ms, nothing_is_left, queue, stand,
    wait_for, wait_until,
};
use tokio::task::JoinSet;

/// A message about a new waiter has arrived by then, and so has everything that is still let in in front of
/// that waiter.
const SEALED: Duration = ms(1000);

fn request(manager: &LockManager, key: &str) -> LockRequest {
    manager.lock(key).ttl(LONG).wait(LONG)
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Order<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone + Send + 'static> Order<T> {
    fn note(&self, what: T) {
        self.0.lock().expect("no panic").push(what);
    }

    fn all(&self) -> Vec<T> {
        self.0.lock().expect("no panic").clone()
    }
}

/// Waits for the lock in a task, and notes when it was served.
async fn join_line(
    tasks: &mut JoinSet<()>,
    order: &Order<&'static str>,
    request: LockRequest,
    name: &'static str,
) {
    let order = order.clone();
    let waiting = in_line(async move { request.run(async { order.note(name) }).await }).await;
    tasks.spawn(async { waiting.await.expect("served") });
}

async fn all(mut tasks: JoinSet<()>) {
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_come_first_served_over_processes_and_tasks() {
    let server = RedisServer::start();
    let [holder, a, b, c] = connect_all(&server.url()).await;
    let guard = held(&holder, "k").await;
    let (mut tasks, order) = (JoinSet::new(), Order::default());
    join_line(&mut tasks, &order, request(&a, "k"), "a1").await;
    join_line(&mut tasks, &order, request(&a, "k"), "a2").await;
    stand(&server, "k", 1);
    join_line(&mut tasks, &order, request(&b, "k"), "b1").await;
    stand(&server, "k", 2);
    join_line(&mut tasks, &order, request(&b, "k"), "b2").await;
    tokio::time::sleep(SEALED).await;
    // Not to its neighbours: others have come since.
    join_line(&mut tasks, &order, request(&a, "k"), "a3").await;
    stand(&server, "k", 3);
    join_line(&mut tasks, &order, request(&c, "k"), "c1").await;
    stand(&server, "k", 4);
    // Nor in the process that holds it.
    tokio::time::sleep(SEALED).await;
    join_line(&mut tasks, &order, request(&holder, "k"), "holder").await;
    stand(&server, "k", 5);
    guard.release().await.expect("it was held");
    all(tasks).await;
    assert_eq!(order.all(), ["a1", "a2", "b1", "b2", "a3", "c1", "holder"]);
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomers_do_not_overtake() {
    let server = RedisServer::start();
    let [holder, a, b, c, newcomer] = connect_all(&server.url()).await;
    let guard = held(&holder, "k").await;
    let (mut tasks, order) = (JoinSet::new(), Order::default());
    for (n, (manager, name)) in
        [(&a, "a"), (&b, "b"), (&c, "c"), (&a, "a"), (&b, "b")].into_iter().enumerate()
    {
        tokio::time::sleep(SEALED).await;
        join_line(&mut tasks, &order, request(manager, "k"), name).await;
        stand(&server, "k", n + 1);
    }
    let (over, tries) =
        (Arc::new(AtomicBool::new(false)), Arc::new(std::sync::atomic::AtomicU64::new(0)));
    let trying = tokio::spawn({
        let (order, over, tries) = (order.clone(), over.clone(), tries.clone());
        async move {
            while !over.load(SeqCst) {
                // Straight for the lock, with no other caller of its process in line.
                let guard = newcomer.lock("k").ttl(LONG).try_acquire().await.expect("an answer");
                tries.fetch_add(1, SeqCst);
                if let Some(guard) = guard {
                    order.note("newcomer");
                    guard.release().await.expect("it was held");
                }
            }
        }
    });
    wait_until("it tries", || tries.load(SeqCst) > 3);
    guard.release().await.expect("it was held");
    all(tasks).await;
    let served = order.all();
    over.store(true, SeqCst);
    trying.await.expect("no panic");
    // The last one may have let go before it is noted here.
    let before: Vec<_> = served.iter().copied().take(5).collect();
    assert_eq!(before, ["a", "b", "c", "a", "b"]);
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_wait_ends_in_its_own_time() {
    const WAIT: Duration = ms(400);
    let server = RedisServer::start();
    let [holder, other] = connect_all(&server.url()).await;
    let guard = held(&holder, "k").await;
    // One that stays, so that those that come and go are not alone in their line.
    let staying = tokio::spawn(request(&other, "k").acquire());
    stand(&server, "k", 1);
    let mut calls = JoinSet::new();
    for manager in [&holder, &other] {
        for keys in [&["k"][..], &["free", "k"], &["k", "z"]] {
            let request = manager.lock_all(keys.iter().copied()).ttl(LONG).wait(WAIT);
            calls.spawn(async move {
                let start = Instant::now();
                (request.acquire().await, start.elapsed())
            });
        }
    }
    while let Some(call) = calls.join_next().await {
        let (result, took) = call.expect("no panic");
        let error = result.expect_err("it is held all the time");
        assert!(error.is_busy(), "{error}");
        assert!(took >= WAIT, "it gave up after {took:?}");
        // Less than a look or a command may take; it is some milliseconds.
        assert!(took < WAIT + ms(3500), "it gave up only after {took:?}");
    }
    guard.release().await.expect("it was held");
    drop(staying.await.expect("no panic").expect("granted"));
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_taken_away_is_lost_at_once_and_goes_to_the_next() {
    let server = RedisServer::start();
    let [holder, waiter, operator] = connect_all(&server.url()).await;
    // Its next renewal is minutes away.
    let guard = holder.lock("k").ttl(20 * LONG).acquire().await.expect("it is free");
    let behind = tokio::spawn(request(&holder, "k").acquire());
    let waiting = tokio::spawn(request(&waiter, "k").acquire());
    stand(&server, "k", 1);
    assert!(operator.force_release("k").await.expect("an answer"));
    tokio::time::timeout(LONG, guard.lost()).await.expect("its holder is told");
    assert!(!guard.is_held());
    let serve = async |waiting: tokio::task::JoinHandle<Result<LockGuard, LockError>>| {
        let guard = tokio::time::timeout(LONG, waiting).await.expect("its turn");
        let guard = guard.expect("no panic");
        guard.expect("granted").release().await.expect("it was held");
    };
    tokio::join!(serve(waiting), serve(behind));
    assert!(guard.release().await.expect_err("it was lost").is_lost());
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_are_waited_for_in_the_same_line() {
    let server = RedisServer::start();
    let [holder, a, b, c] = connect_all(&server.url()).await;
    let (first, second) = (held(&holder, "1").await, held(&holder, "2").await);
    let (mut tasks, order) = (JoinSet::new(), Order::default());
    let both = |manager: &LockManager| manager.lock_all(["2", "1"]).ttl(LONG).wait(LONG);
    join_line(&mut tasks, &order, request(&a, "1"), "a: 1").await;
    stand(&server, "1", 1);
    join_line(&mut tasks, &order, both(&b), "b: 1 and 2").await;
    stand(&server, "1", 2);
    join_line(&mut tasks, &order, request(&c, "1"), "c: 1").await;
    stand(&server, "1", 3);
    first.release().await.expect("it was held");
    // b has the first and waits for the second: the callers behind it wait as well.
    stand(&server, "2", 1);
    join_line(&mut tasks, &order, request(&a, "2"), "a: 2").await;
    stand(&server, "2", 2);
    assert_eq!(order.all(), ["a: 1"]);
    second.release().await.expect("it was held");
    all(tasks).await;
    let served = order.all();
    assert_eq!(served[..2], ["a: 1", "b: 1 and 2"]);
    assert_eq!(served.len(), 4);
    nothing_is_left(&server);
}

/// Two at a time of three, in every order and from every process: no deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_at_once_lose_no_update_and_end() {
    let server = RedisServer::start();
    let managers: [LockManager; 3] = connect_all(&server.url()).await;
    let values: Arc<[Mutex<u64>; 3]> = Arc::default();
    let mut tasks = JoinSet::new();
    for n in 0..9 {
        let (manager, values) = (managers[n % 3].clone(), values.clone());
        tasks.spawn(async move {
            for round in 0..8 {
                let two = [(n + round) % 3, (n + 2 * round + 1) % 3];
                let keys = two.map(|key| key.to_string());
                let add = async {
                    let read = two.map(|key| *values[key].lock().expect("no panic"));
                    tokio::time::sleep(ms(1)).await;
                    for (key, read) in two.into_iter().zip(read) {
                        *values[key].lock().expect("no panic") = read + 1;
                    }
                };
                manager.lock_all(keys).ttl(LONG).wait(2 * LONG).run(add).await.expect("granted");
            }
        });
    }
    all(tasks).await;
    let mut expected = [0; 3];
    for (n, round) in (0..9).flat_map(|n| (0..8).map(move |round| (n, round))) {
        let (one, other) = ((n + round) % 3, (n + 2 * round + 1) % 3);
        expected[one] += 1;
        expected[other] += u64::from(one != other);
    }
    let values = [0, 1, 2].map(|key: usize| *values[key].lock().expect("no panic"));
    assert_eq!(values, expected);
    nothing_is_left(&server);
}

/// More than a thousand under one lease: the counter under which they are numbered is drawn anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fencing_tokens_grow_over_every_hand_over() {
    const TASKS: usize = 16;
    const ROUNDS: usize = 200;
    let server = RedisServer::start();
    let [one, other] = connect_all(&server.url()).await;
    let order = Order::default();
    let work = |manager: &LockManager, tasks, rounds| {
        let (manager, order) = (manager.clone(), order.clone());
        async move {
            let each = 0..tasks;
            let mut tasks = JoinSet::new();
            for _ in each {
                let (manager, order) = (manager.clone(), order.clone());
                tasks.spawn(async move {
                    for _ in 0..rounds {
                        let guard = request(&manager, "k").acquire().await.expect("granted");
                        order.note(guard.fencing_token());
                        guard.release().await.expect("it was held");
                    }
                });
            }
            all(tasks).await;
        }
    };
    work(&one, TASKS, ROUNDS).await;
    let alone = order.all().len();
    let calls: String = server.cli(&["INFO", "commandstats"]);
    let sets = calls.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls="));
    let sets: u64 = sets.and_then(|calls| calls.split(',').next()?.parse().ok()).expect("SET");
    assert!(sets < 100, "{sets} times asked of the server");
    tokio::join!(work(&one, TASKS, ROUNDS / 10), work(&other, TASKS, ROUNDS / 10));
    // Without others in its process a holder draws no values that it does not use.
    tokio::join!(work(&one, 1, ROUNDS), work(&other, 1, ROUNDS));
    let tokens = order.all();
    assert_eq!((alone, tokens.len()), (TASKS * ROUNDS, TASKS * ROUNDS * 6 / 5 + 2 * ROUNDS));
    let back = tokens.windows(2).position(|two| two[0] >= two[1]);
    assert_eq!(back, None, "the token after the {back:?}th is not larger");
    nothing_is_left(&server);
}

/// What is left of a lease that lasts `ttl`: drift and a tenth less at most, and no more than the
/// server keeps it.
#[track_caller]
fn assert_lasts(server: &RedisServer, guard: &LockGuard, ttl: Duration) {
    let left = guard.remaining();
    assert!(left <= ttl && left >= ttl.mul_f64(0.7), "{left:?} left of {ttl:?}");
    let stored: u64 = server.cli(&["PTTL", "distlock:lock:{k}"]);
    assert!(ms(stored) + ms(1) >= guard.remaining(), "{stored} ms at the server of {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_in_a_line_has_his_own_terms() {
    let server = RedisServer::start();
    let [holder, manager] = connect_all(&server.url()).await;
    for processes in [[&holder; 2], [&holder, &manager]] {
        let [first, next] = processes;
        let guard = held(first, "k").await;
        let ask = || next.lock("k").wait(LONG);
        let (mut long, mut short) = (
            in_line(ask().ttl(LONG).acquire()).await,
            in_line(ask().ttl(ms(5000)).acquire()).await,
        );
        let mut fixed = in_line(ask().ttl(ms(4000)).renew(false).acquire()).await;
        let mut longer = in_line(ask().ttl(2 * LONG).renew(false).acquire()).await;
        let mut capped = in_line(ask().ttl(LONG).max_hold(ms(500)).acquire()).await;
        let mut kept = in_line(ask().ttl(LONG).min_hold(ms(2000)).acquire()).await;
        let mut last = in_line(ask().ttl(LONG).acquire()).await;
        guard.release().await.expect("it was held");

        let guard = long.as_mut().await.expect("granted");
        assert_lasts(&server, &guard, LONG);
        guard.release().await.expect("it was held");

        let guard = short.as_mut().await.expect("granted");
        assert_lasts(&server, &guard, ms(5000));
        guard.release().await.expect("it was held");

        let guard = fixed.as_mut().await.expect("granted");
        assert_lasts(&server, &guard, ms(4000));
        tokio::time::timeout(LONG, guard.lost()).await.expect("it is not renewed");
        drop(guard);

        let guard = longer.as_mut().await.expect("granted");
        assert_lasts(&server, &guard, 2 * LONG);
        guard.release().await.expect("it was held");

        let guard = capped.as_mut().await.expect("granted");
        assert!(guard.remaining() <= ms(500), "{:?}", guard.remaining());
        tokio::time::timeout(LONG / 2, guard.lost()).await.expect("it was held long enough");
        drop(guard);

        let guard = kept.as_mut().await.expect("granted");
        let taken = Instant::now();
        assert_lasts(&server, &guard, LONG);
        guard.release().await.expect("it was held");

        let guard = last.as_mut().await.expect("granted");
        // Counted from the grant, which was a moment before it was taken.
        assert!(taken.elapsed() > ms(1000), "freed after {:?}", taken.elapsed());
        assert_lasts(&server, &guard, LONG);
        guard.release().await.expect("it was held");
        nothing_is_left(&server);
    }
}

/// Its token is the largest of its locks': the next holder of any of them gets a larger one, also if it
/// gets the lock within the same process without a command to the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_several_locks_is_less_than_all_that_follow() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    for _ in 0..3 {
        let both = manager.lock_all(["1", "2"]).ttl(LONG).acquire().await.expect("free");
        let token = both.fencing_token();
        let next = ["1", "2"].map(|key| tokio::spawn(request(&manager, key).acquire()));
        // They stand behind it, in this process.
        tokio::time::sleep(SEALED).await;
        both.release().await.expect("it was held");
        for next in next {
            let guard = next.await.expect("no panic").expect("granted");
            let next = guard.fencing_token();
            assert!(next > token, "{next} after {token}");
            guard.release().await.expect("it was held");
        }
    }
    nothing_is_left(&server);
}

/// The lock is kept for `min_hold` despite waiters, and then goes to the first of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_with_min_hold_goes_to_the_first_when_it_is_due() {
    const MIN_HOLD: Duration = ms(600);
    // The key is kept for so much longer.
    const MARGIN: Duration = ms(100);
    let server = RedisServer::start();
    let [holder, a, b, newcomer] = connect_all(&server.url()).await;
    let start = Instant::now();
    let request_of_job = holder.lock("k").ttl(LONG).min_hold(MIN_HOLD);
    let guard = request_of_job.acquire().await.expect("it is free");
    let (mut tasks, order) = (JoinSet::new(), Order::default());
    join_line(&mut tasks, &order, request(&a, "k"), "a").await;
    stand(&server, "k", 1);
    join_line(&mut tasks, &order, request(&b, "k"), "b").await;
    stand(&server, "k", 2);
    guard.release().await.expect("it was held");
    let trying = async {
        while order.all().len() < 2 {
            let guard = newcomer.lock("k").ttl(LONG).try_acquire().await.expect("an answer");
            if guard.is_some() && order.all().len() < 2 {
                // Only where the process that held it was not there in time to hand it on.
                assert!(start.elapsed() >= MIN_HOLD + MARGIN, "a newcomer came first");
            }
            let early = start.elapsed() < MIN_HOLD && !order.all().is_empty();
            assert!(!early, "freed after {:?}", start.elapsed());
        }
    };
    tokio::time::timeout(LONG, trying).await.expect("both are served");
    all(tasks).await;
    assert_eq!(order.all(), ["a", "b"]);
    nothing_is_left(&server);
}

/// A future that is not polled cannot run its body: the lock must not be kept for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_is_not_polled_does_not_hold_up_the_others() {
    let server = RedisServer::start();
    let [holder, a, b] = connect_all(&server.url()).await;
    for sleeper in [&holder, &a] {
        let guard = held(&holder, "k").await;
        let mut asleep = in_line(request(sleeper, "k").acquire()).await;
        let next = in_line(request(sleeper, "k").acquire()).await;
        let places_of_sleeper = usize::from(!std::ptr::eq(sleeper, &holder));
        stand(&server, "k", places_of_sleeper);
        let last = tokio::spawn(request(&b, "k").acquire());
        stand(&server, "k", places_of_sleeper + 1);
        let start = Instant::now();
        guard.release().await.expect("it was held");
        let next = tokio::time::timeout(LONG, next).await.expect("its turn").expect("granted");
        // A second; the rest is room.
        assert!(start.elapsed() < ms(10_000), "held up for {:?}", start.elapsed());
        // Now that it is looked after again, it is the first in its line.
        assert!(asleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        next.release().await.expect("it was held");
        let guard = tokio::time::timeout(LONG, asleep).await.expect("its turn").expect("granted");
        guard.release().await.expect("it was held");
        let last = tokio::time::timeout(LONG, last).await.expect("its turn");
        drop(last.expect("no panic").expect("granted"));
        nothing_is_left(&server);
    }
}

/// It holds the first of two locks, waits for the second, and is never polled again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_for_several_that_is_not_polled_frees_what_it_had() {
    let server = RedisServer::start();
    let [holder, sleeper, other] = connect_all(&server.url()).await;
    let second = held(&holder, "2").await;
    let both = sleeper.lock_all(["1", "2"]).ttl(LONG).wait(ms(6000)).acquire();
    let mut asleep = pin!(both);
    // Until it stands in the second line, and no further.
    wait_for("it has the first", async || {
        let _ = asleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        queue(&server, "2").len() == 1
    })
    .await;
    let guard = tokio::time::timeout(LONG, request(&other, "1").acquire());
    let guard = guard.await.expect("free when the wait is over").expect("granted");
    guard.release().await.expect("it was held");
    assert!(matches!(asleep.await, Err(LockError::Busy { .. })));
    second.release().await.expect("it was held");
    nothing_is_left(&server);
}

/// One line of two managers in one program: a process is what has a manager.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_seen_and_goes_away() {
    let server = RedisServer::start();
    let [holder, a, b] = connect_all(&server.url()).await;
    let guard = held(&holder, "k").await;
    let mut waiting = Vec::new();
    // Those of one process are in line before the next one comes.
    for (n, of_one) in [(1, &[&a, &a][..]), (2, &[&b])] {
        for manager in of_one {
            waiting.push(tokio::spawn(in_line(request(manager, "k").acquire()).await));
        }
        stand(&server, "k", n);
    }
    let status = holder.inspect("k").await.expect("an answer");
    assert!(matches!(status, LockStatus::Held { waiting: 2, .. }), "{status:?}");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    wait_until("their places are gone", || queue(&server, "k").is_empty());
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
    // A manager that is closed leaves its lines.
    let guard = held(&holder, "k").await;
    let waiting = tokio::spawn(request(&b, "k").acquire());
    stand(&server, "k", 1);
    b.close(LONG).await;
    assert!(matches!(waiting.await.expect("no panic"), Err(LockError::Closed)));
    wait_until("its place is gone", || queue(&server, "k").is_empty());
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
}
