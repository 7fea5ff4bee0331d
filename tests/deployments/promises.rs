//! Where a deployment may give a lock twice it does here, once, and what the lock protects refuses the write of the one
//! with the smaller fencing token; and beside it what does not break. `tests/faults/README.md` has the whole table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockGuard, LockManager};
use distlock_testkit::{
    Cluster, LONG, Mode, Proxy, Quorum, RedisServer, SECOND, Sentinels, assert_busy, backend,
    connect, ms, patient, patient_builder, queue, wait_for, wait_within, whole_text,
};
use redis::{Connection, Value};
use tokio::task::JoinSet;

/// The one user the servers accept when they accept no other.
const USER: [&str; 8] = ["ACL", "SETUSER", "app", "on", ">hush", "~*", "&*", "+@all"];

/// Has the last word: `UPDATE … WHERE fence <= $1`.
#[derive(Default)]
struct Resource(AtomicU64);

impl Resource {
    fn write(&self, guard: &LockGuard) -> bool {
        self.0.fetch_max(guard.fencing_token(), SeqCst) <= guard.fencing_token()
    }

    /// Both take themselves for the holder.
    fn lets_one_write(&self, one: &LockGuard, other: &LockGuard) {
        assert!(one.is_held() && other.is_held(), "nobody has it twice: this test shows nothing");
        assert_ne!(one.fencing_token(), other.fencing_token());
        let (mut before, mut after) = (one, other);
        if before.fencing_token() > after.fencing_token() {
            (before, after) = (after, before);
        }
        assert!(self.write(before) && self.write(after));
        assert!(!self.write(before), "the write of the smaller token is refused");
        assert!(self.write(after), "and that of the other one is not");
    }
}

async fn act<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.expect("no panic")
}

async fn take(manager: &LockManager, key: &str) -> LockGuard {
    let taken = manager.lock(key.to_owned()).ttl(2 * LONG).wait(LONG).acquire().await;
    taken.expect("a lock")
}

fn user_at(server: &RedisServer) {
    server.cli::<()>(&USER);
}

/// Accepts only that user from now on: no replica and no sentinel. The returned connection still works.
fn cut_off(server: &RedisServer) -> Connection {
    let mut eye = server.eye();
    let mut cut = redis::pipe();
    cut.cmd("CONFIG").arg(&["SET", "requirepass", "another"]).ignore();
    cut.cmd("CLIENT").arg(&["KILL", "USER", "default", "SKIPME", "yes"]).ignore();
    cut.query::<()>(&mut eye).expect("it does so");
    eye
}

fn is_primary(eye: &mut Connection) -> bool {
    let role: Vec<Value> = redis::cmd("ROLE").query(eye).expect("it answers");
    role.first() == Some(&Value::BulkString(b"master".to_vec()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_that_loses_its_data_gives_a_lock_twice_and_the_fence_decides() {
    let server = RedisServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let first = take(&one, "k").await;
    let _server = server.blocking(RedisServer::restart_empty).await;
    let second = take(&other, "k").await;
    assert!(second.fencing_token() > first.fencing_token());
    Resource::default().lets_one_write(&first, &second);
}

/// A manager that hears of one sentinel alone, over a network that can be cut.
async fn by_one_sentinel(all: &Sentinels, options: &str) -> (LockManager, Proxy) {
    let sentinel = all.sentinel(0);
    // Which names no other sentinels to it.
    let mut user =
        Vec::from(["ACL", "SETUSER", "lone", "on", ">hush", "&*", "+hello", "+subscribe"]);
    user.extend(["+sentinel|get-master-addr-by-name", "+sentinel|master", "+sentinel|myid"]);
    sentinel.cli::<()>(&user);
    let network = Proxy::to(sentinel.addr());
    let url = format!(
        "redis-sentinel://app:hush@{}/shop?sentinel_user=lone&sentinel_pass=hush{options}",
        network.addr()
    );
    let builder = LockManager::builder().url(url).connect_timeout(10 * SECOND);
    (builder.connect().await.expect("connect"), network)
}

async fn watched() -> Sentinels {
    let all = act(|| {
        let all = Sentinels::start(3);
        (0..2).for_each(|server| user_at(all.server(server)));
        all
    });
    all.await
}

fn as_user(all: &Sentinels) -> String {
    all.url().replace("://", "://app:hush@")
}

/// The grant was answered, and the primary killed before its replica heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_replica_that_lags_gives_a_lock_twice_and_the_fence_decides() {
    let all = watched().await;
    let one = LockManager::connect(&as_user(&all)).await.expect("connect");
    drop(cut_off(all.server(0)));
    let first = take(&one, "k").await;
    let all = act(move || {
        let mut all = all;
        all.server_mut(0).kill9();
        all.wait_for_another(0, 0);
        all
    })
    .await;
    let other = connect(&as_user(&all)).await;
    let second = take(&other, "k").await;
    assert!(second.fencing_token() > first.fencing_token());
    Resource::default().lets_one_write(&first, &second);
}

/// One manager that takes a lock, has it for a moment, and takes it again until `over`.
async fn take_turns(
    manager: LockManager,
    ttl: Duration,
    taken: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
) {
    while !over.load(SeqCst) {
        let body = async {
            tokio::time::sleep(ms(20)).await;
            taken.fetch_add(1, SeqCst);
        };
        if manager.lock("k").ttl(ttl).wait(LONG).run(body).await.is_err() {
            tokio::time::sleep(ms(5)).await;
        }
    }
}

/// The replica has the holder and the waiters of 0.3 s ago, which were all served since. They are asked, so that
/// nobody waits for their leases and reservations one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc3_a_failover_to_a_replica_that_lags_keeps_no_turn_waiting() {
    const MANAGERS: u64 = 8;
    // Longer than a turn may take here: the lease of a holder whom the replica still has ends later than that.
    let ttl = 60 * SECOND;
    let all = watched().await;
    let (taken, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut turns = JoinSet::new();
    for _ in 0..MANAGERS {
        let manager = connect(&as_user(&all)).await;
        turns.spawn(take_turns(manager, ttl, taken.clone(), over.clone()));
    }
    wait_for("all take turns", async || taken.load(SeqCst) >= 3 * MANAGERS).await;
    drop(cut_off(all.server(0)));
    let cut = taken.load(SeqCst);
    tokio::time::sleep(ms(300)).await;
    wait_for("others are served", async || taken.load(SeqCst) >= cut + 3).await;
    let places = queue(all.server(1), "k").len();
    assert!(places > 2, "{places} places: this test shows nothing");
    let all = act(move || {
        let mut all = all;
        all.server_mut(0).kill9();
        wait_within(LONG, "the replica is promoted", || all.is_primary(1));
        all
    })
    .await;
    let (mut before, mut longest) = (taken.load(SeqCst), Duration::ZERO);
    let first = Instant::now();
    let mut begun = first;
    for turn in 0..3 * MANAGERS {
        // Longer than `wait_for` waits: the figure says more than its panic.
        while taken.load(SeqCst) <= before && begun.elapsed() < LONG {
            tokio::time::sleep(ms(2)).await;
        }
        longest = longest.max(begun.elapsed());
        if turn == 0 {
            #[expect(clippy::print_stdout, reason = "a figure")]
            {
                println!("{places} places; the first turn {:?} after promotion", first.elapsed());
            }
        }
        (before, begun) = (taken.load(SeqCst), Instant::now());
    }
    over.store(true, SeqCst);
    turns.join_all().await;
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("no turn for {longest:?} at most");
    }
    // A busy machine has ten times what it takes.
    assert!(longest < 13 * SECOND, "no turn for {longest:?}");
    drop(all);
}

/// On the side of the minority there are the old primary and a process that reaches no sentinel. It is given locks that
/// others have; nothing of the kind where replicas confirm every grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_cut_off_with_a_minority_gives_a_lock_twice_and_the_fence_decides() {
    let all = watched().await;
    let (one, network) = by_one_sentinel(&all, "").await;
    let (confirmed, other_network) = by_one_sentinel(&all, "&replicas=1").await;
    // One renewal that counted would move the end by four seconds.
    let ttl = 12 * SECOND;
    let safe = confirmed.lock("safe").ttl(ttl).acquire().await.expect("the replica is there");
    let mut eye = cut_off(all.server(0));
    for network in [&network, &other_network] {
        network.set(Mode::Freeze);
    }
    let cut = Instant::now();
    let all = act(move || {
        all.wait_for_another(0, 0);
        all
    })
    .await;
    let other = connect(&as_user(&all)).await;
    let second = take(&other, "k").await;
    let first = take(&one, "k").await;
    Resource::default().lets_one_write(&first, &second);
    let rest = first.remaining();
    first.extend(3 * LONG).await.expect("it is even extended there");
    assert!(first.remaining() > rest && is_primary(&mut eye));
    // Where the replica has to confirm it, nothing is given and nothing renewed.
    let refused = confirmed.lock("other").acquire().await.expect_err("no replica confirms it");
    assert!(whole_text(&refused).contains("0 of 1 replicas confirmed"), "{}", whole_text(&refused));
    tokio::time::timeout(LONG, safe.lost()).await.expect("its renewals count for nothing");
    assert!(cut.elapsed() < ttl + 3 * SECOND, "{:?}", cut.elapsed());
    assert!(is_primary(&mut eye), "it was told: this test shows nothing");
}

/// It was frozen while another took its place, and takes itself for the primary for a while when it goes on.
/// A client that reaches no sentinel believes it; one that asks a replica does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_wakes_gives_a_lock_twice_to_who_reaches_no_sentinel_and_the_fence_decides()
{
    let all = watched().await;
    let (one, network) = by_one_sentinel(&all, "").await;
    let (confirmed, other_network) = by_one_sentinel(&all, "&replicas=1").await;
    drop(take(&one, "before").await);
    for network in [&network, &other_network] {
        network.set(Mode::Freeze);
    }
    all.server(0).stop();
    let all = act(move || {
        all.wait_for_another(0, 0);
        all
    })
    .await;
    let other = connect(&as_user(&all)).await;
    let second = take(&other, "k").await;
    // The sentinels would announce its new role to it at any moment.
    (0..3).for_each(|sentinel| all.sentinel(sentinel).stop());
    all.server(0).cont();
    let first = take(&one, "k").await;
    Resource::default().lets_one_write(&first, &second);
    let refused = confirmed.lock("safe").acquire().await.expect_err("it has no replica any more");
    assert!(whole_text(&refused).contains("0 of 1 replicas confirmed"), "{}", whole_text(&refused));
    assert!(all.is_primary(0), "it was told: this test shows nothing");
    (0..3).for_each(|sentinel| all.sentinel(sentinel).cont());
}

/// A primary that reaches no other node gives locks until its node timeout is over, and its replica, which knows nothing
/// of them, gives them again when it has been elected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_cut_off_gives_locks_for_its_node_timeout_and_the_fence_decides() {
    let cluster = act(|| {
        let cluster = Cluster::start(3, 1);
        (0..6).for_each(|node| user_at(cluster.node(node)));
        cluster
    })
    .await;
    let url = cluster.url().replace("://", "://app:hush@");
    let key = cluster.key_at(0);
    let one = LockManager::builder().url(&url).command_timeout(ms(500)).connect().await;
    let one = one.expect("connect");
    drop(take(&one, &key).await);
    // However long it takes until it may ask for votes: it is to be elected.
    cluster.cli::<()>(3, &["CONFIG", "SET", "cluster-replica-validity-factor", "0"]);
    drop(cut_off(cluster.node(0)));
    // Its replica does not learn of it, and the others are still there: a busy machine has time for it.
    let first = take(&one, &key).await;
    (1..6).for_each(|node| cluster.stop(node));
    let cut = Instant::now();
    let mut given = cut.elapsed();
    let refused = loop {
        match one.lock(format!("{{{key}}}:{:?}", cut.elapsed())).acquire().await {
            Ok(guard) => drop(guard),
            Err(error) => break error,
        }
        given = cut.elapsed();
        assert!(given < LONG, "it goes on without end");
        tokio::time::sleep(ms(5)).await;
    };
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("the last lock {given:.1?} after it was cut off; then: {}", whole_text(&refused));
    }
    // The nodes look at each other ten times a second. A busy machine is given ten times the room.
    assert!(given < 10 * SECOND, "given {given:?} after it was cut off");
    let cluster = act(move || {
        let mut cluster = cluster;
        cluster.kill9(0);
        (1..6).for_each(|node| cluster.cont(node));
        cluster
    })
    .await;
    let other = patient_builder(&url).command_timeout(SECOND).build().expect("no I/O yet");
    let second = take(&other, &key).await;
    assert!(cluster.is_primary(3) && second.fencing_token() > first.fencing_token());
    Resource::default().lets_one_write(&first, &second);
}

/// A server is killed and comes back with its data: the holder keeps the lock, and its lease is renewed.
async fn stays_held(url: &str, key: &str, killed: impl Future<Output = ()>) {
    let (one, other) = (patient(url).await, patient(url).await);
    let held = one.lock(key).ttl(15 * SECOND).wait(LONG).acquire().await.expect("a lock");
    killed.await;
    let mut refused = None;
    wait_for("it answers again", async || {
        let tried = other.lock(key).acquire().await;
        let answers = tried.as_ref().map_or_else(|error| error.is_busy(), |_| true);
        refused = answers.then_some(tried);
        answers
    })
    .await;
    assert_busy(refused.expect("an answer"));
    // Its own connections may not be back yet.
    wait_for("it is extended", async || {
        let extended = held.extend(15 * SECOND).await;
        assert!(!extended.as_ref().is_err_and(LockError::is_lost), "it is ours: {extended:?}");
        extended.is_ok()
    })
    .await;
    held.release().await.expect("it was held all the time");
}

fn saved_and_killed(server: &mut RedisServer) {
    server.cli::<()>(&["SAVE"]);
    server.restart();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_back_with_its_data_before_the_sentinels_act_leaves_locks_held() {
    let mut all = act(|| Sentinels::start(3)).await;
    all.set_down_after(LONG);
    stays_held(&all.url(), "k", async {
        tokio::task::block_in_place(|| saved_and_killed(all.server_mut(0)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_back_with_its_data_leaves_locks_held() {
    let mut cluster = act(|| Cluster::start(3, 0)).await;
    let key = cluster.key_at(0);
    let url = cluster.url();
    stays_held(&url, &key, async {
        tokio::task::block_in_place(|| {
            cluster.cli::<()>(0, &["SAVE"]);
            cluster.restart(0);
        });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_quorum_that_is_back_with_its_data_leaves_locks_held() {
    let mut quorum = Quorum::of(3);
    stays_held(&quorum.url(), "k", async {
        tokio::task::block_in_place(|| quorum.nodes.iter_mut().for_each(saved_and_killed));
    })
    .await;
}

/// With the sentinels, with replicas and without: what is out of reach gives nothing.
#[tokio::test]
async fn one_server_that_is_down_gives_nothing() {
    let mut server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let held = manager.lock("k").ttl(2 * SECOND).acquire().await.expect("a lock");
    server.kill9();
    tokio::time::timeout(LONG, held.lost()).await.expect("it ends by its deadline");
    let refused = manager.lock("other").acquire().await;
    assert_eq!(backend(refused), BackendKind::Unreachable);
}
