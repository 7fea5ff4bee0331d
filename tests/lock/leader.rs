//! Leader election: of all processes one leads, never two, and when it is gone the next one.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use distlock::testing::Locks;
use distlock::{Leadership, LockError, LockManager, Term};
use distlock_testkit::{RedisServer, SECOND, connect_all, nothing_is_left, queue, wait_for};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const KEY: &str = "scheduler";
const TTL: Duration = Duration::from_secs(10);

/// The leader's seat: a body counts itself in and out, and panics if it is not alone.
#[derive(Clone, Default)]
struct Throne {
    leaders: Arc<AtomicUsize>,
    terms: Arc<AtomicU32>,
}

struct Seated(Arc<AtomicUsize>);

impl Drop for Seated {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Throne {
    fn sit(&self) -> Seated {
        assert_eq!(self.leaders.fetch_add(1, SeqCst), 0, "two lead at once");
        self.terms.fetch_add(1, SeqCst);
        Seated(self.leaders.clone())
    }

    fn campaign(&self, manager: LockManager) -> JoinHandle<Result<(), LockError>> {
        let throne = self.clone();
        tokio::spawn(manager.leader(KEY).ttl(TTL).name("lead").run(move |_| {
            let throne = throne.clone();
            async move {
                let _seated = throne.sit();
                pending::<()>().await
            }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_one_when_it_is_killed() {
    let locks = Locks::new();
    let throne = Throne::default();
    let replicas = ["a", "b", "c"].map(|name| locks.replica(name));
    let campaigns: Vec<_> = replicas.iter().map(|one| throne.campaign(one.manager())).collect();
    for (n, replica) in replicas.iter().enumerate() {
        sleep(60 * SECOND).await;
        assert_eq!(throne.terms.load(SeqCst), n as u32 + 1, "a term is renewed");
        let begin = Instant::now();
        replica.kill();
        sleep(Duration::ZERO).await;
        if n < 2 {
            wait_for("the next one leads", async || throne.terms.load(SeqCst) == n as u32 + 2)
                .await;
            assert!(begin.elapsed() <= TTL + SECOND / 4, "{:?}", begin.elapsed());
        }
    }
    assert_eq!(locks.history(KEY).replicas(), ["a", "b", "c"]);
    locks.assert_never_together(KEY);
    campaigns.into_iter().for_each(|campaign| campaign.abort());
}

/// Still a leader while it tries to come back: another has been elected long since.
#[tokio::test(start_paused = true)]
async fn who_cannot_reach_the_store_does_not_lead_after_its_term() {
    let locks = Locks::new();
    let (a, b) = (locks.replica("a"), locks.replica("b"));
    let throne = Throne::default();
    let asked = a.manager().leader("asked").ttl(TTL).start();
    wait_for("it leads", async || asked.is_leader()).await;
    let cut_off = throne.campaign(a.manager());
    locks.until_held(KEY).await;
    let next = throne.campaign(b.manager());
    let alone = a.cut_off();
    sleep(TTL).await;
    assert_eq!(throne.leaders.load(SeqCst), 0, "its body was dropped in time");
    assert!(!asked.is_leader() && matches!(asked.current(), Leadership::Following));
    wait_for("another leads", async || throne.terms.load(SeqCst) == 2).await;
    sleep(60 * SECOND).await;
    alone.end();
    sleep(60 * SECOND).await;
    assert_eq!(throne.terms.load(SeqCst), 2, "who comes back waits for its turn");
    assert!(asked.is_leader(), "nobody else wanted that one");
    locks.assert_never_together(KEY);
    cut_off.abort();
    next.abort();
}

/// Otherwise the lease of a dead body would be renewed for ever, and its work not done.
#[tokio::test(start_paused = true)]
async fn a_body_that_panics_or_fails_leads_no_more() {
    let locks = Locks::new();
    let (a, b) = (locks.replica("a").manager(), locks.replica("b").manager());
    let panics = tokio::spawn(a.leader(KEY).run(|_| async {
        sleep(SECOND).await;
        if true {
            panic!("a bug");
        }
    }));
    locks.until_held(KEY).await;
    let terms = Arc::new(AtomicU32::new(0));
    let counted = terms.clone();
    let fails = tokio::spawn(b.leader(KEY).run(move |_| {
        counted.fetch_add(1, SeqCst);
        async {
            sleep(2 * SECOND).await;
            Err("the disk is full")
        }
    }));
    let begin = Instant::now();
    assert!(panics.await.expect_err("it panics").is_panic());
    wait_for("the other leads", async || terms.load(SeqCst) == 1).await;
    assert!(begin.elapsed() < 2 * SECOND, "{:?}", begin.elapsed());
    sleep(60 * SECOND).await;
    // Each term is 2 s, and a pause between them that grows to 5 s.
    let failed = terms.load(SeqCst);
    assert!((8..30).contains(&failed), "{failed}");
    fails.abort();
}

/// A body that returns at once must not turn the election into a busy loop.
#[tokio::test(start_paused = true)]
async fn terms_that_end_at_once_are_far_apart() {
    let locks = Locks::new();
    let manager = locks.manager();
    let campaign = tokio::spawn(manager.leader(KEY).run(|_| async {}));
    sleep(60 * SECOND).await;
    let terms = locks.history(KEY).len();
    assert!((10..50).contains(&terms), "{terms}");
    campaign.abort();
}

/// A leader that takes longer to begin than its lease lasts keeps it all the same.
#[tokio::test(start_paused = true)]
async fn a_leader_may_take_its_time_to_begin() {
    let locks = Locks::new();
    let begun = Arc::new(AtomicU32::new(0));
    let counted = begun.clone();
    let slow = tokio::spawn(locks.manager().leader(KEY).ttl(SECOND).run(move |term: Term| {
        let counted = counted.clone();
        async move {
            sleep(60 * SECOND).await;
            assert!(term.is_current() && term.age() >= 60 * SECOND);
            counted.fetch_add(1, SeqCst);
            loop {
                sleep(SECOND).await;
            }
        }
    }));
    sleep(90 * SECOND).await;
    assert_eq!(begun.load(SeqCst), 1);
    assert_eq!(locks.history(KEY).len(), 1);
    slow.abort();
}

/// There has to be a way to give the lead to another.
#[tokio::test(start_paused = true)]
async fn a_leader_that_resigns_is_followed_by_the_next_and_campaigns_again_behind_it() {
    let locks = Locks::new();
    let [a, mut b] = ["a", "b"].map(|name| locks.replica(name).manager().leader(KEY).start());
    wait_for("a leads", async || a.is_leader()).await;
    let Leadership::Leading(first) = a.current() else { panic!("{a:?}") };
    let begin = Instant::now();
    a.resign().await;
    assert!(!first.is_current(), "before anybody else leads");
    assert!(matches!(b.changed().await, Leadership::Leading(_)));
    assert!(begin.elapsed() < SECOND / 100, "{:?}", begin.elapsed());
    assert!(b.is_leader() && !a.is_leader());
    let Leadership::Leading(second) = b.current() else { panic!("{b:?}") };
    assert!(first.fencing_token() < second.fencing_token());

    sleep(60 * SECOND).await;
    b.clone().withdraw().await;
    assert!(matches!(b.current(), Leadership::Withdrawn));
    wait_for("a leads again", async || a.is_leader()).await;
    drop(a);
    sleep(SECOND).await;
    assert!(!locks.lose(KEY), "whose last handle is gone does not lead");
    locks.assert_never_together(KEY);
}

#[tokio::test(start_paused = true)]
async fn a_campaign_ends_with_its_manager_and_with_options_that_cannot_work() {
    let locks = Locks::new();
    let manager = locks.manager();
    let campaign = tokio::spawn(manager.leader(KEY).run(|_| pending::<()>()));
    let asked = manager.leader("asked").start();
    locks.until_held(KEY).await;
    wait_for("it leads", async || asked.is_leader()).await;
    assert!(manager.close(10 * SECOND).await.is_complete());
    campaign.await.expect("no panic").expect("it is over");
    wait_for("it is over", async || matches!(asked.current(), Leadership::Withdrawn)).await;

    let manager = locks.replica("other").manager();
    let hopeless = manager.leader("").run(|_| pending::<()>()).await;
    assert!(matches!(hopeless, Err(LockError::InvalidKey { .. })), "{hopeless:?}");
    let mut hopeless = manager.leader(KEY).ttl(Duration::ZERO).start();
    assert!(matches!(hopeless.changed().await, Leadership::Withdrawn));
    hopeless.resign().await;
}

/// A resignation is no failure: with a pause behind it, all that resign would pause in the end and none lead.
#[tokio::test(start_paused = true)]
async fn whoever_resigns_campaigns_again_without_a_pause() {
    let mut leader = LockManager::in_memory().leader(KEY).ttl(TTL).start();
    let begun = Instant::now();
    for _ in 0..10 {
        while !leader.is_leader() {
            leader.changed().await;
        }
        leader.resign().await;
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn on_a_server_three_processes_take_turns_and_leave_nothing() {
    let server = RedisServer::start();
    let managers = connect_all::<3>(&server.url()).await;
    let leaders = managers.each_ref().map(|manager| manager.leader(KEY).ttl(TTL).start());
    let who = || (0..3).filter(|n| leaders[*n].is_leader()).collect::<Vec<_>>();
    let mut turns = Vec::new();
    for _ in 0..9 {
        wait_for("one leads", async || who().len() == 1).await;
        // The leader that resigned queues behind the others at once, however short its term was.
        wait_for("the others wait", async || queue(&server, KEY).len() == 2).await;
        let leader = who()[0];
        turns.push(leader);
        leaders[leader].resign().await;
        wait_for("another leads", async || who().first().is_some_and(|next| *next != leader)).await;
    }
    let rounds: Vec<_> = turns.chunks(3).collect();
    assert!(rounds.iter().all(|round| *round == rounds[0]), "not in turns: {turns:?}");
    for leader in leaders {
        leader.withdraw().await;
    }
    nothing_is_left(&server);
}
