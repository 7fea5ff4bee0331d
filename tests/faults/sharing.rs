//! S: locks that several hold at once: one of them dies, stands still or does not hear, all of them lose
//! what they share, and answers are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use distlock::{
    BackendKind, LockError, LockGuard, LockManager, LockMode, LockRequest, redis_lock, with_manager,
};
use distlock_testkit::{
    Data, Fork, LONG, Mode, Proxy, RedisServer, assert_lost, backend, connect, connect_all,
    environment, fork_self, in_fork, ms, nothing_is_left, runs, served, stand, stored, this_test,
    wait_until,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{impatient, works_again};
use crate::tap::{Tap, Way, has};

/// Of processes that die or freeze.
const TTL: Duration = ms(2000);
/// Ten times the longest of what it is for.
const SOON: Duration = ms(20_000);

fn read(manager: &LockManager) -> LockRequest {
    manager.lock("k").ttl(LONG).wait(LONG).mode(LockMode::Read)
}

fn write(manager: &LockManager) -> LockRequest {
    manager.lock("k").ttl(LONG).wait(LONG).mode(LockMode::Write)
}

fn permit(manager: &LockManager) -> LockRequest {
    manager.lock("k").ttl(LONG).wait(LONG).permits(2)
}

async fn taken(request: LockRequest) -> LockGuard {
    timeout(SOON, request.acquire()).await.expect("its turn comes").expect("it may have it")
}

async fn freed(guard: LockGuard) {
    guard.release().await.expect("it was held");
}

fn holders(server: &RedisServer) -> usize {
    server.cli(&["ZCARD", &stored("k")])
}

/// A process that has the lock with others and says so; it says when it has lost it, too.
async fn child(request: impl Fn(&LockManager) -> LockRequest) {
    let url = std::env::var("DISTLOCK_URL").expect("where the locks are");
    let (data, manager) = (Data::of_parent(), connect(&url).await);
    let guard = taken(request(&manager).ttl(TTL)).await;
    data.set("child", "holds");
    guard.lost().await;
    data.set("child", "lost");
}

fn child_holds(test: &str, server: &RedisServer) -> (Fork, Data) {
    let data = Data::of(server);
    let env = environment(server);
    let child = fork_self(test, &env.each_ref().map(|(name, value)| (*name, value.as_str())));
    data.wait_until_is("child", "holds");
    (child, data)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_reader_that_dies_keeps_a_writer_for_its_own_ttl() {
    if in_fork() {
        return child(read).await;
    }
    let server = RedisServer::start();
    let [a, b] = connect_all(&server.url()).await;
    let guard = taken(read(&a)).await;
    let (child, _) = child_holds(this_test!(), &server);
    let writer = tokio::spawn(write(&b).acquire());
    stand(&server, "k", 1);
    child.kill9();
    // Others that read and are renewed keep nothing for it.
    sleep(2 * TTL).await;
    assert!(guard.is_held() && !writer.is_finished());
    freed(guard).await;
    freed(served(writer).await).await;
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_the_permit_of_a_holder_that_dies_goes_to_the_next_while_others_are_renewed() {
    if in_fork() {
        return child(permit).await;
    }
    let server = RedisServer::start();
    let [a, b] = connect_all(&server.url()).await;
    let guard = taken(permit(&a).ttl(TTL)).await;
    let (child, _) = child_holds(this_test!(), &server);
    let waiting = tokio::spawn(permit(&b).acquire());
    stand(&server, "k", 1);
    child.kill9();
    freed(served(waiting).await).await;
    assert!(guard.is_held());
    freed(guard).await;
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_a_holder_that_was_stopped_finds_its_permit_lost_and_the_others_theirs_held() {
    if in_fork() {
        return child(permit).await;
    }
    let server = RedisServer::start();
    let [a, b] = connect_all(&server.url()).await;
    let (child, data) = child_holds(this_test!(), &server);
    child.stop();
    let guards = [taken(permit(&a)).await, taken(permit(&b)).await];
    child.cont();
    data.wait_until_is("child", "lost");
    child.join();
    assert_eq!(holders(&server), 2);
    for guard in guards {
        freed(guard).await;
    }
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_readers_who_do_not_hear_of_a_writer_let_it_in_all_the_same() {
    let server = RedisServer::start();
    let lost = Arc::new(AtomicBool::new(false));
    let network = Tap::before(server.addr(), {
        let lost = lost.clone();
        move |_, way, bytes| {
            let says = way == Way::Down && has(bytes, "distlock:wake") && has(bytes, "\r\ns ");
            lost.fetch_or(says, SeqCst);
            says.then(Vec::new)
        }
    });
    let (reader, writer) = (connect(&network.url()).await, connect(&server.url()).await);
    let over = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for n in 0..4 {
        let (reader, over) = (reader.clone(), over.clone());
        readers.spawn(async move {
            sleep(ms(10 * n)).await;
            while !over.load(SeqCst) {
                // Its next renewal would be minutes away.
                let guard = read(&reader).ttl(20 * LONG).acquire().await.expect("granted");
                sleep(ms(40)).await;
                guard.release().await.expect("it was held");
            }
        });
    }
    wait_until("they read", || holders(&server) == 1);
    sleep(ms(1500)).await;
    freed(taken(write(&writer)).await).await;
    assert!(lost.load(SeqCst), "nothing was said that could be lost");
    over.store(true, SeqCst);
    while let Some(reader) = readers.join_next().await {
        reader.expect("no panic");
    }
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_what_was_granted_or_given_back_without_an_answer_is_free_in_the_end() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = impatient(&proxy.url()).await;
    for request in [read, permit] {
        proxy.set(Mode::DropDown);
        let asked = tokio::spawn(request(&manager).wait(Duration::ZERO).acquire());
        assert_eq!(backend(asked.await.expect("no panic")), BackendKind::TimedOut);
        proxy.set(Mode::Pass);
        works_again(&manager, &server).await;

        let other = connect(&server.url()).await;
        let beside = taken(request(&other)).await;
        let guard = taken(request(&manager)).await;
        proxy.set(Mode::DropDown);
        let _ = backend(guard.release().await.map(drop));
        wait_until("it has left", || holders(&server) == 1);
        let scripts = || runs(&server, "eval") + runs(&server, "evalsha");
        let so_far = scripts();
        proxy.set(Mode::Pass);
        wait_until("it is released once more", || scripts() > so_far);
        assert_eq!(holders(&server), 1, "that takes nothing from the other");
        freed(beside).await;
        works_again(&manager, &server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s5_lost_data_is_a_loss_to_all_who_hold_the_lock() {
    let server = RedisServer::start();
    let [a, b, c] = connect_all(&server.url()).await;
    for request in [read, permit] {
        let mut guards = Vec::new();
        for manager in [&a, &b] {
            guards.push(taken(request(manager).ttl(TTL)).await);
        }
        if request(&a).wait(Duration::ZERO).try_acquire().await.expect("an answer").is_some() {
            guards.push(taken(request(&a).ttl(TTL)).await);
        }
        let highest = guards.iter().map(LockGuard::fencing_token).max().expect("some");
        server.cli::<()>(&["FLUSHALL"]);
        let writer = taken(write(&c)).await;
        assert!(writer.fencing_token() > highest);
        for guard in guards {
            timeout(SOON, guard.lost()).await.expect("each of them learns of it");
            assert_lost(guard.release().await);
        }
        assert!(writer.is_held());
        freed(writer).await;
        nothing_is_left(&server);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s6_a_downgrade_without_an_answer_is_asked_for_again_or_leaves_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let (manager, other) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let kind = || server.cli::<String>(&["TYPE", &stored("k")]);

    let guard = taken(write(&manager)).await;
    proxy.set(Mode::CutDown(0));
    let downgrade = tokio::spawn(guard.downgrade());
    wait_until("it was done, and nobody heard of it", || kind() == "zset");
    proxy.set(Mode::Pass);
    let guard = timeout(SOON, downgrade).await.expect("in time").expect("no panic");
    let guard = guard.expect("the same once more");
    let also = taken(read(&other)).await;
    assert!(guard.is_held());
    freed(guard).await;
    freed(also).await;
    nothing_is_left(&server);

    // Dropped while it is unknown which of its tokens has the lock.
    let guard = taken(write(&manager)).await;
    proxy.set(Mode::DropDown);
    let downgrade = tokio::spawn(guard.downgrade());
    wait_until("it was done, and nobody heard of it", || kind() == "zset");
    downgrade.abort();
    proxy.set(Mode::Pass);
    freed(taken(write(&other)).await).await;
    works_again(&manager, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s7_what_an_operator_takes_away_is_lost_to_all_who_have_it() {
    let server = RedisServer::start();
    let [a, b, operator] = connect_all(&server.url()).await;
    // Their next renewals are minutes away.
    let request = |manager| read(manager).ttl(20 * LONG);
    let guards = [taken(request(&a)).await, taken(request(&a)).await, taken(request(&b)).await];
    assert!(operator.force_release("k").await.expect("an answer"));
    for guard in guards {
        timeout(SOON, guard.lost()).await.expect("each of them is told");
        assert_lost(guard.release().await);
    }
    assert!(!operator.force_release("k").await.expect("an answer"), "nobody has it");
    freed(taken(write(&operator)).await).await;
    nothing_is_left(&server);
}

/// Has a reader and a writer of another process take turns, so that the key is a string for one question and a set for
/// the next. Returns the number of turns once `is_over`.
fn take_turns(server: &RedisServer, is_over: &Arc<AtomicBool>) -> JoinHandle<usize> {
    // Each turn is a transaction: there is always a holder.
    let (mut eye, is_over, key) = (server.eye(), is_over.clone(), stored("k"));
    std::thread::spawn(move || {
        let mut turns = 0;
        while !is_over.load(SeqCst) {
            let mut alone = redis::pipe();
            alone.atomic().cmd("SET").arg(&key).arg("w.1.1000s").arg("PX").arg(60_000);
            alone.query::<()>(&mut eye).expect("written");
            let mut together = redis::pipe();
            together.atomic().del(&key).zadd(&key, "r.2.1000sr", 99_999_999_999_999_u64);
            together.pexpire(&key, 60_000).query::<()>(&mut eye).expect("written");
            turns += 1;
        }
        turns
    })
}

#[tokio::test]
async fn fc4_a_try_is_busy_and_a_look_is_answered_while_readers_and_a_writer_take_turns() {
    const TRIES: usize = 400;
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let turns = take_turns(&server, &is_over);
    for _ in 0..TRIES {
        // A reader may read beside a reader.
        for request in [read(&manager), write(&manager), permit(&manager), manager.lock("k")] {
            let tried = request.wait(Duration::ZERO).try_acquire().await;
            drop(tried.expect("granted or busy"));
        }
        manager.inspect("k").await.expect("an answer");
    }
    is_over.store(true, SeqCst);
    let turns = turns.join().expect("no panic");
    assert!(turns > TRIES / 10, "it hardly changed: {turns}");
    // What refuses both questions is no lock, and is said to be none.
    server.cli::<()>(&["DEL", &stored("k")]);
    server.cli::<()>(&["RPUSH", &stored("k"), "no lock"]);
    assert_eq!(backend(manager.lock("k").acquire().await), BackendKind::Other);
    assert!(manager.inspect("k").await.is_err());
    server.cli::<()>(&["DEL", &stored("k")]);
    works_again(&manager, &server).await;
}

#[redis_lock(key = "k", mode = write, on_fail = skip)]
async fn written() -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

#[redis_lock(key = "k", permits = 2, on_fail = skip)]
async fn permitted() -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

/// A lock that is held elsewhere is no error, whichever mode holds it while the function asks.
#[tokio::test]
async fn fc4_a_function_is_skipped_while_readers_and_a_writer_take_turns() {
    const CALLS: usize = 400;
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let turns = take_turns(&server, &is_over);
    while manager.inspect("k").await.expect("an answer").is_free() {
        sleep(ms(1)).await;
    }
    for _ in 0..CALLS {
        let written = with_manager(manager.clone(), written()).await;
        assert!(written.expect("skipped").is_none(), "there is always a holder");
        // A permit beside the reader is lost when the writer's turn comes.
        if let Err(error) = with_manager(manager.clone(), permitted()).await {
            assert!(error.is_lost(), "{error}");
        }
    }
    is_over.store(true, SeqCst);
    let turns = turns.join().expect("no panic");
    assert!(turns > CALLS / 10, "it hardly changed: {turns}");
    server.cli::<()>(&["DEL", &stored("k")]);
    works_again(&manager, &server).await;
}
