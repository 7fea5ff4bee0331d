//! Redis Cluster: locks over shards, while slots move and primaries die.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockGuard, LockManager, LockMode, LockStatus};
use distlock_testkit::{
    Certificates, Cluster, LONG, RedisServer, SECOND, assert_busy, backend, connect, major_version,
    ms, patient_builder, wait_for, whole_text,
};
use tokio::task::JoinHandle;

/// Redis has them since 7.0. In an older cluster waiters look, and no holder is asked for its fencing token.
fn has_shard_channels() -> bool {
    major_version() >= 7
}

/// For all that leaves it as it was.
static SHARED: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(3, 0));

async fn shared() -> &'static Cluster {
    tokio::task::spawn_blocking(|| &*SHARED).await.expect("it starts")
}

async fn one_of_its_own(replicas: usize) -> Cluster {
    let start = move || Cluster::start(3, replicas);
    tokio::task::spawn_blocking(start).await.expect("it starts")
}

/// What a test does with the cluster itself, off the runtime.
async fn act<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.expect("no panic")
}

async fn take(manager: &LockManager, key: &str) -> LockGuard {
    manager.lock(key.to_owned()).ttl(LONG).acquire().await.expect("granted")
}

/// A call that waits for the lock by now.
async fn waiter(manager: &LockManager, key: &str) -> JoinHandle<Result<LockGuard, LockError>> {
    let before = manager.status().waiting;
    let request = manager.lock(key.to_owned()).ttl(LONG).wait(LONG);
    let call = tokio::spawn(async move { request.acquire().await });
    wait_for("it waits", async || manager.status().waiting > before).await;
    call
}

async fn joined(call: JoinHandle<Result<LockGuard, LockError>>) -> LockGuard {
    call.await.expect("no panic").expect("granted")
}

async fn nothing_is_left(cluster: &'static Cluster, keys: &[&str]) {
    let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
    wait_for("nothing is left", async || {
        let keys = keys.clone();
        act(move || {
            let left = cluster.lock_keys();
            !keys.iter().any(|key| left.iter().any(|left| left.contains(key)))
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_taken_waited_for_and_handed_on_in_every_shard() {
    let cluster = shared().await;
    let (manager, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for shard in 0..3 {
        let key = cluster.key_at(shard);
        let mut last = 0;
        for _ in 0..3 {
            let guard = take(&manager, &key).await;
            assert!(guard.fencing_token() > last);
            last = guard.fencing_token();
            assert_busy(other.lock(&*key).acquire().await);
            guard.release().await.expect("it was held");
        }
        let guard = take(&other, &key).await;
        assert!(guard.fencing_token() > last, "another process counts on");
        let waits = waiter(&manager, &key).await;
        let answers = async || match manager.inspect(&*key).await {
            Ok(LockStatus::Held { holders, .. }) => {
                holders[0].fencing_token == Some(guard.fencing_token())
            }
            status => panic!("it is held, not {status:?}"),
        };
        if has_shard_channels() {
            wait_for("the holder answers", answers).await;
        }
        last = guard.fencing_token();
        guard.release().await.expect("it was held");
        let guard = joined(waits).await;
        assert!(guard.fencing_token() > last);
        assert!(other.force_release(&*key).await.expect("an answer"));
        guard.lost().await;
        drop(guard);
        nothing_is_left(cluster, &[&key]).await;
    }
    let processes = manager.processes().await.expect("a list");
    assert!(processes.len() >= 2, "{processes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_permits_and_the_way_from_write_to_read() {
    let cluster = shared().await;
    let (manager, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let (shared, permits) = (cluster.key_at(0), cluster.key_at(1));
    let read = |manager: &LockManager| manager.lock(&*shared).mode(LockMode::Read).ttl(LONG);
    let writer = manager.lock(&*shared).mode(LockMode::Write).ttl(LONG).acquire().await;
    let writer = writer.expect("granted");
    let first = writer.downgrade().await.expect("it was held");
    let second = read(&other).acquire().await.expect("beside the first");
    let waits = waiter(&other, &shared).await;
    drop((first, second));
    drop(joined(waits).await);
    let of_two = |manager: &LockManager| manager.lock(&*permits).permits(2).ttl(LONG);
    let held = [of_two(&manager).acquire().await, of_two(&other).acquire().await];
    assert_busy(of_two(&other).acquire().await);
    drop(held);
    nothing_is_left(cluster, &[&shared, &permits]).await;
}

/// A waiter is notified and does not poll: the poll of a first waiter would come after the ttl.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_the_next_process_within_its_shard() {
    if !has_shard_channels() {
        return;
    }
    let cluster = shared().await;
    let managers = [connect(&cluster.url()).await, connect(&cluster.url()).await];
    let key = cluster.key_at(2);
    // The first waiter of a slot has its channel subscribed: each manager waits in its turn.
    for round in 0..4 {
        let guard = take(&managers[round % 2], &key).await;
        let waits = waiter(&managers[(round + 1) % 2], &key).await;
        wait_for("its channel is subscribed", async || {
            let key = key.clone();
            act(move || {
                let slot = cluster.slot(&key);
                let node = cluster.primary_of(slot);
                let channels: Vec<String> = cluster.cli(node, &["PUBSUB", "SHARDCHANNELS"]);
                let of_slot = channels.iter().filter(|channel| cluster.slot(channel) == slot);
                of_slot.count() == (round + 1).min(2)
            })
            .await
        })
        .await;
        // The token that says so is in the queue a moment later.
        tokio::time::sleep(ms(100)).await;
        let begun = Instant::now();
        guard.release().await.expect("it was held");
        drop(joined(waits).await);
        assert!(begun.elapsed() < SECOND, "{:?}: a look, and no message", begun.elapsed());
    }
    nothing_is_left(cluster, &[&key]).await;
}

/// Each step of moving a slot key by key lasts for longer than the lease.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_lease_is_kept_while_its_slot_stands_between_two_nodes() {
    let cluster = shared().await;
    let (manager, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let (alone, readers) = (cluster.key_at(0), cluster.key_at(0));
    const TTL: Duration = ms(1500);
    let guard = manager.lock(&*alone).ttl(TTL).acquire().await.expect("granted");
    let reader = manager.lock(&*readers).mode(LockMode::Read).ttl(TTL).acquire().await;
    let reader = reader.expect("granted");
    // A queue stands on the other side than its lock.
    let waits = waiter(&other, &alone).await;
    let slots = [&alone, &readers].map(|key| cluster.slot(key));
    let names = [&alone, &readers].map(|key| format!("distlock:lock:{{{key}}}"));
    act(move || slots.map(|slot| cluster.open_move(slot, 1))).await;
    tokio::time::sleep(TTL * 3 / 2).await;
    act(move || names.map(|name| cluster.move_key(&name, 0, 1))).await;
    tokio::time::sleep(TTL * 3 / 2).await;
    assert!(guard.is_held() && reader.is_held());
    act(move || slots.map(|slot| cluster.move_keys(slot, 0, 1))).await;
    tokio::time::sleep(TTL * 3 / 2).await;
    assert!(guard.is_held() && reader.is_held());
    act(move || slots.map(|slot| assert!(cluster.close_move(slot, 0, 1)))).await;
    tokio::time::sleep(TTL * 3 / 2).await;
    let last = guard.fencing_token();
    guard.release().await.expect("it was held all the time");
    reader.release().await.expect("it was held all the time");
    let next = joined(waits).await;
    assert!(next.fencing_token() > last, "the counter has moved with its slot");
    drop(next);
    nothing_is_left(cluster, &[&alone, &readers]).await;
    act(move || slots.map(|slot| cluster.migrate(slot, 0))).await;
}

/// Slots set out from one node to another, where they do not arrive: with none of their keys (step 0), with one, or
/// with all of them.
fn set_out(cluster: &Cluster, slots: &[u16], (from, to): (usize, usize), step: usize) {
    for slot in slots {
        cluster.open_move(*slot, to);
        if step == 1 {
            let keys: Vec<String> =
                cluster.cli(from, &["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1"]);
            keys.iter().for_each(|key| cluster.move_key(key, from, to));
        }
        if step == 2 {
            cluster.move_keys(*slot, from, to);
        }
    }
}

/// They do.
fn arrive(cluster: &Cluster, slots: &[u16], (from, to): (usize, usize)) {
    for slot in slots {
        while !{
            cluster.move_keys(*slot, from, to);
            cluster.close_move(*slot, from, to)
        } {}
    }
}

/// Others see that a process waits.
async fn is_awaited(manager: &LockManager, key: &str) {
    wait_for("it stands in the queue", async || {
        matches!(manager.inspect(key).await, Ok(LockStatus::Held { waiting: 1, .. }))
    })
    .await;
}

/// A holder can release while the lock's slot is moving between two nodes; a waiter gets the lock when the
/// slot has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_lock_is_given_back_while_its_slot_stands_between_two_nodes() {
    let cluster = shared().await;
    let manager = patient_builder(&cluster.url()).connect().await.expect("connect");
    let other = patient_builder(&cluster.url()).connect().await.expect("connect");
    for step in 0..3 {
        let keys: Vec<String> = (0..3).map(|_| cluster.key_at(0)).collect();
        let slots: Vec<u16> = keys.iter().map(|key| cluster.slot(key)).collect();
        let [lone, awaited, read] = <[String; 3]>::try_from(keys.clone()).expect("three");
        let reader = |manager: &LockManager| manager.lock(&*read).mode(LockMode::Read).ttl(LONG);
        let (lone, held) = (take(&manager, &lone).await, take(&manager, &awaited).await);
        let readers = (reader(&manager).acquire().await, reader(&other).acquire().await);
        let (one, two) = (readers.0.expect("granted"), readers.1.expect("granted"));
        let (waits, last) = (waiter(&other, &awaited).await, held.fencing_token());
        is_awaited(&manager, &awaited).await;
        let of_step = slots.clone();
        act(move || set_out(cluster, &of_step, (0, 1), step)).await;
        let released =
            tokio::join!(lone.release(), held.release(), async { (one.release().await, two) });
        let (lone, held, (one, two)) = released;
        lone.expect("it was held");
        held.expect("it was held");
        one.expect("it was held");
        assert!(two.is_held(), "step {step}: one reader is left");
        two.release().await.expect("it was held");
        let left = act(move || cluster.lock_keys()).await;
        let is_lock =
            |key: &String| keys.iter().any(|own| key.ends_with(&format!(":lock:{{{own}}}")));
        // Before 7.0 a script is carried out where all of its keys have gone: then the waiter's turn has come there.
        if major_version() >= 7 || step < 2 {
            assert!(!left.iter().any(is_lock), "step {step}: {left:?}");
        }
        let of_step = slots.clone();
        act(move || arrive(cluster, &of_step, (0, 1))).await;
        let next = joined(waits).await;
        assert!(next.fencing_token() > last, "the counter has moved with its slot");
        next.release().await.expect("it was held");
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        nothing_is_left(cluster, &keys).await;
        act(move || slots.iter().for_each(|slot| cluster.migrate(*slot, 0))).await;
    }
}

/// The node that a slot leaves refuses what is not there any more, also what a script has removed a moment before.
#[tokio::test(flavor = "multi_thread")]
async fn d5_no_script_is_done_by_half_at_the_node_that_a_slot_leaves() {
    let cluster = shared().await;
    let manager = patient_builder(&cluster.url()).connect().await.expect("connect");
    let other = patient_builder(&cluster.url()).connect().await.expect("connect");
    let keys: Vec<String> = (0..3).map(|_| cluster.key_at(2)).collect();
    let slots: Vec<u16> = keys.iter().map(|key| cluster.slot(key)).collect();
    let [handed, read, write] = <[String; 3]>::try_from(keys).expect("three");
    let reads = |key: &str| {
        let request = other.lock(key.to_owned()).mode(LockMode::Read).ttl(LONG).wait(LONG);
        tokio::spawn(async move { request.acquire().await })
    };
    // Every key of each of them is there.
    let (guard, before_readers) = (take(&manager, &handed).await, take(&manager, &read).await);
    let writer = manager.lock(&*write).mode(LockMode::Write).ttl(LONG).acquire().await;
    let writer = writer.expect("granted");
    let waits = waiter(&other, &handed).await;
    let (reader, beside) = (reads(&read), reads(&write));
    for key in [&handed, &read, &write] {
        is_awaited(&manager, key).await;
    }
    let of_step = slots.clone();
    act(move || set_out(cluster, &of_step, (2, 0), 0)).await;
    let calls =
        async { tokio::join!(guard.release(), before_readers.release(), writer.downgrade()) };
    let arrives = async {
        tokio::time::sleep(ms(300)).await;
        let slots = slots.clone();
        act(move || arrive(cluster, &slots, (2, 0))).await;
    };
    let ((handed, released, downgraded), ()) = tokio::join!(calls, arrives);
    handed.expect("it was held");
    released.expect("it was held");
    let downgraded = downgraded.expect("it was held all the time");
    let beside = joined(beside).await;
    assert!(downgraded.is_held() && beside.is_held());
    drop((joined(waits).await, joined(reader).await));
    act(move || slots.iter().for_each(|slot| cluster.migrate(*slot, 2))).await;
}

/// Whatever is asked for while a slot stands between two nodes is done when it has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn d5_every_command_waits_for_the_end_of_a_move() {
    let cluster = shared().await;
    let manager = patient_builder(&cluster.url()).connect().await.expect("connect");
    for step in 0..3 {
        let keys: Vec<String> = (0..5).map(|_| cluster.key_at(1)).collect();
        let slots: Vec<u16> = keys.iter().map(|key| cluster.slot(key)).collect();
        let [free, held, read, write, seen] = <[String; 5]>::try_from(keys).expect("five");
        let guard = take(&manager, &held).await;
        let writer = manager.lock(&*write).mode(LockMode::Write).ttl(LONG).acquire().await;
        let writer = writer.expect("granted");
        let kept = take(&manager, &seen).await;
        let of_step = slots.clone();
        act(move || set_out(cluster, &of_step, (1, 2), step)).await;
        let calls = async {
            let reader = manager.lock(&*read).mode(LockMode::Read).ttl(LONG).acquire();
            let takes = manager.lock(&*free).ttl(LONG).acquire();
            tokio::join!(
                takes,
                guard.release(),
                reader,
                writer.downgrade(),
                manager.inspect(&*seen),
                kept.extend(LONG)
            )
        };
        let arrives = async {
            tokio::time::sleep(ms(300)).await;
            let slots = slots.clone();
            act(move || arrive(cluster, &slots, (1, 2))).await;
        };
        let (done, ()) = tokio::join!(calls, arrives);
        let (taken, released, reader, downgraded, status, extended) = done;
        let _guards =
            (taken.expect("granted"), reader.expect("granted"), downgraded.expect("it was held"));
        released.expect("it was held");
        extended.expect("it is held");
        assert!(matches!(status, Ok(LockStatus::Held { .. })), "step {step}: {status:?}");
        assert_busy(manager.lock(&*free).acquire().await);
        act(move || slots.iter().for_each(|slot| cluster.migrate(*slot, 1))).await;
    }
}

/// A manager with an old map is redirected by every command in turn.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_slot_that_has_moved_costs_a_redirect() {
    let cluster = shared().await;
    let (manager, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let key = cluster.key_at(2);
    let slot = cluster.slot(&key);
    let mut last = 0;
    for to in [0, 1, 2, 0, 2] {
        let guard = take(&manager, &key).await;
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        let waits = waiter(&other, &key).await;
        act(move || cluster.migrate(slot, to)).await;
        guard.extend(LONG).await.expect("it is held");
        guard.release().await.expect("it was held");
        let guard = joined(waits).await;
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        guard.release().await.expect("it was held");
    }
    nothing_is_left(cluster, &[&key]).await;
}

/// Counters of different slots differ: those of several locks are brought level.
#[tokio::test(flavor = "multi_thread")]
async fn several_locks_over_shards_have_a_token_below_all_that_follow() {
    let cluster = shared().await;
    let (manager, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let keys: Vec<String> = (0..3).map(|shard| cluster.key_at(shard)).collect();
    // One counter is far ahead: the clock of its node was wrong for a while.
    let ahead = cluster.slot(&keys[1]);
    take(&manager, &keys[1]).await.release().await.expect("it was held");
    act(move || {
        let node = cluster.primary_of(ahead);
        let counters: Vec<String> = cluster.cli(node, &["KEYS", "distlock:fence:*"]);
        let of_slot = |counter: &&String| cluster.slot(counter) == ahead;
        let counter = counters.iter().find(of_slot).expect("a counter");
        cluster.cli::<i64>(node, &["INCRBY", counter, "3600000000"]);
    })
    .await;
    let several = manager.lock_all(keys.clone()).ttl(LONG).acquire().await.expect("granted");
    let token = several.fencing_token();
    several.release().await.expect("they were held");
    for key in &keys {
        let later = take(&other, key).await;
        assert!(later.fencing_token() > token, "{} after {token}", later.fencing_token());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_locks_over_all_slots_need_three_connections_to_each_primary() {
    let cluster = shared().await;
    // A user of its own: the other tests connect to this cluster as well.
    let user = ["ACL", "SETUSER", "many", "on", ">hush", "~*", "&*", "+@all"];
    act(move || (0..3).for_each(|node| cluster.cli::<()>(node, &user))).await;
    let count = || {
        (0..3)
            .map(|node| {
                let clients: String = cluster.cli(node, &["CLIENT", "LIST"]);
                clients.lines().filter(|client| client.contains(" user=many ")).count()
            })
            .max()
            .expect("three")
    };
    let manager = connect(&cluster.url().replacen("://", "://many:hush@", 1)).await;
    let mut guards = Vec::new();
    for n in 0..500 {
        guards.push(take(&manager, &format!("many-locks-{n}")).await);
    }
    let after = act(count).await;
    // For commands, for renewals and for messages; and one more somewhere, for what is about processes.
    assert!((1..=4).contains(&after), "{after} connections to one primary");
    for guard in guards {
        guard.release().await.expect("it was held");
    }
}

/// Counts how many are inside, and how many were.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
    runs: AtomicUsize,
}

impl Inside {
    async fn work(&self) {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        tokio::time::sleep(ms(2)).await;
        self.now.fetch_sub(1, SeqCst);
        self.runs.fetch_add(1, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_one_at_a_time_while_the_slot_moves_about() {
    let cluster = shared().await;
    let (key, inside) = (cluster.key_at(0), Arc::new(Inside::default()));
    let slot = cluster.slot(&key);
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let manager = connect(&cluster.url()).await;
        let (key, inside) = (key.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..60 {
                let guard = manager.lock(&*key).ttl(LONG).wait(LONG).acquire().await;
                let guard = guard.expect("granted");
                assert!(guard.fencing_token() > last);
                last = guard.fencing_token();
                inside.work().await;
                guard.release().await.expect("it was held");
            }
        }));
    }
    // It ends with the tasks, also if one of them panics.
    let working = Arc::new(());
    let moves = tokio::spawn(act({
        let working = Arc::downgrade(&working);
        move || {
            let mut moves = 0;
            while working.strong_count() > 0 {
                cluster.migrate(slot, moves % 3);
                moves += 1;
                // A slot that is always moving serves no caller.
                std::thread::sleep(ms(20));
            }
            cluster.migrate(slot, 0);
            moves
        }
    }));
    let mut worked = Vec::new();
    for task in tasks {
        worked.push(task.await);
    }
    drop(working);
    let moves = moves.await.expect("no panic");
    worked.into_iter().for_each(|task| task.expect("no panic"));
    assert!(moves > 3, "{moves} moves");
    assert_eq!(inside.most.load(SeqCst), 1);
    nothing_is_left(cluster, &[&key]).await;
}

/// A body goes on over a fail-over, waiters keep their places, and other shards are not concerned.
#[tokio::test(flavor = "multi_thread")]
async fn d6_a_primary_that_dies_is_followed_by_its_replica() {
    let mut cluster = one_of_its_own(1).await;
    let url = cluster.url();
    let (manager, other) = (connect(&url).await, connect(&url).await);
    let keys: Vec<String> = (0..3).map(|shard| cluster.key_at(shard)).collect();
    let guard = take(&manager, &keys[0]).await;
    let waits = waiter(&other, &keys[0]).await;
    let elsewhere = take(&manager, &keys[1]).await;
    let token = guard.fencing_token();
    // What was granted has come to the replica.
    wait_for("the replica has it", async || {
        cluster.cli::<usize>(3, &["DBSIZE"]) == cluster.cli::<usize>(0, &["DBSIZE"])
    })
    .await;
    let cluster = act(move || {
        cluster.kill9(0);
        cluster
    })
    .await;
    let begun = Instant::now();
    let next = cluster.key_at(1);
    let free = format!("{{{}}}:free", keys[0]);
    let granted = manager.lock(&*free).ttl(LONG).wait(LONG).acquire().await.expect("granted");
    assert!(cluster.is_primary(3));
    assert!(begun.elapsed() < 10 * SECOND, "{:?} after the kill", begun.elapsed());
    guard.release().await.expect("it was held all the time");
    let later = joined(waits).await;
    assert!(later.fencing_token() > token);
    elsewhere.release().await.expect("it was held all the time");
    take(&other, &next).await.release().await.expect("it was held");
    drop((granted, later));
}

/// Whichever shard it is that is down while a process starts.
#[tokio::test(flavor = "multi_thread")]
async fn d6_a_process_that_starts_while_one_shard_is_down_uses_the_others() {
    let start = || Cluster::builder(3).args(["--cluster-require-full-coverage", "no"]).start();
    let mut cluster = act(start).await;
    for shard in 0..3 {
        cluster = act(move || {
            cluster.kill9(shard);
            cluster
        })
        .await;
        let manager = patient_builder(&cluster.url()).connect().await.expect("two shards are up");
        let key = cluster.key_at((shard + 1) % 3);
        take(&manager, &key).await.release().await.expect("it was held");
        cluster = act(move || {
            cluster.restart(shard);
            cluster.wait_until_whole();
            cluster
        })
        .await;
    }
}

/// What was sent to a primary that stands still is carried out when it goes on, although another one has its slots
/// by then.
#[tokio::test(flavor = "multi_thread")]
async fn d3_a_primary_that_wakes_up_is_not_believed() {
    let cluster = one_of_its_own(1).await;
    let builder = || LockManager::builder().url(cluster.url()).command_timeout(ms(500));
    let manager = builder().connect().await.expect("connect");
    let other = builder().connect().await.expect("connect");
    let key = cluster.key_at(0);
    let granted = async |by: &LockManager| {
        by.lock(&*key).ttl(LONG).wait(LONG).acquire().await.expect("granted")
    };
    drop(granted(&manager).await);
    wait_for("it is free", async || manager.inspect(&*key).await.is_ok_and(|at| at.is_free()))
        .await;
    cluster.stop(0);
    let parked = manager.lock(&*key).ttl(LONG).acquire().await;
    assert_eq!(backend(parked), BackendKind::TimedOut);
    let guard = granted(&other).await;
    assert!(cluster.is_primary(3), "by the replica");
    cluster.cont(0);
    for _ in 0..20 {
        let refused = manager.lock(&*key).ttl(LONG).acquire().await.expect_err("it is held");
        // On a busy machine some answers come too late.
        assert!(refused.is_busy() || backend::<()>(Err(refused)) == BackendKind::TimedOut);
        tokio::time::sleep(ms(20)).await;
    }
    assert!(guard.is_held());
    drop(guard);
    drop(granted(&manager).await);
}

/// The nodes that a node names are connected to with TLS as well; a client that trusts another authority gets
/// an error that says so.
#[tokio::test(flavor = "multi_thread")]
async fn over_tls_locks_are_handed_on_in_every_shard() {
    let ours = Certificates::new();
    let local = ours.issue("local", &["IP:127.0.0.1"]);
    let cluster = act(move || Cluster::builder(3).tls(&local).start()).await;
    let plain = cluster.url();
    let url = plain.replace("redis-cluster", "rediss-cluster");
    let url = format!("{url}?ca={}&tls_roots=none", ours.ca().display());
    let (manager, other) = (connect(&url).await, connect(&url).await);
    for shard in 0..3 {
        let key = cluster.key_at(shard);
        let guard = take(&other, &key).await;
        let waits = waiter(&manager, &key).await;
        guard.release().await.expect("it was held");
        joined(waits).await.release().await.expect("it was held");
    }
    let foreign = Certificates::new();
    let path = |certificates: &Certificates| certificates.ca().display().to_string();
    let foreign = url.replace(&path(&ours), &path(&foreign));
    for (url, mend) in [(plain, "rediss"), (foreign, "ca=")] {
        let begun = Instant::now();
        let error = patient_builder(&url).connect().await.expect_err("it must be refused");
        let text = whole_text(&error);
        assert!(text.contains(mend), "{mend:?} is not in: {text}");
        assert!(begun.elapsed() < 10 * SECOND, "only after {:?}: {text}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_refused_at_once() {
    let server = act(RedisServer::start).await;
    let begun = Instant::now();
    let url = format!("redis-cluster://:hunter2@{}", server.addr());
    let error = LockManager::connect(&url).await.expect_err("it has a password");
    assert!(!whole_text(&error).contains("hunter2"), "{error}");
    let url = format!("redis-cluster://{}", server.addr());
    let error = LockManager::connect(&url).await.expect_err("no cluster");
    assert!(whole_text(&error).contains("use redis://"), "{}", whole_text(&error));
    assert!(begun.elapsed() < 10 * SECOND);
}
