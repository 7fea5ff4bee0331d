//! Several locks at once.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use distlock::LockManager;
use distlock_runtime::testing::faults::Faults;
use distlock_testkit::{
    Data, LONG, Mode, Proxy, RedisServer, Running, SECOND, assert_busy, assert_lost, connect,
    data_at, environment, fork_self, in_fork, ms, nothing_is_left, settle, stored, this_test,
    wait_for, wait_until,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

#[tokio::test]
async fn they_are_taken_in_stored_order_each_once() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    // A key with a hash tag of its own is stored under another name, which sorts elsewhere.
    let request = manager.lock_all(["c", "{a}z", "b", "a", "c"]).ttl(LONG);
    let guard = request.acquire().await.expect("granted");
    assert_eq!(guard.keys().collect::<Vec<_>>(), ["{a}z", "a", "b", "c"]);
    assert_eq!(guard.key(), "{a}z");
    let mut names = server.lock_keys();
    names.sort();
    assert_eq!(names, ["distlock:lock::{a}z", &stored("a"), &stored("b"), &stored("c")]);
    let tokens: Vec<_> = guard.fencing_tokens().collect();
    assert!(tokens.is_sorted(), "drawn in the order they were taken: {tokens:?}");
    assert_eq!(Some(&guard.fencing_token()), tokens.iter().max());
    guard.release().await.expect("they were held");
    assert!(server.lock_keys().is_empty());
}

/// Without a wait, and with one that ends in vain: none of the others is kept, and not for its
/// `min_hold` either, for nothing was done under them.
#[tokio::test]
async fn all_or_nothing() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = other.lock("m").ttl(LONG).acquire().await.expect("granted");
    let request = || manager.lock_all(["a", "m", "z"]).ttl(LONG).min_hold(LONG);
    for wait in [Duration::ZERO, ms(300)] {
        let error = request().wait(wait).acquire().await.expect_err("one is held");
        assert_eq!(error.key(), Some("m"), "which one it was");
        assert_busy(Err::<(), _>(error));
        settle(&manager).await;
        wait_until("only the other's is left", || server.lock_keys() == [stored("m")]);
    }
    held.release().await.expect("it was held");
    let guard = request().acquire().await.expect("all are free");
    assert_eq!(server.lock_keys().len(), 3);
    drop(guard);
}

/// Its `wait` is over although it is not polled: what it already had is given back all the same.
#[tokio::test]
async fn a_call_that_is_not_polled_any_more_keeps_nothing() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = other.lock("m").ttl(LONG).acquire().await.expect("granted");
    let request = manager.lock_all(["a", "m"]).ttl(LONG).wait(4 * SECOND);
    let mut acquire = Box::pin(request.acquire());
    // Polled until it has heard that it has the first one, and waits for the other.
    let mut first_is_taken = Box::pin(async {
        wait_for("it is taken", async || server.lock_keys().contains(&stored("a"))).await;
        tokio::time::sleep(ms(200)).await;
    });
    poll_fn(|cx| {
        assert!(acquire.as_mut().poll(cx).is_pending(), "the other one is held");
        first_is_taken.as_mut().poll(cx)
    })
    .await;
    wait_for("only the other's is left", async || server.lock_keys() == [stored("m")]).await;
    held.release().await.expect("it was held");
    assert!(acquire.await.is_err(), "too late");
}

/// What comes behind one that is held elsewhere is not kept while waiting for it; what comes before
/// is.
/// Fault: WM7.
#[tokio::test]
async fn only_those_before_the_one_that_is_waited_for_are_held() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = other.lock("m").ttl(LONG).acquire().await.expect("granted");
    let request = manager.lock_all(["a", "m", "z"]).ttl(LONG).min_hold(LONG).wait(LONG);
    let waiter = tokio::spawn(request.acquire());
    wait_for("it waits with one in hand", async || {
        server.held_locks() == [stored("a"), stored("m")]
    })
    .await;
    // Its own try for all three may still be on its way.
    let free = other.lock("z").wait(LONG / 2).acquire().await;
    free.expect("free").release().await.expect("it was held");
    held.release().await.expect("it was held");
    let guard = waiter.await.expect("no panic").expect("all of them");
    assert_eq!(server.lock_keys().len(), 3);
    drop(guard);
}

/// Each is free for a while in its turn, and still the wait is over when it is over.
#[tokio::test(start_paused = true)]
async fn there_is_one_wait_for_all() {
    let manager = LockManager::in_memory();
    let keys = ["a", "b", "c", "d"];
    let mut holders = JoinSet::new();
    for (n, key) in (1..).zip(keys) {
        let guard = manager.lock(key).acquire().await.expect("granted");
        holders.spawn(async move {
            tokio::time::sleep(n * 4 * SECOND).await;
            guard.release().await.expect("it was held");
        });
    }
    let start = Instant::now();
    assert_busy(manager.lock_all(keys).wait(10 * SECOND).acquire().await);
    let waited = start.elapsed();
    assert!((10 * SECOND..11 * SECOND).contains(&waited), "{waited:?}");
    // The two it had are free again at once.
    manager.lock_all(["a", "b"]).acquire().await.map(drop).expect("free");
    let guard = manager.lock_all(keys).wait(10 * SECOND).acquire().await.expect("all are free");
    assert!((16 * SECOND..17 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    drop(guard);
}

#[tokio::test]
async fn they_are_freed_in_reverse_order() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    // The server reports every key that is deleted, in order.
    server.cli::<()>(&["CONFIG", "SET", "notify-keyspace-events", "Eg"]);
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut eye = client.get_connection().expect("connect");
    let mut deleted = eye.as_pubsub();
    deleted.subscribe("__keyevent@0__:del").expect("subscribe");
    deleted.set_read_timeout(Some(30 * SECOND)).expect("a timeout");
    for dropped in [false, true] {
        let guard = manager.lock_all(["b", "c", "a"]).ttl(LONG).acquire().await.expect("granted");
        if dropped {
            drop(guard);
        } else {
            guard.release().await.expect("they were held");
        }
        let mut next = || deleted.get_message().and_then(|m| m.get_payload()).expect("a message");
        let order: [String; 3] = [next(), next(), next()];
        assert_eq!(order, [stored("c"), stored("b"), stored("a")]);
    }
}

#[tokio::test]
async fn one_lost_is_all_lost() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    for taken in ["a", "b", "c"] {
        let running = AtomicBool::new(false);
        let body = async {
            let _running = Running::new(&running);
            std::future::pending::<()>().await;
        };
        let call = manager.lock_all(["a", "b", "c"]).ttl(5 * SECOND).run(body);
        let take = async {
            wait_for("the body runs", async || running.load(SeqCst)).await;
            assert!(other.force_release(taken).await.expect("an answer"));
        };
        let (result, ()) = tokio::join!(call, take);
        let error = result.expect_err("one is gone");
        assert_eq!(error.key(), Some(taken), "which one it was");
        assert_lost(Err::<(), _>(error));
        assert!(!running.load(SeqCst));
        nothing_is_left(&server);
    }
    let guard = manager.lock_all(["a", "b"]).ttl(5 * SECOND).acquire().await.expect("granted");
    other.force_release("b").await.expect("an answer");
    guard.lost().await;
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_lost(guard.extend(SECOND).await);
    assert_lost(guard.release().await);
    nothing_is_left(&server);
}

/// The first may be lost while the last is waited for: then none of them is handed out, and a call
/// that may wait asks for all of them again.
#[tokio::test]
async fn one_lost_while_another_is_waited_for_is_asked_for_again() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    for (wait, thief_stays) in [(LONG, false), (12 * SECOND, true)] {
        let held = other.lock("b").ttl(LONG).acquire().await.expect("granted");
        let request = manager.lock_all(["a", "b"]).ttl(2 * SECOND).wait(wait);
        let waiter = tokio::spawn(request.acquire());
        wait_for("it waits with one in hand", async || server.held_locks().len() == 2).await;
        assert!(other.force_release("a").await.expect("an answer"));
        let thief = other.lock("a").ttl(LONG).acquire().await.expect("free");
        // It finds out at its next renewal; until then nothing could be known.
        tokio::time::sleep(2 * SECOND).await;
        held.release().await.expect("it was held");
        if thief_stays {
            assert_busy(waiter.await.expect("no panic"));
            assert!(thief.is_held());
            thief.release().await.expect("it was not touched");
        } else {
            tokio::time::sleep(SECOND / 5).await;
            assert!(thief.is_held() && !waiter.is_finished());
            thief.release().await.expect("it was not touched");
            drop(waiter.await.expect("no panic").expect("both are free"));
        }
        nothing_is_left(&server);
    }
}

#[tokio::test]
async fn a_call_cancelled_while_it_waits_for_one_gives_back_the_others() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = other.lock("m").ttl(LONG).acquire().await.expect("granted");
    let request = manager.lock_all(["a", "m", "z"]).ttl(LONG).min_hold(LONG).wait(LONG);
    let waiter = tokio::spawn(request.acquire());
    wait_for("it waits with one in hand", async || {
        server.held_locks() == [stored("a"), stored("m")]
    })
    .await;
    waiter.abort();
    wait_for("it is given back", async || server.lock_keys() == [stored("m")]).await;
    held.release().await.expect("it was held");
}

/// The store fails in the middle of it.
#[tokio::test]
async fn a_fault_among_them_leaves_none() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let builder = LockManager::builder().url(proxy.url()).command_timeout(ms(200));
    let manager = builder.connect().await.expect("connect");
    // The second of them is no lock.
    server.cli::<()>(&["RPUSH", &stored("b"), "x"]);
    let error = manager.lock_all(["a", "b", "c"]).ttl(LONG).wait(LONG).acquire().await;
    assert!(matches!(error, Err(distlock::LockError::Backend { .. })), "{error:?}");
    wait_until("none is left", || server.lock_keys() == [stored("b")]);
    server.cli::<()>(&["DEL", &stored("b")]);
    proxy.set(Mode::DropDown);
    let error = manager.lock_all(["a", "b", "c"]).ttl(LONG).acquire().await;
    assert!(matches!(error, Err(distlock::LockError::Backend { .. })), "{error:?}");
    proxy.set(Mode::Pass);
    nothing_is_left(&server);
}

/// All callers want two of five, in every order: two that took the same pair in opposite orders would
/// wait for each other for ever.
#[tokio::test]
async fn opposite_orders_do_not_deadlock() {
    let server = RedisServer::start();
    for managers in [[connect(&server.url()).await, connect(&server.url()).await], {
        let (manager, _) = Faults::as_remote().start().expect("in memory");
        [manager.clone(), manager]
    }] {
        let mut tasks = JoinSet::new();
        let keys = ["a", "b", "c", "d", "e"];
        for (n, manager) in (0..40).zip(managers.iter().cycle()) {
            let (from, to) = (keys[n % 5], keys[(n * 3 + 1) % 5]);
            let request = manager.lock_all([from, to, keys[(n / 5) % 5]]).wait(LONG);
            tasks.spawn(request.run(tokio::time::sleep(ms(1))));
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic").expect("its turn came");
        }
    }
    nothing_is_left(&server);
}

const ACCOUNTS: u32 = 5;
const PROCESSES: u32 = 3;
const CLERKS: u32 = 4;
const TRANSFERS: u32 = 25;
const AMOUNT: i64 = 10;
const START: i64 = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_between_accounts_keep_the_sum() {
    if in_fork() {
        return transfers(true).await;
    }
    let balances = bank(this_test!());
    assert_eq!(balances, balances_after_all());
    assert_eq!(balances.iter().sum::<i64>(), i64::from(ACCOUNTS) * START);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_without_the_locks_do_not() {
    if in_fork() {
        return transfers(false).await;
    }
    // Not the sum: what is lost on one side may be lost on the other as well.
    let balances = bank(this_test!());
    assert_ne!(balances, balances_after_all(), "the test above shows nothing");
}

/// What every account has if no transfer is lost.
fn balances_after_all() -> Vec<i64> {
    let mut balances = vec![START; ACCOUNTS as usize];
    for (clerk, n) in (0..CLERKS).flat_map(|clerk| (0..TRANSFERS).map(move |n| (clerk, n))) {
        let [from, to] = sides(clerk, n).map(|account| account as usize);
        balances[from] -= AMOUNT * i64::from(PROCESSES);
        balances[to] += AMOUNT * i64::from(PROCESSES);
    }
    balances
}

/// From which account to which a clerk moves money.
fn sides(clerk: u32, n: u32) -> [u32; 2] {
    let from = (n * 7 + clerk) % ACCOUNTS;
    [from, (from + 1 + (n + clerk) % (ACCOUNTS - 1)) % ACCOUNTS]
}

/// What the accounts have when all processes are done.
fn bank(test: &str) -> Vec<i64> {
    let server = RedisServer::start();
    let data = Data::of(&server);
    for account in 0..ACCOUNTS {
        data.set(&format!("account:{account}"), &START.to_string());
    }
    let env = environment(&server);
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let children: Vec<_> = (0..PROCESSES).map(|_| fork_self(test, &env)).collect();
    children.into_iter().for_each(distlock_testkit::Fork::join);
    nothing_is_left(&server);
    let balance = |n| data.get(&format!("account:{n}")).and_then(|text| text.parse::<i64>().ok());
    (0..ACCOUNTS).map(|account| balance(account).expect("a number")).collect()
}

/// Clerks that move money between any two accounts, in any order.
async fn transfers(locked: bool) {
    let manager = Arc::new(distlock::manager().expect("of the environment"));
    let url = std::env::var(Data::URL).expect("where the data is");
    let mut clerks = JoinSet::new();
    for clerk in 0..CLERKS {
        let manager = manager.clone();
        let data = data_at(&url).await;
        clerks.spawn(async move {
            for n in 0..TRANSFERS {
                let keys = sides(clerk, n).map(|n| format!("account:{n}"));
                let transfer = transfer(data.clone(), keys.clone());
                if locked {
                    let request = manager.lock_all(keys).ttl(10 * SECOND).wait(LONG);
                    request.run(transfer).await.expect("its turn came");
                } else {
                    transfer.await;
                }
            }
        });
    }
    while let Some(clerk) = clerks.join_next().await {
        clerk.expect("no panic");
    }
    manager.close(LONG).await;
}

/// Read, wait, write: whatever another one writes meanwhile is lost.
async fn transfer(mut data: redis::aio::MultiplexedConnection, [from, to]: [String; 2]) {
    use redis::AsyncCommands;
    let balances: (i64, i64) = data.mget(&[&from, &to]).await.expect("read");
    tokio::time::sleep(ms(1)).await;
    let after = [(&from, balances.0 - AMOUNT), (&to, balances.1 + AMOUNT)];
    data.mset::<_, _, ()>(&after).await.expect("write");
}
