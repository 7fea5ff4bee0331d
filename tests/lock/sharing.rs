//! Several at once: readers beside each other and a writer alone, and no more than there are permits.
//!
//! Each manager is a process to all the others: they know of each other through the server only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use distlock::{LockError, LockGuard, LockManager, LockMode, LockRequest};
use distlock_testkit::{
    LONG, RedisServer, Waiting, connect, connect_all, data_at, fork_self, in_fork, in_line, info,
    ms, nothing_is_left, queue, served, settle, stand, stored, this_test, ttl_of, wait_for,
    wait_until,
};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Ten times what it takes to be served once nothing is in the way.
const SOON: Duration = ms(5000);

fn read(manager: &LockManager) -> LockRequest {
    manager.lock("k").ttl(LONG).wait(LONG).mode(LockMode::Read)
}

fn write(manager: &LockManager) -> LockRequest {
    manager.lock("k").ttl(LONG).wait(LONG).mode(LockMode::Write)
}

fn permit(manager: &LockManager, of: u32) -> LockRequest {
    manager.lock("k").ttl(LONG).wait(LONG).permits(of)
}

async fn taken(request: LockRequest) -> LockGuard {
    timeout(SOON, request.acquire()).await.expect("at once").expect("it may have it")
}

/// A task that waits in line.
async fn waits(request: LockRequest) -> Waiting {
    tokio::spawn(in_line(request.acquire()).await)
}

async fn is_refused(request: LockRequest) -> bool {
    request.wait(Duration::ZERO).try_acquire().await.expect("an answer").is_none()
}

async fn freed(guard: LockGuard) {
    guard.release().await.expect("it was held");
}

#[tokio::test]
async fn reading_in_a_loop_does_not_keep_other_tasks_from_running() {
    const READS: usize = 10_000;
    let manager = LockManager::in_memory();
    // By its lease the others read, and none of them waits for anything.
    let first = read(&manager).acquire().await.expect("free");
    let ran = Arc::new(AtomicBool::new(false));
    let others = ran.clone();
    tokio::spawn(async move { others.store(true, SeqCst) });
    let mut reads = 0;
    while reads < READS && !ran.load(SeqCst) {
        freed(read(&manager).acquire().await.expect("it reads with the first")).await;
        reads += 1;
    }
    assert!(reads < READS, "the thread had no time for another task");
    freed(first).await;
}

/// How many hold the lock together at the server.
fn holders(server: &RedisServer) -> usize {
    server.cli(&["ZCARD", &stored("k")])
}

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const ROUNDS: usize = 20;
const PERMITS: u32 = 3;

/// What one of the processes does under the lock.
#[derive(Clone, Copy)]
enum Work {
    /// Every third one writes.
    ReadAndWrite {
        locked: bool,
    },
    Permits,
}

/// Works on shared values and notes which callers it met there.
async fn work(
    kind: Work,
    n: usize,
    manager: &LockManager,
    data: &mut MultiplexedConnection,
) -> Result<(), Error> {
    let guard = match kind {
        Work::ReadAndWrite { locked: false } => None,
        Work::ReadAndWrite { .. } if n.is_multiple_of(3) => Some(write(manager).acquire()),
        Work::ReadAndWrite { .. } => Some(read(manager).acquire()),
        Work::Permits => Some(permit(manager, PERMITS).acquire()),
    };
    let guard = match guard {
        Some(taking) => Some(taking.await?),
        None => None,
    };
    let writes = matches!(kind, Work::ReadAndWrite { .. }) && n.is_multiple_of(3);
    let met = if writes { "writing" } else { "within" };
    let within: i64 = data.incr(met, 1).await?;
    let others: i64 = data.get(if writes { "within" } else { "writing" }).await.unwrap_or(0);
    let before: i64 = data.get("value").await.unwrap_or(0);
    sleep(ms(2)).await;
    let after: i64 = data.get("value").await.unwrap_or(0);
    if writes {
        data.set::<_, _, ()>("value", before + 1).await?;
    }
    let limit = if let Work::Permits = kind { i64::from(PERMITS) } else { i64::MAX };
    let wrong = before != after || others > 0 || writes && within > 1 || within > limit;
    if wrong {
        data.incr::<_, _, ()>("wrong", 1).await?;
    }
    redis::cmd("ZADD").arg(&["most", "GT", &within.to_string(), met]).exec_async(data).await?;
    data.decr::<_, _, ()>(met, 1).await?;
    if let Some(guard) = guard {
        guard.release().await?;
    }
    Ok(())
}

async fn child(kind: Work) -> Result<(), Error> {
    let data = data_at(&std::env::var("DATA_URL")?).await;
    let manager = connect(&std::env::var("DISTLOCK_URL")?).await;
    data.clone().incr::<_, _, ()>("ready", 1).await?;
    wait_for("all processes are ready", async || {
        data.clone().get("ready").await.is_ok_and(|ready: usize| ready == PROCESSES)
    })
    .await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (manager, mut data) = (manager.clone(), data.clone());
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                work(kind, task + round, &manager, &mut data).await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

/// What the processes have seen: how often something was wrong, the value, and how many were within at
/// most.
fn parent(test: &str) -> (usize, usize, usize) {
    let server = RedisServer::start();
    // Not database 0, which shows nothing but locks.
    let data = server.url_of_db(1);
    let client = redis::Client::open(data.as_str()).expect("a URL");
    let mut eye = client.get_connection().expect("connect");
    let env = [("DISTLOCK_URL", server.url()), ("DATA_URL", data)];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let children: Vec<_> = (0..PROCESSES).map(|_| fork_self(test, &env)).collect();
    let over = Arc::new(AtomicBool::new(false));
    let watch = std::thread::spawn({
        let (over, mut eye) = (over.clone(), server.eye());
        move || {
            while !over.load(SeqCst) {
                let ttl: i64 = redis::cmd("PTTL").arg(stored("k")).query(&mut eye).expect("PTTL");
                assert_ne!(ttl, -1, "a lock without an end");
            }
        }
    });
    for child in children {
        child.join();
    }
    over.store(true, SeqCst);
    watch.join().expect("it always has an end");
    nothing_is_left(&server);
    let mut get = |name: &str| {
        redis::cmd("GET").arg(name).query::<Option<usize>>(&mut eye).expect("GET").unwrap_or(0)
    };
    let (wrong, value) = (get("wrong"), get("value"));
    let most = redis::cmd("ZSCORE").arg(&["most", "within"]).query(&mut eye).expect("ZSCORE");
    (wrong, value, most)
}

/// Every task writes in about every third round.
const WRITES: usize = {
    let (mut writes, mut task) = (0, 0);
    while task < TASKS {
        let mut round = 0;
        while round < ROUNDS {
            writes += (task + round).is_multiple_of(3) as usize;
            round += 1;
        }
        task += 1;
    }
    writes * PROCESSES
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_is_alone_and_readers_are_not() {
    if in_fork() {
        return child(Work::ReadAndWrite { locked: true }).await.expect("a child's work");
    }
    let (wrong, value, most) = parent(this_test!());
    assert_eq!((wrong, value), (0, WRITES), "a writer was not alone");
    assert!(most > TASKS, "readers of several processes read at once, not {most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_writers_are_not_alone() {
    if in_fork() {
        return child(Work::ReadAndWrite { locked: false }).await.expect("a child's work");
    }
    let (wrong, ..) = parent(this_test!());
    assert!(wrong > 0, "nothing went wrong without a lock: the test above shows nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_there_are_permits() {
    if in_fork() {
        return child(Work::Permits).await.expect("a child's work");
    }
    let (wrong, _, most) = parent(this_test!());
    assert_eq!((wrong, most), (0, PERMITS as usize));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_process_share_one_place_and_ask_nothing() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let first = taken(read(&manager)).await;
    let commands = info(&server, "total_commands_processed");
    let mut others = Vec::new();
    for _ in 0..100 {
        others.push(taken(read(&manager)).await);
    }
    let first_token = first.fencing_token();
    assert!(others.iter().all(|guard| guard.is_held() && guard.fencing_token() == first_token));
    freed(first).await;
    for guard in others.drain(1..) {
        freed(guard).await;
    }
    // Renewals, and what counts them here.
    let spent = info(&server, "total_commands_processed") - commands;
    assert!(spent < 50, "{spent} commands for 100 readers");
    assert_eq!(holders(&server), 1);
    drop(others);
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_stops_later_readers_everywhere_and_goes_first() {
    let server = RedisServer::start();
    let [a, b, c] = connect_all(&server.url()).await;
    let (here, there) = (taken(read(&a)).await, taken(read(&b)).await);
    let writer = waits(write(&c)).await;
    stand(&server, "k", 1);
    for manager in [&a, &b, &c] {
        wait_for("it is told of the writer", async || is_refused(read(manager)).await).await;
    }
    let mut later = Vec::new();
    for manager in [&a, &b, &c, &a, &b, &c] {
        later.push(waits(read(manager)).await);
    }
    stand(&server, "k", 4);
    freed(here).await;
    sleep(ms(100)).await;
    assert!(!writer.is_finished(), "one reads");
    freed(there).await;
    let writer = served(writer).await;
    assert!(later.iter().all(|reader| !reader.is_finished()));
    let before = writer.fencing_token();
    freed(writer).await;
    // Together: none of them is released before all have it.
    let mut readers = Vec::new();
    for reader in later {
        readers.push(served(reader).await);
    }
    assert_eq!(holders(&server), 3);
    assert!(readers.iter().all(|reader| reader.fencing_token() > before));
    for reader in readers {
        freed(reader).await;
    }
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_starts_although_readers_of_three_processes_overlap_without_pause() {
    const READ: Duration = ms(50);
    let server = RedisServer::start();
    let [a, b, c, d] = connect_all(&server.url()).await;
    let (over, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut readers = JoinSet::new();
    for manager in [&a, &b, &c] {
        for n in 0..4 {
            let (manager, over, reads) = (manager.clone(), over.clone(), reads.clone());
            readers.spawn(async move {
                sleep(READ / 4 * n).await;
                while !over.load(SeqCst) {
                    let guard = read(&manager).acquire().await.expect("granted");
                    reads.fetch_add(1, SeqCst);
                    sleep(READ).await;
                    guard.release().await.expect("it was held");
                }
            });
        }
    }
    wait_until("they read", || reads.load(SeqCst) > 100);
    for _ in 0..3 {
        freed(taken(write(&d)).await).await;
        sleep(2 * READ).await;
    }
    over.store(true, SeqCst);
    while let Some(reader) = readers.join_next().await {
        reader.expect("no panic");
    }
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_goes_on_as_a_reader_and_no_other_writer_comes_between() {
    let server = RedisServer::start();
    let [a, b, c] = connect_all(&server.url()).await;
    let guard = taken(write(&a)).await;
    let here = waits(write(&a)).await;
    let reader = waits(read(&b)).await;
    stand(&server, "k", 1);
    let there = waits(write(&c)).await;
    stand(&server, "k", 2);
    let token = guard.fencing_token();
    let guard = guard.downgrade().await.expect("it was held");
    assert!(guard.is_held() && guard.fencing_token() > token);
    let reader = served(reader).await;
    assert!(is_refused(read(&b)).await, "a writer waits");
    assert!(!there.is_finished() && !here.is_finished());
    let guard = guard.downgrade().await.expect("it reads, and goes on");
    freed(guard).await;
    freed(reader).await;
    for writer in [here, there] {
        freed(served(writer).await).await;
    }
    let pool = taken(permit(&a, 2)).await.downgrade().await;
    assert!(matches!(pool, Err(LockError::InvalidOption { .. })), "{pool:?}");
    nothing_is_left(&server);
}

/// Fault: FC8.
#[tokio::test]
async fn a_writer_that_goes_on_as_a_reader_keeps_its_min_hold_and_its_max_hold() {
    let server = RedisServer::start();
    let [a, b] = connect_all(&server.url()).await;
    let min_hold = write(&a).ttl(LONG / 20).min_hold(LONG);
    let guard = taken(min_hold).await.downgrade().await.expect("it was held");
    assert!(ttl_of(&server, "k") > 60_000, "a process that dies must not free it earlier");
    freed(guard).await;
    assert!(ttl_of(&server, "k") > 60_000, "nor does the reader's release");
    assert!(is_refused(write(&b)).await);
    server.cli::<()>(&["FLUSHALL"]);

    let max_hold = write(&a).max_hold(LONG / 4);
    let guard = taken(max_hold).await.downgrade().await.expect("it was held");
    assert!(guard.remaining() <= LONG / 4, "{:?}", guard.remaining());
    assert!(ttl_of(&server, "k") <= 40_000, "a process that dies must not keep it longer");
    freed(guard).await;
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_handed_on_within_a_process_and_first_come_first_served_between_them() {
    let server = RedisServer::start();
    let [a, b] = connect_all(&server.url()).await;
    let (first, second) = (taken(permit(&a, 2)).await, taken(permit(&a, 2)).await);
    assert_eq!(holders(&server), 2);
    assert!(is_refused(permit(&a, 2)).await && is_refused(permit(&b, 2)).await);
    let neighbours = [waits(permit(&a, 2)).await, waits(permit(&a, 2)).await];
    assert!(queue(&server, "k").is_empty(), "they wait here");
    let other = waits(permit(&b, 2)).await;
    stand(&server, "k", 1);
    freed(first).await;
    freed(second).await;
    let mut served_here = Vec::new();
    for neighbour in neighbours {
        served_here.push(served(neighbour).await);
    }
    assert!(!other.is_finished(), "it came later");
    let mut tokens: Vec<_> = served_here.iter().map(LockGuard::fencing_token).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 2);
    freed(served_here.remove(0)).await;
    let other = served(other).await;
    freed(served_here.remove(0)).await;
    freed(other).await;
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_share_few_permits_and_their_places() {
    const TASKS: usize = 1000;
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let (within, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let begun = info(&server, "total_commands_processed");
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (request, within, most) = (permit(&manager, 10), within.clone(), most.clone());
        tasks.spawn(async move {
            let guard = request.acquire().await.expect("granted");
            most.fetch_max(within.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::task::yield_now().await;
            within.fetch_sub(1, SeqCst);
            guard.release().await.expect("it was held");
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let spent = info(&server, "total_commands_processed") - begun;
    assert!(most.load(SeqCst) <= 10);
    assert!(spent < TASKS as u64 / 2, "{spent} commands for {TASKS} tasks");
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leaves_keeps_nothing_from_the_others() {
    let server = RedisServer::start();
    let [a, b] = connect_all(&server.url()).await;
    let guard = taken(read(&a)).await;
    // A writer that gives up lets in the readers behind it.
    let writer = waits(write(&b)).await;
    stand(&server, "k", 1);
    wait_for("who reads is told of it", async || is_refused(read(&a)).await).await;
    let readers = [waits(read(&a)).await, waits(read(&b)).await];
    writer.abort();
    for reader in readers {
        drop(served(reader).await);
    }
    // So does one that is dropped while it has been let in, or is about to.
    for n in 0..50 {
        let request = if n % 2 == 0 { write(&b) } else { read(&b) };
        let _ = timeout(ms(n % 5), request.acquire()).await;
    }
    drop(guard);
    let barrier = Arc::new(Barrier::new(4));
    let mut together = JoinSet::new();
    for manager in [&a, &a, &b, &b] {
        let (request, barrier) = (read(manager), barrier.clone());
        together.spawn(async move {
            let guard = request.acquire().await.expect("granted");
            barrier.wait().await;
            guard.release().await.expect("it was held");
        });
    }
    timeout(LONG, async { while together.join_next().await.is_some() {} }).await.expect("together");
    settle(&a).await;
    nothing_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_takes_all_kinds_in_their_order() {
    let server = RedisServer::start();
    let [a, b, c] = connect_all(&server.url()).await;
    let reader = taken(read(&a)).await;
    let permits = taken(permit(&b, 2)).await;
    assert!(is_refused(permit(&c, 2)).await, "who reads counts");
    let also = taken(read(&c)).await;
    assert!(is_refused(write(&c)).await);
    let writer = waits(write(&c)).await;
    stand(&server, "k", 1);
    for guard in [reader, permits, also] {
        assert!(!writer.is_finished());
        freed(guard).await;
    }
    let writer = served(writer).await;
    assert!(is_refused(read(&a)).await && is_refused(permit(&b, 5)).await);
    freed(writer).await;
    nothing_is_left(&server);
}

/// Without a server, on a clock that stands still.
#[tokio::test(start_paused = true)]
async fn in_memory_the_same_goes_in_the_same_order() {
    let manager = LockManager::in_memory();
    let [first, second] = [taken(read(&manager)).await, taken(read(&manager)).await];
    let writers = [waits(write(&manager)).await, waits(permit(&manager, 2)).await];
    let reader = waits(read(&manager)).await;
    assert!(is_refused(read(&manager)).await && is_refused(permit(&manager, 5)).await);
    let [writer, permits] = writers;
    freed(first).await;
    sleep(LONG / 10).await;
    assert!(!writer.is_finished() && !permits.is_finished() && !reader.is_finished());
    freed(second).await;
    let writer = served(writer).await;
    sleep(LONG / 10).await;
    assert!(!permits.is_finished() && !reader.is_finished());
    let before = Instant::now();
    let writer = writer.downgrade().await.expect("it is held");
    let (permits, reader) = (served(permits).await, served(reader).await);
    assert!(before.elapsed() < ms(100), "they come in with it, and nobody has to look");
    // One that is not renewed ends by itself, and takes nothing from its fellow readers.
    let short = taken(read(&manager).ttl(LONG / 10).renew(false)).await;
    sleep(LONG / 5).await;
    assert!(!short.is_held() && reader.is_held() && writer.is_held() && permits.is_held());
    let last = waits(write(&manager)).await;
    for guard in [writer, permits, reader] {
        assert!(!last.is_finished());
        freed(guard).await;
    }
    freed(served(last).await).await;
    drop(short);
    assert!(manager.inspect("k").await.expect("an answer").is_free());
}

#[tokio::test(start_paused = true)]
async fn in_memory_a_reader_that_ran_out_keeps_no_writer() {
    let manager = LockManager::in_memory();
    for request in [read(&manager).renew(false), read(&manager).max_hold(LONG / 10)] {
        let leaked = taken(request.ttl(LONG / 10)).await;
        let writer = waits(write(&manager)).await;
        freed(served(writer).await).await;
        assert!(!leaked.is_held());
    }
}
