//! E: waiting: places in the queue, messages about them, and waiters that miss their turn.

use std::future::{Future, poll_fn};
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager, WakeUps};
use distlock_testkit::{
    LONG, Log, Mode, Proxy, RedisServer, clients, connect, connections, fork_self, held, in_fork,
    in_own_process, ms, owner, patient, patient_builder, queue, runs, served, stand, stored,
    this_test, wait_for, wait_until, waits,
};
use tokio::task::JoinSet;

use crate::support::{Ledger, renewed, works_again};

/// A waiter without a message polls after four and a half seconds. One served before this was notified.
const TOLD: Duration = ms(3000);

/// Which process a token is of.
pub(crate) fn process(token: &str) -> &str {
    token.split('.').next().expect("the first part")
}

/// Notifies the process of `token`, as a client that reserves a lock would.
#[track_caller]
pub(crate) fn publish(server: &RedisServer, kind: &str, token: &str, key: &str) {
    let channel = format!("distlock:wake:{}", process(token));
    let heard: u64 = server.cli(&["PUBLISH", &channel, &format!("{kind} {token} {}", stored(key))]);
    assert_eq!(heard, 1, "nobody hears {token}");
}

/// Repeats `act` every so often until dropped.
struct Repeating {
    over: Arc<AtomicBool>,
    times: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Repeating {
    fn every(pause: Duration, mut act: impl FnMut() + Send + 'static) -> Self {
        let (over, times) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = thread::spawn({
            let (over, times) = (over.clone(), times.clone());
            move || {
                while !over.load(SeqCst) {
                    act();
                    times.fetch_add(1, SeqCst);
                    thread::sleep(pause);
                }
            }
        });
        Self { over, times, thread: Some(thread) }
    }

    /// Goes on with `work` until `act` was done so many times beside it, and ends.
    async fn beside(mut self, times: u64, mut work: impl AsyncFnMut()) {
        let thread = self.thread.take().expect("not ended");
        let enough = self.times.load(SeqCst) + times;
        while self.times.load(SeqCst) < enough && !thread.is_finished() {
            work().await;
        }
        self.over.store(true, SeqCst);
        thread.join().expect("no panic");
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}

/// A network that gives one answer a second time, in front of the next one: the command behind it
/// is answered with what belongs to the one before.
struct Stutter {
    addr: SocketAddr,
    armed: Arc<AtomicBool>,
}

/// How the answer begins that grants a lock to a waiter in the queue.
const GRANT: &[u8] = b"*4\r\n:1\r\n$";
/// How that of a renewal does.
const RENEWED: &[u8] = b"*2\r\n:1\r\n:";

impl Stutter {
    fn before(server: SocketAddr, repeated: &'static [u8]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let addr = listener.local_addr().expect("an address");
        let armed = Arc::new(AtomicBool::new(false));
        let answers = armed.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let server = TcpStream::connect(server).expect("the server is there");
                let up = (client.try_clone().expect("a handle"), server.try_clone().expect("one"));
                thread::spawn(move || carry(up.0, up.1, |_| None));
                let armed = answers.clone();
                let mut stale = None;
                thread::spawn(move || {
                    carry(server, client, move |answer| {
                        let before = stale.take();
                        if answer.starts_with(repeated) && armed.swap(false, SeqCst) {
                            stale = Some(answer.to_vec());
                        }
                        before
                    })
                });
            }
        });
        Self { addr, armed }
    }
}

/// Hands bytes on, and in front of them what `before` says.
fn carry(mut from: TcpStream, mut to: TcpStream, mut before: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let more = before(&bytes[..n]).unwrap_or_default();
        if to.write_all(&more).and_then(|()| to.write_all(&bytes[..n])).is_err() {
            break;
        }
    }
    // One end is gone: so is the other.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e1_an_answer_that_belongs_to_another_command_grants_nothing_and_ends_its_connection() {
    let server = RedisServer::start();
    let network = Stutter::before(server.addr(), GRANT);
    let holder = connect(&server.url()).await;
    let waiter = connect(&format!("redis://{}", network.addr)).await;
    let (a, b) = (held(&holder, "a").await, held(&holder, "b").await);
    let (first, second) = (waits(&waiter, "a"), waits(&waiter, "b"));
    stand(&server, "a", 1);
    stand(&server, "b", 1);
    let own = owner(&server, "b");

    // Behind those to the waiters: their answers and the next one are not read together.
    waiter.inspect("b").await.expect("an answer");
    network.armed.store(true, SeqCst);
    a.release().await.expect("it was held");
    let first = served(first).await;
    let before = clients(&server);
    // It looks, and is answered that it has a lock: the other one.
    publish(&server, "g", &queue(&server, "b")[0], "b");
    wait_until("its connection is made again", || !clients(&server).is_subset(&before));
    assert!(!second.is_finished(), "granted by another command's answer");
    assert_eq!(owner(&server, "b"), own);
    b.release().await.expect("it was held all the time");
    let second = served(second).await;
    assert!(first.is_held() && second.is_held());
    first.release().await.expect("it was held");
    second.release().await.expect("it was held");
    works_again(&waiter, &server).await;
}

/// The answer of a renewal that came true is not taken for that of the next one, which did not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e1_an_old_answer_renews_nothing_and_ends_its_connection() {
    let server = RedisServer::start();
    let network = Stutter::before(server.addr(), RENEWED);
    let manager = connect(&format!("redis://{}", network.addr)).await;
    let guard = manager.lock("k").ttl(ms(6000)).acquire().await.expect("granted");
    renewed(&guard).await;
    let before = clients(&server);
    network.armed.store(true, SeqCst);
    wait_for("its connection is made again", async || !clients(&server).is_subset(&before)).await;
    renewed(&guard).await;
    guard.release().await.expect("it was held all the time");
    works_again(&manager, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2_a_release_while_somebody_enters_the_queue_is_not_missed() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let holder = connect(&server.url()).await;
    let known = connect(&proxy.url()).await;
    proxy.set(Mode::Delay(ms(10)));
    for n in 0..16 {
        // One that is subscribed, and one that is still on its way there.
        let new = patient_builder(&proxy.url()).build().expect("lazy");
        let waiter = if n % 2 == 0 { known.clone() } else { new };
        let guard = held(&holder, "k").await;
        let waiting = waits(&waiter, "k");
        tokio::time::sleep(ms(6 * n)).await;
        guard.release().await.expect("it was held");
        let guard = tokio::time::timeout(TOLD, waiting).await;
        let guard = guard.unwrap_or_else(|_| panic!("a release after {} ms was missed", 6 * n));
        guard.expect("no panic").expect("granted").release().await.expect("it was held");
    }
    works_again(&known, &server).await;
}

/// Adds to the ledger under the lock of `key`, so many times in so many tasks of each manager.
async fn add_all(managers: &[LockManager], key: &str, tasks: u64, rounds: u64) {
    let ledger = Arc::new(Ledger::default());
    let mut all = JoinSet::new();
    for manager in managers {
        for _ in 0..tasks {
            let (ledger, manager, key) = (ledger.clone(), manager.clone(), key.to_owned());
            all.spawn(async move {
                for _ in 0..rounds {
                    let request = manager.lock(&*key).ttl(LONG).wait(2 * LONG);
                    request.run(ledger.add_one()).await.expect("served, and not lost");
                }
            });
        }
    }
    while let Some(task) = all.join_next().await {
        task.expect("no panic");
    }
    ledger.nothing_was_lost();
    assert_eq!(ledger.written(), managers.len() as u64 * tasks * rounds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_without_a_subscription_that_lasts_everybody_is_served() {
    let server = RedisServer::start();
    let mut managers = Vec::new();
    for _ in 0..3 {
        managers.push(connect(&server.url()).await);
    }
    let mut hand = server.eye();
    let cut = Repeating::every(ms(5), move || {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("pubsub").query::<u64>(&mut hand).expect("cut");
    });
    cut.beside(10, async || add_all(&managers, "k", 2, 2).await).await;
    works_again(&managers[0], &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_a_waiter_that_was_skipped_because_it_could_not_hear_is_served_when_it_can() {
    let server = RedisServer::start();
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = held(&holder, "k").await;
    let waiting = waits(&waiter, "k");
    stand(&server, "k", 1);
    // It has no time to subscribe again before it is skipped.
    server.cli::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    guard.release().await.expect("it was held");
    let guard = tokio::time::timeout(TOLD, waiting).await.expect("served as soon as it hears");
    guard.expect("no panic").expect("granted").release().await.expect("it was held");
    works_again(&waiter, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e4_a_killed_holder_is_followed_by_those_who_wait_in_order() {
    const TTL: Duration = ms(6000);
    if in_fork() {
        let url = std::env::var("DISTLOCK_URL").expect("where the server is");
        let manager = connect(&url).await;
        let _guard = manager.lock("k").ttl(TTL).acquire().await.expect("it is free");
        // Waiters of the process that dies as well.
        let _waiting = [waits(&manager, "k"), waits(&manager, "k")];
        return std::future::pending().await;
    }
    let server = RedisServer::start();
    let child = fork_self(this_test!(), &[("DISTLOCK_URL", &server.url())]);
    wait_until("the child holds it", || owner(&server, "k").is_some());
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = JoinSet::new();
    for (n, manager) in managers.iter().enumerate() {
        let (request, order) = (manager.lock("k").ttl(LONG).wait(LONG), order.clone());
        waiting.spawn(request.run(async move { order.lock().expect("no panic").push(n) }));
        stand(&server, "k", n + 1);
    }
    child.kill9();
    let killed = Instant::now();
    while let Some(served) = waiting.join_next().await {
        served.expect("no panic").expect("served after the ttl");
    }
    // Its ttl, a claim and a second; the rest is room.
    assert!(killed.elapsed() < TTL + ms(10_000), "served after {:?}", killed.elapsed());
    assert_eq!(*order.lock().expect("no panic"), [0, 1]);
    works_again(&managers[0], &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_stray_double_and_forged_messages_grant_nothing() {
    let server = RedisServer::start();
    let mut managers = Vec::new();
    for _ in 0..3 {
        managers.push(connect(&server.url()).await);
    }
    let mut hand = server.eye();
    let mut past: Vec<String> = Vec::new();
    let flood = Repeating::every(ms(10), move || {
        let mut look = redis::pipe();
        look.cmd("GET").arg(stored("k"));
        look.cmd("ZRANGE").arg("distlock:queue:{k}").arg("0").arg("-1");
        let now: (Option<String>, Vec<String>) = look.query(&mut hand).expect("a look");
        let (owner, waiting) = now;
        let mut flood = redis::pipe();
        let own = owner.iter().map(|token| ("gs", token));
        let others = waiting.iter().map(|token| ("xgs", token));
        for (kinds, token) in own.chain(others).chain(past.iter().map(|token| ("xgs", token))) {
            let channel = format!("distlock:wake:{}", process(token));
            for kind in kinds.chars() {
                for lock in ["k", "another"] {
                    let text = format!("{kind} {token} {}", stored(lock));
                    flood.cmd("PUBLISH").arg(&channel).arg(&text).ignore();
                    flood.cmd("PUBLISH").arg(&channel).arg(&text).ignore();
                }
            }
            for text in [&b"g"[..], b"", b"g  ", b"g a b c d", b"\xff\xfe \x00", b"s x y"] {
                flood.cmd("PUBLISH").arg(&channel).arg(text).ignore();
            }
        }
        if !flood.is_empty() {
            flood.query::<()>(&mut hand).expect("published");
        }
        past.extend(owner);
        let forgotten = past.len().saturating_sub(4);
        past.drain(..forgotten);
    });
    flood.beside(5, async || add_all(&managers, "k", 3, 10).await).await;
    works_again(&managers[0], &server).await;
}

/// A client that may publish can make a holder ask whether it still has the lock: that is all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_a_forged_loss_ends_no_lease_and_grants_nothing() {
    let server = RedisServer::start();
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let mut hand = server.eye();
    let flood = Repeating::every(ms(7), move || {
        let owner: Option<String> =
            redis::cmd("GET").arg(stored("k")).query(&mut hand).expect("a look");
        if let Some(owner) = owner {
            let channel = format!("distlock:wake:{}", process(&owner));
            let text = format!("x {owner} {}", stored("k"));
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(channel).arg(text).query::<u64>(&mut hand).expect("published");
        }
    });
    flood.beside(5, async || add_all(&managers, "k", 3, 10).await).await;
    works_again(&managers[0], &server).await;
}

/// A caller that took the lock past the waiters has no place in line, and is known all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_a_forged_call_does_not_free_a_lock_that_is_held() {
    let server = RedisServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = loop {
        server.cli::<()>(&["SET", &stored("k"), "somebody's", "PX", "60000"]);
        let waiting = waits(&one, "k");
        stand(&server, "k", 1);
        // Freed without a message: no waiter polls for a while.
        server.cli::<()>(&["DEL", &stored("k")]);
        let guard = one.lock("k").ttl(LONG).try_acquire().await.expect("an answer");
        if let Some(guard) = guard {
            waiting.abort();
            let _ = waiting.await;
            break guard;
        }
        drop(served(waiting).await);
    };
    wait_until("the waiter's place is gone", || queue(&server, "k").is_empty());
    let owner_of_it = owner(&server, "k").expect("held");
    publish(&server, "g", &owner_of_it, "k");
    // Behind the message on the same connection, and heard behind it.
    let waiting = waits(&other, "k");
    stand(&server, "k", 1);
    publish(&server, "s", &owner_of_it, "k");
    renewals_later(&guard).await;
    assert_eq!(owner(&server, "k"), Some(owner_of_it), "freed by a message");
    assert!(!waiting.is_finished());
    guard.release().await.expect("it was held all the time");
    drop(served(waiting).await);
    works_again(&one, &server).await;
}

/// Earlier messages to a manager have had their effect by then: it has asked the server something on the
/// connection that also frees locks, and been answered.
async fn renewals_later(guard: &LockGuard) {
    for _ in 0..3 {
        guard.extend(LONG).await.expect("it is held");
        tokio::time::sleep(ms(30)).await;
    }
}

/// The lock is free and no waiter was notified: the first one that polls finds those that came before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_a_forged_call_lets_nobody_jump_the_queue() {
    let server = RedisServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    server.cli::<()>(&["SET", &stored("k"), "somebody's", "PX", "60000"]);
    let first = waits(&one, "k");
    stand(&server, "k", 1);
    let second = waits(&other, "k");
    stand(&server, "k", 2);
    let tokens = queue(&server, "k");
    server.cli::<()>(&["DEL", &stored("k")]);
    publish(&server, "g", &tokens[1], "k");
    let guard = served(first).await;
    assert!(!second.is_finished() && queue(&server, "k") == tokens[1..]);
    guard.release().await.expect("it was held");
    drop(served(second).await);
    works_again(&one, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e6_a_process_has_one_channel_however_many_locks_it_waits_for() {
    const LOCKS: usize = 500;
    let server = RedisServer::start();
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    let key = |n: usize| format!("k-{n}");
    let mut guards = Vec::new();
    for n in 0..LOCKS {
        guards.push(held(&holder, &key(n)).await);
    }
    let waiting: Vec<_> = (0..LOCKS).map(|n| waits(&waiter, &key(n))).collect();
    let queues = || server.keys().iter().filter(|key| key.contains(":queue:")).count();
    wait_until("all stand in their queues", || queues() == LOCKS);
    let channels: Vec<String> = server.cli(&["PUBSUB", "CHANNELS"]);
    assert_eq!(channels.len(), 2, "{channels:?}");
    // Commands, renewals and messages, of two managers.
    assert!(connections(&server) <= 6);
    drop(guards);
    for waiting in waiting {
        served(waiting).await.release().await.expect("it was held");
    }
    works_again(&waiter, &server).await;
}

/// A future and how often it was polled.
async fn counted<F: Future>(polls: Arc<AtomicU64>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        polls.fetch_add(1, SeqCst);
        future.as_mut().poll(cx)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e7_one_release_wakes_one_process_and_one_task() {
    for _ in 0..5 {
        if one_release_wakes_one().await {
            return;
        }
    }
    panic!("each time somebody looked as well, or it took too long");
}

/// False if something else that costs commands may have come in between.
async fn one_release_wakes_one() -> bool {
    const PROCESSES: usize = 4;
    const TASKS: usize = 8;
    let server = RedisServer::start();
    let holder = connect(&server.url()).await;
    // Scripts are known after this.
    works_again(&holder, &server).await;
    let guard = held(&holder, "k").await;
    let mut managers = Vec::new();
    let mut polls: Vec<Arc<AtomicU64>> = Vec::new();
    let mut waiting = JoinSet::new();
    for n in 0..PROCESSES {
        let manager = connect(&server.url()).await;
        for _ in 0..TASKS {
            polls.push(Arc::default());
            // Without renewals, which are commands too.
            let request = manager.lock("k").ttl(LONG).renew(false).wait(LONG);
            waiting.spawn(counted(polls[polls.len() - 1].clone(), request.acquire()));
        }
        stand(&server, "k", n + 1);
        managers.push(manager);
    }
    let polled = || polls.iter().map(|polls| polls.load(SeqCst)).sum::<u64>();
    // The waiter that tried for the others of its process was polled again with the answer, unless that came
    // within its first poll, before its process stood in the queue.
    wait_until("all wait", || polls.iter().all(|polls| polls.load(SeqCst) > 0));
    // Such a poll may still be due on a busy machine, and would be counted as one more waiter that was woken.
    let mut last = 0;
    wait_until("no task is polled any more", || {
        let before =
            std::mem::replace(&mut last, polls.iter().map(|polls| polls.load(SeqCst)).sum());
        std::thread::sleep(ms(200));
        before == last
    });
    // Every look adds to a queue, or would.
    let looks = runs(&server, "zadd");
    let scripts = || runs(&server, "evalsha") + runs(&server, "eval");
    let figures = || (scripts(), runs(&server, "publish"), polled());
    let (start, before) = (Instant::now(), figures());
    guard.release().await.expect("it was held");
    let guard = waiting.join_next().await.expect("one").expect("no panic").expect("granted");
    let after = figures();
    // After a second the holder sees to it that the lock was taken.
    if start.elapsed() > ms(800) || runs(&server, "zadd") > looks {
        return false;
    }
    assert_eq!(after.0 - before.0, 2, "the release and one confirmation");
    assert_eq!(after.1 - before.1, 1, "messages");
    assert_eq!(after.2 - before.2, 1, "tasks that were woken");
    assert_eq!(queue(&server, "k").len(), PROCESSES - 1);
    assert_eq!(waiting.len(), PROCESSES * TASKS - 1);
    drop(guard);
    while let Some(guard) = waiting.join_next().await {
        drop(guard.expect("no panic").expect("granted"));
    }
    works_again(&holder, &server).await;
    true
}

/// A process that waits for `k`, and is named in the queue by what is returned.
fn waiting_child(test: &str, server: &RedisServer) -> distlock_testkit::Fork {
    fork_self(test, &[("DISTLOCK_URL", &server.url())])
}

/// What such a process does: it waits, for ever, and says that it was served.
async fn wait_in_child() {
    let manager = connect(&std::env::var("DISTLOCK_URL").expect("where the server is")).await;
    let (one, other) = (waits(&manager, "k"), waits(&manager, "k"));
    let end = async |waiting| served(waiting).await.release().await.expect("it was held");
    tokio::join!(end(one), end(other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e8_a_killed_waiter_is_skipped_at_once() {
    if in_fork() {
        return wait_in_child().await;
    }
    let server = RedisServer::start();
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = held(&holder, "k").await;
    let mut children = Vec::new();
    for n in 0..3 {
        children.push(waiting_child(this_test!(), &server));
        stand(&server, "k", n + 1);
    }
    let waiting = waits(&live, "k");
    stand(&server, "k", 4);
    let tokens = queue(&server, "k");
    children.into_iter().for_each(distlock_testkit::Fork::kill9);
    let gone = |token: &String| {
        let channel = format!("distlock:wake:{}", process(token));
        let (_, heard): (String, u64) = server.cli(&["PUBSUB", "NUMSUB", &channel]);
        heard == 0
    };
    wait_until("the server has noticed", || tokens[..3].iter().all(gone));
    guard.release().await.expect("it was held");
    // The release itself has passed them over.
    assert_eq!(owner(&server, "k").as_deref(), Some(&*tokens[3]));
    assert!(queue(&server, "k").is_empty());
    drop(served(waiting).await);
    works_again(&live, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e8_a_waiter_that_stands_still_delays_the_next_by_its_claim_and_keeps_its_place() {
    if in_fork() {
        return wait_in_child().await;
    }
    let server = RedisServer::start();
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = held(&holder, "k").await;
    let child = waiting_child(this_test!(), &server);
    stand(&server, "k", 1);
    let waiting = waits(&live, "k");
    stand(&server, "k", 2);
    let tokens = queue(&server, "k");
    child.stop();
    let start = Instant::now();
    guard.release().await.expect("it was held");
    let (kept_for, claim) = (owner(&server, "k"), server.cli::<i64>(&["PTTL", &stored("k")]));
    // Else the claim may be over already.
    if start.elapsed() < ms(900) {
        assert_eq!(kept_for.as_deref(), Some(&*tokens[0]), "it may still come");
        assert!((1..=1000).contains(&claim), "kept for it for {claim} ms");
    }
    let guard = tokio::time::timeout(TOLD, waiting).await.expect("its turn after the claim");
    let guard = guard.expect("no panic").expect("granted");
    // A late one stands behind the process that stood still.
    let late = waits(&holder, "k");
    stand(&server, "k", 1);
    child.cont();
    wait_until("it is back in the queue", || queue(&server, "k").len() == 2);
    assert_eq!(process(&queue(&server, "k")[0]), process(&tokens[0]), "its old place");
    guard.release().await.expect("it was held");
    drop(served(late).await);
    child.join();
    works_again(&live, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e8_those_who_leave_are_not_waited_for() {
    let server = RedisServer::start();
    let mut managers = Vec::new();
    for _ in 0..3 {
        managers.push(connect(&server.url()).await);
    }
    let ledger = Arc::new(Ledger::default());
    let mut tasks = JoinSet::new();
    for n in 0..24 {
        let (manager, ledger) = (managers[n % 3].clone(), ledger.clone());
        tasks.spawn(async move {
            for round in 0..20 {
                let request = manager.lock("k").ttl(LONG).wait(LONG).run(ledger.add_one());
                // Some before they stand there, some in the queue, some under the lock.
                let patience = [1, 3, 7, 20, 60_000][(n + round) % 5];
                if let Ok(result) = tokio::time::timeout(ms(patience), request).await {
                    result.expect("granted");
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    ledger.nothing_was_lost();
    assert!(ledger.written() >= 24 * 4, "who stayed was served");
    works_again(&managers[0], &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e9_without_push_waiters_look_and_it_is_said_once() {
    // In a process of its own: what is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let said = || log.text().lines().filter(|line| line.contains("wake_ups_denied")).count();
    let no_hello = RedisServer::builder().args(["--rename-command", "HELLO", ""]).start();
    let rights = ["~* &* +@all -subscribe", "~* resetchannels +@all", "~* &* +@all -publish"];
    let mut cases = vec![(no_hello.url(), no_hello)];
    for rights in rights {
        let server = RedisServer::start();
        let rule = format!("ACL SETUSER app on >secret {rights}");
        server.cli::<()>(&rule.split(' ').collect::<Vec<_>>());
        cases.push((format!("redis://app:secret@{}", server.addr()), server));
    }
    let mut expected = 0;
    for (url, server) in cases {
        let mut managers = Vec::new();
        for _ in 0..2 {
            managers.push(patient(&url).await);
        }
        expected += managers.len();
        wait_for("it is said", async || said() == expected).await;
        let guard = held(&managers[0], "k").await;
        let waiting = waits(&managers[1], "k");
        stand(&server, "k", 1);
        assert_eq!(managers[1].status().wake_ups, WakeUps::Polling);
        guard.release().await.expect("it was held");
        drop(served(waiting).await);
        add_all(&managers, "k", 1, 2).await;
        works_again(&managers[0], &server).await;
        assert_eq!(said(), expected, "{url}");
    }
}

/// As if it read nothing: its messages pile up, and the server cuts it off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c7_a_waiter_that_was_cut_off_for_its_backlog_is_served_all_the_same() {
    let server = RedisServer::start();
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    // More than one block of answers, by which Valkey counts what it owes to a client.
    server.cli::<()>(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 65536 0 0"]);
    for _ in 0..3 {
        let guard = held(&holder, "k").await;
        let waiting = waits(&waiter, "k");
        stand(&server, "k", 1);
        let token = queue(&server, "k").remove(0);
        let before = clients(&server);
        let channel = format!("distlock:wake:{}", process(&token));
        // In one script, so that nothing is sent in between, and of a size that every server copies.
        let (script, message) =
            ("for _ = 1, 64 do redis.call('PUBLISH', ARGV[1], ARGV[2]) end", "x".repeat(8 * 1024));
        server.cli::<()>(&["EVAL", script, "0", &channel, &message]);
        guard.release().await.expect("it was held");
        let guard = tokio::time::timeout(TOLD, waiting).await.expect("served when it is back");
        drop(guard.expect("no panic").expect("granted"));
        wait_until("it was cut off", || !clients(&server).is_superset(&before));
        wait_for("it is notified again", async || waiter.status().wake_ups == WakeUps::Notified)
            .await;
    }
    works_again(&waiter, &server).await;
}
