//! Orders of events that are rare: futures that are polled late or never again, callers that leave
//! in the moment they are served, counters and connections that are lost in between.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LockRequest, LockStatus, OnLost, WakeUps};
use distlock_testkit::{
    LONG, Mode, Proxy, RedisServer, connect, in_line, ms, nothing_is_left, poll_now, poll_once,
    queue, stand, wait_for, wait_until,
};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::task::coop::poll_proceed;
use tokio::time::{sleep, timeout};

/// A lock of a client that keeps no rules.
fn foreign(server: &RedisServer, key: &str, ttl: Duration) {
    let (key, ttl) = (format!("distlock:lock:{{{key}}}"), ttl.as_millis().to_string());
    server.cli::<()>(&["SET", &key, "somebody else's", "PX", &ttl]);
}

/// A caller was granted the lock and not polled, so that it was taken back.
async fn passed_over(
    server: &RedisServer,
    manager: &LockManager,
    wait: Duration,
) -> Pin<Box<impl Future<Output = Result<distlock::LockGuard, LockError>> + use<>>> {
    let first = manager.lock("k").ttl(LONG).acquire().await.expect("granted");
    let waiter = in_line(manager.lock("k").ttl(LONG).wait(wait).acquire()).await;
    first.release().await.expect("it was held");
    nothing_is_left(server);
    waiter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_is_sent_after_its_token_was_released_leaves_nothing_behind() {
    let server = RedisServer::start();
    // It connects first, so that its first poll sends nothing.
    let manager = LockManager::builder().url(server.url()).build().expect("a URL");
    let mut leader = in_line(manager.lock("k").ttl(LONG).wait(ms(20_000)).acquire()).await;
    let second = manager.lock("k").ttl(LONG).wait(ms(20_000)).acquire().await;
    second.expect("granted").release().await.expect("it was held");
    nothing_is_left(&server);
    let guard = leader.as_mut().await.expect("the lock is free");
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
}

/// Under a counter value that is older than that of the holder in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_is_sent_late_does_not_take_a_lock_again_that_was_taken_away() {
    let server = RedisServer::start();
    let manager = LockManager::builder().url(server.url()).build().expect("a URL");
    let mut leader = in_line(manager.lock("k").ttl(LONG).wait(LONG).acquire()).await;
    let second = manager.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("granted");
    let token = server.cli::<Option<String>>(&["GET", "distlock:lock:{k}"]);
    assert!(token.is_some());
    server.cli::<()>(&["DEL", "distlock:lock:{k}"]);
    let begun = Instant::now();
    while begun.elapsed() < ms(300) {
        // The second one may have heard by now that its lock is gone, and the first one have it anew.
        let granted = poll_now(&mut leader).await.is_ready();
        assert_ne!(server.cli::<Option<String>>(&["GET", "distlock:lock:{k}"]), token);
        if granted {
            break;
        }
    }
    drop((leader, second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_was_lost_under_a_try_that_others_depend_on_frees_nothing() {
    let server = RedisServer::start();
    let (here, there) = (connect(&server.url()).await, connect(&server.url()).await);
    // On a slow machine a try may come so late behind the last one that it raises the counter.
    for lock in ["a", "b", "c"] {
        // Which raises it now.
        for manager in [&there, &here] {
            let guard = manager.lock("warm").acquire().await.expect("granted");
            guard.release().await.expect("it was held");
        }
        server.cli::<()>(&["FLUSHALL"]);
        let mut first = in_line(here.lock(lock).wait(LONG).acquire()).await;
        wait_until("it is sent", || !server.lock_keys().is_empty());
        let second = in_line(here.lock(lock).wait(LONG).acquire()).await;
        sleep(ms(200)).await;
        // Its answer is looked at now: the value drawn with it is not new.
        let at_once = poll_now(&mut first).await;
        sleep(ms(50)).await;
        let theirs = there.lock(lock).acquire().await;
        let mine = match at_once {
            Poll::Ready(granted) => granted,
            Poll::Pending => first.await,
        };
        let mine = mine.expect("granted");
        assert!(mine.is_held());
        assert!(theirs.is_err_and(|error| error.is_busy()), "both hold it");
        drop((mine, second));
        wait_until("it is free", || server.lock_keys().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_behind_a_try_that_fails_is_not_forgotten() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut waiter = passed_over(&server, &manager, LONG).await;
    let theirs = other.lock("k").ttl(LONG).acquire().await.expect("it is free");
    let mut tries = in_line(manager.lock("k").wait(Duration::ZERO).acquire()).await;
    poll_once(&mut waiter).await;
    assert!(tries.as_mut().await.is_err_and(|error| error.is_busy()));
    stand(&server, "k", 1);
    theirs.release().await.expect("it was held");
    let guard = timeout(ms(20_000), waiter).await.expect("it is free").expect("granted");
    guard.release().await.expect("it was held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_behind_a_try_that_is_dropped_is_not_forgotten() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let mut waiter = passed_over(&server, &manager, LONG).await;
    let tries = in_line(manager.lock("k").wait(LONG).acquire()).await;
    // It is back in line, and may be granted the lock within this poll.
    let at_once = poll_now(&mut waiter).await;
    drop(tries);
    let granted = match at_once {
        Poll::Ready(granted) => granted,
        Poll::Pending => timeout(ms(20_000), waiter).await.expect("it is free"),
    };
    let guard = granted.expect("granted");
    guard.release().await.expect("it was held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_after_the_close_is_told() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let waiter = passed_over(&server, &manager, LONG).await;
    manager.close(ms(10_000)).await;
    let told = timeout(ms(20_000), waiter).await.expect("it does not wait");
    assert!(matches!(told, Err(LockError::Closed)), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_was_passed_on_is_renewed() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    for (ttl, wait) in [(ms(2000), Duration::MAX), (ms(500), LONG)] {
        let is_renewed = async |round: u32| {
            let request = || manager.lock(format!("{ttl:?} {round}")).ttl(ttl).wait(wait);
            let first = request().acquire().await.expect("granted");
            let _asleep = in_line(request().acquire()).await;
            let next = tokio::spawn(request().acquire());
            sleep(ms(300)).await;
            let _ = first.release().await;
            let guard = next.await.expect("no panic").expect("granted");
            timeout(ms(4000), guard.lost()).await.is_err()
        };
        let mut rounds = 0;
        // A machine that stalls for so long fails one round for all.
        while !is_renewed(rounds).await {
            rounds += 1;
            assert!(rounds < 5, "{ttl:?}: nobody renews it");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_granted_what_a_neighbour_asked_for_has_his_own_terms() {
    let server = RedisServer::start();
    let network = Proxy::to(server.addr());
    let (holder, far) = (connect(&server.url()).await, connect(&network.url()).await);
    let guard = holder.lock("k").ttl(LONG).acquire().await.expect("granted");
    let short = tokio::spawn(far.lock("k").ttl(ms(1500)).wait(LONG).acquire());
    stand(&server, "k", 1);
    let long = tokio::spawn(far.lock("k").ttl(LONG).wait(LONG).acquire());
    sleep(ms(100)).await;
    network.set(Mode::Delay(ms(300)));
    guard.release().await.expect("it was held");
    // The short one leaves while its request is under way.
    sleep(ms(450)).await;
    short.abort();
    let guard = long.await.expect("no panic").expect("granted");
    let left = guard.remaining();
    assert!(timeout(ms(4000), guard.lost()).await.is_err(), "of its minute it had {left:?}");
    network.set(Mode::Pass);
    guard.release().await.expect("it was held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_is_no_longer_than_asked_for_when_it_is_handed_on() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    for (before, ttl, min_hold) in [(100, 20, 0), (5000, 300, 5000)] {
        let Ok(guard) = manager.lock("k").ttl(ms(before)).acquire().await else { continue };
        let next = manager.lock("k").ttl(ms(ttl)).renew(false).min_hold(ms(min_hold)).wait(LONG);
        let next = in_line(next.acquire()).await;
        let _ = guard.release().await;
        match next.await {
            Ok(guard) => assert!(guard.remaining() <= ms(ttl), "{:?}", guard.remaining()),
            // On a machine that is busy.
            Err(error) => assert!(error.is_lost(), "{error}"),
        }
        nothing_is_left(&server);
    }
}

/// The pair's token is the larger of two; one of the locks goes on under its outer holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_pair_is_outdone_where_half_of_it_was_joined() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let pair = manager.lock_all(["a", "b"]).reentrant(true);
    let (held, is_held) = oneshot::channel();
    let outer = tokio::spawn(manager.lock("a").run(async move {
        held.send(()).expect("somebody waits for it");
        sleep(ms(300)).await;
        let pair = pair.acquire().await.expect("b is free");
        let token = pair.fencing_token();
        pair.release().await.expect("it was held");
        token
    }));
    is_held.await.expect("it runs");
    let next = manager.lock("a").wait(LONG).acquire().await.expect("granted");
    let pair = outer.await.expect("no panic").expect("its body ran");
    assert!(next.fencing_token() > pair, "{} after {pair}", next.fencing_token());
    next.release().await.expect("it was held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_pair_is_outdone_by_the_next_of_the_other_half() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let first = manager.lock("b").acquire().await.expect("granted");
    let (pair, next) = (manager.lock_all(["a", "b"]).reentrant(true), manager.lock("b"));
    let tokens = manager.lock("a").run(async move {
        let pair = in_line(pair.wait(LONG).acquire()).await;
        let next = in_line(next.wait(LONG).acquire()).await;
        first.release().await.expect("it was held");
        let pair = pair.await.expect("granted");
        let token = pair.fencing_token();
        pair.release().await.expect("it was held");
        (token, next.await.expect("granted").fencing_token())
    });
    let (pair, next) = tokens.await.expect("its body ran");
    assert!(next > pair, "{next} after {pair}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn those_behind_a_lost_lease_keep_their_place() {
    let server = Arc::new(RedisServer::start());
    let (here, there) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut rounds = JoinSet::new();
    for round in 0..40 {
        let (server, here, there) = (server.clone(), here.clone(), there.clone());
        rounds.spawn(async move {
            let key = format!("k{round}");
            let (started, has_started) = oneshot::channel();
            let holder = here.lock(&*key).ttl(ms(2000)).renew(false).run(async move {
                started.send(()).expect("somebody waits for it");
                std::future::pending::<()>().await;
            });
            let holder = tokio::spawn(holder);
            has_started.await.expect("it is held");
            // The stranger is not the first to poll when the lease is over: it may be over at the server
            // before this process has woken up.
            let place: u64 = server.cli(&["INCR", "distlock:fence"]);
            let place = ["ZADD", &format!("distlock:queue:{{{key}}}"), &place.to_string()];
            server.cli::<i64>(&[&place[..], &["dead.1.1000s"]].concat());
            let order: Arc<Mutex<Vec<&str>>> = Arc::default();
            let mut waiting = Vec::new();
            for (manager, name) in [(&here, "neighbour"), (&there, "stranger")] {
                let (order, request) = (order.clone(), manager.lock(&*key).ttl(LONG).wait(LONG));
                let body = async move { order.lock().expect("no panic").push(name) };
                waiting.push(tokio::spawn(in_line(request.run(body)).await));
                sleep(ms(200)).await;
            }
            assert!(holder.await.expect("no panic").is_err_and(|error| error.is_lost()));
            for one in waiting {
                one.await.expect("no panic").expect("its turn comes");
            }
            let order = order.lock().expect("no panic");
            assert_eq!(*order, ["neighbour", "stranger"], "round {round}");
        });
        // Losses that do not come all at once.
        sleep(ms(40)).await;
    }
    while let Some(round) = rounds.join_next().await {
        round.expect("in order");
    }
}

/// Half of the fencing tokens are used, so that another counter value is drawn: a newer one than that of
/// later waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_enter_again_after_many_hand_overs_keep_their_place() {
    let server = RedisServer::start();
    let (here, there) = (connect(&server.url()).await, connect(&server.url()).await);
    let order: Arc<Mutex<Vec<&str>>> = Arc::default();
    let guard = here.lock("k").ttl(LONG).acquire().await.expect("granted");
    let mut all = JoinSet::new();
    let work = |manager: &LockManager, ttl, name: Option<&'static str>| {
        let (order, request) = (order.clone(), manager.lock("k").ttl(ttl).wait(LONG));
        in_line(async move {
            let guard = request.acquire().await.expect("its turn comes");
            order.lock().expect("no panic").extend(name);
            guard.release().await.expect("it was held");
        })
    };
    for _ in 0..900 {
        all.spawn(work(&here, LONG, None).await);
    }
    // This one's ttl does not fit the lease: it enters the queue.
    all.spawn(work(&here, ms(5000), Some("here")).await);
    sleep(ms(500)).await;
    all.spawn(work(&there, LONG, Some("there")).await);
    stand(&server, "k", 1);
    sleep(ms(300)).await;
    guard.release().await.expect("it was held");
    while let Some(one) = all.join_next().await {
        one.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), ["here", "there"]);
}

/// A claim grows when it was called and did not answer, and not because it was exchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_exchanged_is_as_long_as_before() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    foreign(&server, "k", LONG);
    let waiting = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand(&server, "k", 1);
    for _ in 0..3 {
        // Once when it went deaf, and once more when it hears again.
        let told = queue(&server, "k");
        server.cli::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let mut places = Vec::new();
        wait_until("it can be told again", || {
            places = queue(&server, "k");
            places != told && places.len() == 1 && places[0].ends_with('s')
        });
        assert!(places[0].ends_with(".1000s"), "{places:?}");
    }
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_too_far_away_for_its_ttl_does_not_keep_the_others_waiting() {
    let server = RedisServer::start();
    let network = Proxy::to(server.addr());
    let (near, far) = (connect(&server.url()).await, connect(&network.url()).await);
    let guard = near.lock("k").ttl(LONG).acquire().await.expect("granted");
    network.set(Mode::Delay(ms(40)));
    let too_far = tokio::spawn(far.lock("k").ttl(ms(50)).wait(ms(30_000)).acquire());
    stand(&server, "k", 1);
    let other = connect(&server.url()).await;
    let next = tokio::spawn(other.lock("k").ttl(LONG).wait(LONG).acquire());
    stand(&server, "k", 2);
    guard.release().await.expect("it was held");
    let guard = timeout(ms(10_000), next).await.expect("its turn comes").expect("no panic");
    guard.expect("granted").release().await.expect("it was held");
    too_far.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_manager_hears_whichever_of_its_connections_is_used() {
    let server = RedisServer::start();
    for n in 0..8 {
        let builder = LockManager::builder().url(server.url()).connections(2);
        let manager = builder.build().expect("a URL");
        let guard = manager.lock(format!("k{n}")).acquire().await.expect("granted");
        wait_for("it is notified", async || manager.status().wake_ups == WakeUps::Notified).await;
        guard.release().await.expect("it was held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_may_take_as_long_as_it_likes() {
    let server = RedisServer::start();
    let builder = LockManager::builder().url(server.url()).command_timeout(Duration::MAX);
    let manager = builder.build().expect("a URL");
    let guard = connect(&server.url()).await.lock("k").acquire().await.expect("granted");
    let waiting = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand(&server, "k", 1);
    guard.release().await.expect("it was held");
    let guard = timeout(ms(20_000), waiting).await.expect("it is free").expect("no panic");
    guard.expect("granted").release().await.expect("it was held");
}

/// Two locks are reserved for processes that died, one of them for much longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_repair_of_one_lock_does_not_wait_for_that_of_another() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let dead = |key: &str, token: &str| {
        server.cli::<i64>(&["ZADD", &format!("distlock:queue:{{{key}}}"), "1", token])
    };
    let long = manager.lock("long").acquire().await.expect("granted");
    let short = manager.lock("short").acquire().await.expect("granted");
    dead("long", "dead.1.60000n");
    dead("short", "dead.2.1000n");
    let waiting = tokio::spawn(other.lock("short").ttl(LONG).wait(LONG).acquire());
    stand(&server, "short", 2);
    long.release().await.expect("it was held");
    let begun = Instant::now();
    short.release().await.expect("it was held");
    let guard = waiting.await.expect("no panic").expect("granted");
    // A look would have come after four seconds at the earliest.
    assert!(begun.elapsed() < ms(3500), "after {:?}", begun.elapsed());
    guard.release().await.expect("it was held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_took_the_lock_past_the_line_hears_that_it_was_taken_away() {
    let server = RedisServer::start();
    let (manager, operator) = (connect(&server.url()).await, connect(&server.url()).await);
    foreign(&server, "k", LONG);
    let waiting = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand(&server, "k", 1);
    // Freed without a message to any waiter.
    server.cli::<i64>(&["DEL", "distlock:lock:{k}", "distlock:queue:{k}"]);
    let request = manager.lock("k").ttl(LONG).renew(false);
    let guard = request.acquire().await.expect("it is free");
    assert!(operator.force_release("k").await.expect("reached"));
    timeout(ms(20_000), guard.lost()).await.expect("it is told");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_as_the_lock_is_freed_was_for_a_lock_that_was_held() {
    let server = RedisServer::start();
    let builder = LockManager::builder().url(server.url()).command_timeout(ms(2000));
    let manager = builder.connect().await.expect("connect");
    let guard = manager.lock("k").ttl(LONG).acquire().await.expect("granted");
    let late = in_line(manager.lock("k").ttl(LONG).wait(ms(2500)).acquire()).await;
    thread::sleep(ms(2600));
    guard.release().await.expect("it was held");
    let error = late.await.expect_err("its wait was over");
    assert!(error.is_busy(), "{error}");
    // The same of one that is polled long after, when its place is forgotten.
    let theirs =
        connect(&server.url()).await.lock("k").ttl(LONG).acquire().await.expect("it is free");
    let mut late = in_line(manager.lock("k").wait(ms(4000)).acquire()).await;
    for _ in 0..10 {
        sleep(ms(20)).await;
        poll_once(&mut late).await;
    }
    sleep(ms(10_000)).await;
    let error = late.await.expect_err("its wait was over");
    assert!(error.is_busy(), "{error}");
    theirs.release().await.expect("it was held");
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_memory_that_ends_as_the_lock_is_freed_is_for_a_lock_that_was_held() {
    let manager = LockManager::in_memory();
    let guard = manager.lock("k").acquire().await.expect("granted");
    tokio::spawn(async move {
        sleep(ms(1000)).await;
        drop(guard);
    });
    tokio::task::yield_now().await;
    let late = tokio::spawn(manager.lock("k").wait(ms(1000)).acquire()).await.expect("no panic");
    assert!(late.as_ref().map_or_else(LockError::is_busy, |_| true), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_joins_a_try_is_told_when_it_is_answered() {
    let server = RedisServer::start();
    let network = Proxy::to(server.addr());
    let (holder, far) = (connect(&server.url()).await, connect(&network.url()).await);
    let guard = holder.lock("k").ttl(LONG).acquire().await.expect("granted");
    network.set(Mode::Delay(ms(100)));
    let first = tokio::spawn(far.lock("k").wait(LONG).acquire());
    sleep(ms(20)).await;
    let begun = Instant::now();
    let error = far.lock("k").wait(ms(20)).acquire().await.expect_err("it is held");
    assert!(error.is_busy(), "{error}");
    // Five seconds is what an answer is waited for.
    assert!(begun.elapsed() < ms(3000), "after {:?}", begun.elapsed());
    first.abort();
    guard.release().await.expect("it was held");
}

/// A task has done in one poll what tokio lets it do, or nearly: what it wakes after that is woken
/// when its thread has nothing else to do, which may be much later.
#[tokio::test]
async fn whoever_drops_a_guard_at_the_end_of_a_long_poll_and_blocks_frees_it_all_the_same() {
    const BUDGET: usize = 128;
    let server = RedisServer::start();
    let builder = LockManager::builder().url(server.url()).command_timeout(LONG);
    let manager = builder.connect().await.expect("connect");
    for left in 0..8 {
        let mut guard = Some(manager.lock("k").ttl(LONG).acquire().await.expect("free"));
        poll_fn(|cx| {
            for _ in left..BUDGET {
                if let Poll::Ready(step) = poll_proceed(cx) {
                    step.made_progress();
                }
            }
            drop(guard.take());
            nothing_is_left(&server);
            Poll::Ready(())
        })
        .await;
    }
}

/// What is sent next must come behind it all the same.
#[tokio::test]
async fn whoever_drops_many_in_one_poll_can_have_them_back_at_once() {
    let server = RedisServer::start();
    let builder = LockManager::builder().url(server.url()).command_timeout(LONG);
    let manager = builder.connect().await.expect("connect");
    for _ in 0..5 {
        let mut guards = Vec::new();
        for n in 0..300 {
            let request = manager.lock(format!("k{n}")).ttl(LONG);
            guards.push(request.acquire().await.expect("free"));
        }
        // From the last one on: behind it there is nothing left to do in this poll.
        guards.into_iter().for_each(drop);
        for n in (0..300).rev() {
            let again = manager.lock(format!("k{n}")).ttl(LONG).acquire().await;
            again.expect("it was given back").release().await.expect("it was held");
        }
    }
    nothing_is_left(&server);
}

/// A grant that ran out before its future was polled.
#[tokio::test]
async fn a_body_that_goes_on_without_its_lock_does_not_begin_without_it() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = manager.lock("k").ttl(LONG).acquire().await.expect("granted");
    let ran = Arc::new(AtomicBool::new(false));
    let request = manager.lock("k").ttl(ms(100)).renew(false).wait(ms(3000));
    let late = in_line(request.on_lost(OnLost::Continue).run({
        let ran = ran.clone();
        async move { ran.store(true, SeqCst) }
    }));
    let late = late.await;
    guard.release().await.expect("it was held");
    // Granted, and over: it is never absent in between.
    nothing_is_left(&server);
    let theirs = other.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("it ran out");
    let late = late.await;
    assert!(theirs.is_held());
    assert!(!ran.load(SeqCst), "beside another holder: {late:?}");
    // It asked again, for as long as it may wait.
    assert!(late.is_err_and(|error| error.is_busy()));
    // Nor is a guard given out that is none.
    theirs.release().await.expect("it was held");
    // The one that gave up may still stand in the queue: then it is handed the lock, and gives it back.
    let guard = manager.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("granted");
    let late = in_line(manager.lock("k").ttl(ms(100)).renew(false).wait(LONG).acquire()).await;
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
    let late = late.await.expect("it asks again");
    assert!(late.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_waits_at_several_places_is_counted_once() {
    let server = RedisServer::start();
    let (a, b) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = a.lock("k").ttl(LONG).acquire().await.expect("granted");
    let mut waiting = Vec::new();
    for n in 0..6 {
        let manager = if n % 2 == 0 { &b } else { &a };
        waiting.push(tokio::spawn(manager.lock("k").wait(LONG).acquire()));
        stand(&server, "k", n + 1);
        // Longer than neighbours are let in.
        sleep(ms(500)).await;
    }
    let status = a.inspect("k").await.expect("reached");
    assert!(matches!(status, LockStatus::Held { waiting: 2, .. }), "{status:?}");
    waiting.iter().for_each(|one| one.abort());
    guard.release().await.expect("it was held");
}

#[tokio::test]
async fn in_memory_a_future_that_is_not_polled_does_not_hold_up_the_others() {
    let manager = LockManager::in_memory();
    let guard = manager.lock("k").acquire().await.expect("granted");
    let asleep = in_line(manager.lock("k").wait(LONG).acquire()).await;
    let next = in_line(manager.lock("k").wait(LONG).acquire()).await;
    drop(guard);
    let next = timeout(ms(20_000), next).await.expect("its turn comes").expect("granted");
    drop((next, asleep));
}

#[tokio::test]
async fn in_memory_half_of_a_pair_is_not_held_past_its_wait() {
    let manager = LockManager::in_memory();
    let guard = manager.lock("b").acquire().await.expect("granted");
    let asleep = in_line(manager.lock_all(["a", "b"]).wait(ms(1000)).acquire()).await;
    let other = timeout(ms(20_000), manager.lock("a").wait(LONG).acquire()).await;
    drop((other.expect("its turn comes").expect("granted"), guard, asleep));
}

#[test]
fn in_memory_nothing_is_asked_of_a_runtime_without_timers() {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let manager = LockManager::in_memory();
    runtime.block_on(async {
        let guard = manager.lock("k").acquire().await.expect("granted");
        let waiting = tokio::spawn(manager.lock("k").wait(LONG).acquire());
        tokio::task::yield_now().await;
        drop(guard);
        drop(waiting.await.expect("no panic").expect("granted"));
        manager.lock("k").renew(false).run(async {}).await.expect("granted");
    });
}

#[test]
fn in_memory_a_future_may_wait_on_another_runtime_than_it_began_on() {
    let new = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    for is_dropped in [false, true] {
        let (mut first, second) = (Some(new()), new());
        let manager = LockManager::in_memory();
        let began = first.as_ref().expect("it is there");
        let guard = began.block_on(manager.lock("k").acquire()).expect("granted");
        let waiting = began.block_on(in_line(manager.lock("k").wait(ms(500)).acquire()));
        first.take_if(|_| is_dropped);
        let told = second.block_on(async { timeout(ms(20_000), waiting).await });
        assert!(told.expect("its wait ends").is_err_and(|error| error.is_busy()));
        drop(guard);
    }
}

/// What limits a lease counts from when there is something to do under it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_several_does_not_end_while_the_others_are_waited_for() {
    const TTL: Duration = Duration::from_secs(4);
    let case = async |limited: fn(LockRequest) -> LockRequest| {
        let server = RedisServer::start();
        let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let guard = other.lock("b").ttl(LONG).acquire().await.expect("granted");
        let request = limited(manager.lock_all(["a", "b"]).ttl(TTL).wait(LONG));
        let both = tokio::spawn(request.acquire());
        sleep(2 * TTL).await;
        guard.release().await.expect("it was held");
        let both = both.await.expect("no panic").expect("granted");
        let left = both.remaining();
        assert!(TTL / 4 < left && left <= TTL, "{left:?}");
        timeout(ms(20_000), both.lost()).await.expect("it ends all the same");
        drop(both);
        nothing_is_left(&server);
    };
    // At the same time: each of them does nothing but wait.
    let fixed = case(|request| request.renew(false));
    let capped = case(|request| request.max_hold(TTL));
    tokio::join!(fixed, capped);
}
