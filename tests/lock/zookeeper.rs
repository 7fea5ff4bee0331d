//! What is special about locks in ZooKeeper; what they have in common with all others is in `conformance`.

use std::time::{Duration, Instant};

use distlock::{BackendKind, LockManager, LockMode, LockStatus};
use distlock_testkit::conformance::{Remote as _, Subject as _};
use distlock_testkit::{
    LONG, Mode, Proxy, SECOND, ZooKeeperPath, ZooKeeperServer, assert_busy, backend, connect, held,
    ms, patient_builder, served, wait_for, wait_until, waits, whole_text,
};
use tokio::time::timeout;

/// The node of a lock, in that of all.
const LOCK: &str = "distlock:lock:{k}/";

/// Runs what blocks.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

/// A ttl that no session of the servers lasts is refused, and the error says which are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_outside_of_the_sessions_is_refused_with_the_limit() {
    // As most are set up: 4 to 40 seconds.
    let server = ZooKeeperServer::start_with(&["tickTime=2000"]);
    let manager = connect(&server.url()).await;
    manager
        .lock("default")
        .acquire()
        .await
        .expect("30 s, the default")
        .release()
        .await
        .expect("held");
    let refuses = async |request: distlock::LockRequest, word: &str| {
        let refused = request.acquire().await;
        let text = whole_text(refused.as_ref().expect_err("no session lasts so"));
        assert!(text.contains(word), "{text}");
        assert_eq!(backend(refused), BackendKind::Other);
    };
    refuses(manager.lock("long").ttl(31 * SECOND), "maxSessionTimeout").await;
    refuses(manager.lock("short").ttl(SECOND), "minSessionTimeout").await;
    refuses(manager.lock("kept").min_hold(LONG), "min_hold").await;
    manager
        .lock("fits")
        .ttl(3 * SECOND)
        .acquire()
        .await
        .expect("it fits")
        .release()
        .await
        .expect("held");
    wait_until("nothing is left", || server.left().is_empty());
}

/// A server that comes back with its data has kept the sessions, and all locks and places.
/// Fault: A1, A2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_data_costs_no_lock_and_no_place() {
    let mut server = ZooKeeperServer::start();
    let [one, other] = [connect(&server.url()).await, connect(&server.url()).await];
    let guard = held(&one, "k").await;
    let waiting = waits(&other, "k");
    wait_until("it waits", || server.left().len() == 2);
    let mut server = blocking(move || {
        server.restart();
        server
    })
    .await;
    for manager in [&one, &other] {
        wait_for("it serves again", async || manager.ping().await.is_ok()).await;
    }
    assert!(guard.is_held() && !waiting.is_finished());
    // Locks have sessions of their own, which may be connected later.
    let is_busy = async || other.lock("k").acquire().await.expect_err("it is held").is_busy();
    wait_for("it is seen to be held", is_busy).await;
    guard.release().await.expect("it was held");
    let next = served(waiting).await;
    // And without data: the holder learns of the loss, and the next one has a higher fencing token.
    next.release().await.expect("it was held");
    let next = other.lock("k").ttl(2 * SECOND).acquire().await.expect("it is free");
    let last = next.fencing_token();
    let server = blocking(move || {
        server.restart_empty();
        server
    })
    .await;
    timeout(LONG, next.lost()).await.expect("its session is gone");
    wait_for("it serves again", async || one.ping().await.is_ok()).await;
    let after = one.lock("k").ttl(SECOND).wait(LONG).acquire().await.expect("it is free");
    assert!(after.fencing_token() > last, "{} after {last}", after.fencing_token());
    drop((after, next));
    wait_until("nothing is left", || server.left().is_empty());
}

/// A process that is cut off stops in time, is outlived by no more than its session, and comes back.
/// Fault: B1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_expires_is_a_lost_lock_and_no_end() {
    const TTL: Duration = Duration::from_secs(2);
    let server = ZooKeeperPath::start();
    let proxy = Proxy::to(server.addr());
    let (cut_off, other) =
        (connect(&server.url_at(proxy.addr())).await, connect(&server.url()).await);
    let guard = cut_off.lock("k").ttl(TTL).acquire().await.expect("it is free");
    let waiting = waits(&other, "k");
    wait_until("it waits", || server.left().len() == 2);
    proxy.set(Mode::Freeze);
    let next = served(waiting).await;
    assert!(!guard.is_held(), "two hold the lock");
    assert!(next.fencing_token() > guard.fencing_token());
    proxy.set(Mode::Reset);
    proxy.set(Mode::Pass);
    // What the old session has sent has no owner, and a new session is made.
    let again = waits(&cut_off, "k");
    wait_for("it waits again", async || server.left().len() == 2).await;
    next.release().await.expect("it was held");
    drop(guard);
    drop(served(again).await);
    wait_until("nothing is left", || server.left().is_empty());
}

/// A place in the queue whose answer is lost is found again: there is one of it, and it is served.
/// Fault: B2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_whose_answer_is_lost_is_found_by_its_token() {
    let server = ZooKeeperPath::start();
    let proxy = Proxy::to(server.addr());
    let builder = LockManager::builder().url(server.url_at(proxy.addr()));
    let (lossy, other) =
        (builder.command_timeout(SECOND).connect().await, connect(&server.url()).await);
    let lossy = lossy.expect("connect");
    held(&lossy, "warm").await.release().await.expect("it was held");
    let guard = held(&other, "k").await;
    let places = || {
        server
            .left()
            .iter()
            .filter(|node| node.starts_with(&format!("{}{LOCK}q-", server.root())))
            .count()
    };
    // The answer to its try comes, and the one to its place does not.
    let waiting = waits(&lossy, "k");
    for _ in 0..20 {
        proxy.set(Mode::DropDown);
        tokio::time::sleep(ms(10)).await;
        proxy.set(Mode::Pass);
        tokio::time::sleep(ms(20)).await;
    }
    wait_until("it waits", || places() == 1);
    // Whatever was tried meanwhile, it stays one.
    for _ in 0..10 {
        tokio::time::sleep(ms(20)).await;
        assert!(places() <= 1, "{:?}", server.left());
    }
    guard.release().await.expect("it was held");
    served(waiting).await.release().await.expect("it was held");
    wait_until("nothing is left", || server.left().is_empty());
}

/// A try beside others takes a place in the queue, and takes it back if it came too late: also if what it sent for
/// that is lost. No waiter would get past it.
/// Fault: Z2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_came_too_late_leaves_no_place_when_its_connection_is_lost() {
    let server = ZooKeeperPath::start();
    let proxy = Proxy::to(server.addr());
    let builder = LockManager::builder().url(server.url_at(proxy.addr()));
    let (lossy, other) =
        (builder.command_timeout(SECOND).connect().await, connect(&server.url()).await);
    let lossy = lossy.expect("connect");
    held(&lossy, "warm").await.release().await.expect("it was held");
    let guard = held(&other, "k").await;
    // The answers that it came too late are under way when the network begins to lose what it sends.
    proxy.set(Mode::Delay(ms(300)));
    let late = tokio::spawn(lossy.lock("k").mode(LockMode::Read).ttl(LONG).acquire());
    wait_until("it stands in the queue", || server.left().len() == 2);
    proxy.set(Mode::DropUp);
    backend(late.await.expect("no panic"));
    proxy.set(Mode::Pass);
    wait_until("it has left", || server.left().len() == 1);
    guard.release().await.expect("it was held");
    served(waits(&other, "k")).await.release().await.expect("it was held");
    wait_until("nothing is left", || server.left().is_empty());
}

/// A place that cannot be given back for longer than a lease is given back later: its session goes on, and no
/// waiter would get past it.
/// Fault: Z3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_left_in_an_outage_is_given_back_after_it() {
    let server = ZooKeeperPath::start();
    let proxy = Proxy::to(server.addr());
    let (cut_off, other) =
        (connect(&server.url_at(proxy.addr())).await, connect(&server.url()).await);
    let guard = held(&other, "k").await;
    let waiting = tokio::spawn(cut_off.lock("k").ttl(ms(300)).wait(LONG).acquire());
    wait_until("it waits", || server.left().len() == 2);
    proxy.set(Mode::Freeze);
    waiting.abort();
    // Its release is given up by then, which nothing shows; its session lasts for 4 seconds.
    tokio::time::sleep(ms(2500)).await;
    proxy.set(Mode::Pass);
    wait_until("it has left", || server.left().len() == 1);
    guard.release().await.expect("it was held");
    served(waits(&other, "k")).await.release().await.expect("it was held");
    wait_until("nothing is left", || server.left().is_empty());
}

/// A waiter whose connection is gone when it would be notified is served all the same, at once.
/// Fault: E9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_lost_delays_nobody_for_long() {
    let server = ZooKeeperPath::start();
    let proxy = Proxy::to(server.addr());
    let (waiter, holder) =
        (connect(&server.url_at(proxy.addr())).await, connect(&server.url()).await);
    for mode in [Mode::Reset, Mode::DropDown] {
        let guard = held(&holder, "k").await;
        let waiting = waits(&waiter, "k");
        wait_until("it waits", || server.left().len() == 2);
        proxy.set(mode);
        guard.release().await.expect("it was held");
        proxy.set(Mode::Pass);
        let start = Instant::now();
        served(waiting).await.release().await.expect("it was held");
        assert!(start.elapsed() < LONG / 4, "{mode:?}: {:?}", start.elapsed());
    }
    wait_until("nothing is left", || server.left().is_empty());
}

/// Each waiter watches the one in front: one that leaves wakes one other, and no herd.
/// Fault: E7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_wakes_one_other() {
    let server = ZooKeeperPath::start();
    let holder = connect(&server.url()).await;
    let guard = held(&holder, "k").await;
    let (mut managers, mut waiting) = (Vec::new(), Vec::new());
    for n in 2..=6 {
        let manager = connect(&server.url()).await;
        waiting.push(waits(&manager, "k"));
        managers.push(manager);
        wait_until("it waits", || server.left().len() == n);
    }
    // The holder watches its own node as well; the last of five waiters is watched by no other.
    wait_until("they watch", || {
        watchers(&server, "x-") == [2] && watchers(&server, "q-") == [1; 4]
    });
    guard.release().await.expect("it was held");
    for waiting in waiting {
        served(waiting).await.release().await.expect("it was held");
    }
    wait_until("nothing is left", || server.left().is_empty());
}

/// How many watch each node of that kind.
fn watchers(server: &ZooKeeperPath, kind: &str) -> Vec<usize> {
    let mut watched: Vec<(String, usize)> = Vec::new();
    for line in server.word("wchp").lines().filter(|line| !line.trim().is_empty()) {
        match line.starts_with('/') {
            true => watched.push((line.to_owned(), 0)),
            false => watched.last_mut().into_iter().for_each(|(_, watchers)| *watchers += 1),
        }
    }
    let beginning = format!("{}{LOCK}{kind}", server.root());
    watched.iter().filter_map(|(path, n)| path.starts_with(&beginning).then_some(*n)).collect()
}

/// A place that was lost with its session is put back in front of later waiters, and not overtaken by them.
/// Fault: Z5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_put_back_is_not_overtaken() {
    let server = ZooKeeperPath::start();
    let proxy = Proxy::to(server.addr());
    let holder = connect(&server.url()).await;
    let (cut_off, late) =
        (connect(&server.url_at(proxy.addr())).await, connect(&server.url()).await);
    let guard = held(&holder, "k").await;
    let first = waits(&cut_off, "k");
    wait_until("it waits", || server.left().len() == 2);
    let second = waits(&late, "k");
    wait_until("both wait", || server.left().len() == 3);
    proxy.set(Mode::Freeze);
    wait_until("its session has expired", || server.left().len() == 2);
    wait_until("the other one is the first", || watchers(&server, "x-") == [2]);
    proxy.set(Mode::Pass);
    wait_until("its place is put back", || server.left().len() == 3);
    guard.release().await.expect("it was held");
    let guard = served(first).await;
    assert!(!second.is_finished());
    guard.release().await.expect("it was held");
    served(second).await.release().await.expect("it was held");
    wait_until("nothing is left", || server.left().is_empty());
}

/// A lease may become longer than its session: the lock moves to another one, with no holder in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_extended_moves_to_a_longer_session() {
    let server = ZooKeeperPath::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.lock("k").ttl(SECOND).renew(false).acquire().await.expect("it is free");
    let waiting = waits(&other, "k");
    wait_until("it waits", || server.left().len() == 2);
    guard.extend(LONG).await.expect("it is held");
    tokio::time::sleep(2 * SECOND).await;
    assert!(guard.is_held() && !waiting.is_finished(), "the first session's time is over");
    guard.release().await.expect("it was held");
    served(waiting).await.release().await.expect("it was held");
    // One lock for leases of several lengths.
    let read = |ttl| one.lock("k").mode(LockMode::Read).ttl(ttl).acquire();
    let (short, long) = (read(2 * SECOND).await, read(LONG).await);
    let (short, long) = (short.expect("readers are together"), long.expect("readers are together"));
    assert_busy(other.lock("k").acquire().await);
    drop((short, long));
    wait_until("nothing is left", || server.left().is_empty());
}

/// With a user in the URL what is stored is that user's.
/// Fault: C5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_user_are_closed_to_others() {
    let server = ZooKeeperServer::start();
    let url = |user: &str| format!("zookeeper://{user}{}/shop", server.addr());
    let (one, other) = (connect(&url("app:hunter2@")).await, connect(&url("app:hunter2@")).await);
    let guard = held(&one, "k").await;
    assert_busy(other.lock("k").acquire().await);
    let stranger =
        patient_builder(&url("app:wrong@")).connect().await.expect("anybody may connect");
    let refused = stranger.lock("k").ttl(LONG).acquire().await;
    let text = whole_text(refused.as_ref().expect_err("it is another user's"));
    assert!(text.contains("ACL") && !text.contains("hunter2") && !text.contains("wrong"), "{text}");
    assert_eq!(backend(refused), BackendKind::Refused);
    guard.release().await.expect("it was held");
}

#[test]
fn a_mistake_in_the_url_is_named_and_the_password_is_not() {
    let mistake = LockManager::connect_lazy("zookeeper://shop:hunter2@host:port/x");
    let Err(distlock::LockError::InvalidOption { .. }) = &mistake else { panic!("a mistake") };
    let text = whole_text(&mistake.expect_err("a mistake"));
    assert!(text.contains("port") && !text.contains("hunter2"), "{text}");
}

/// A record is there again in the session that follows one that has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_is_named_again_after_its_session_has_expired() {
    let server = ZooKeeperPath::start();
    let proxy = Proxy::to(server.addr());
    let cut_off = connect(&server.url_at(proxy.addr())).await;
    let other = connect(&server.url()).await;
    let processes = async || other.processes().await.expect("an answer").len();
    wait_for("both are named", async || processes().await == 2).await;
    proxy.set(Mode::Freeze);
    wait_for("its session has expired", async || processes().await == 1).await;
    proxy.set(Mode::Pass);
    wait_for("it is named again", async || processes().await == 2).await;
    drop(cut_off);
    wait_for("its session is closed", async || processes().await == 1).await;
}

/// One that connects with its first lock is named from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_connects_late_is_named_by_then() {
    let server = ZooKeeperPath::start();
    let other = connect(&server.url()).await;
    let late = patient_builder(&server.url()).build().expect("a manager");
    let guard = held(&late, "k").await;
    wait_for("it is named", async || {
        let status = other.inspect("k").await.expect("an answer");
        matches!(status, LockStatus::Held { holders, .. } if holders[0].process.is_some())
    })
    .await;
    guard.release().await.expect("it was held");
}
