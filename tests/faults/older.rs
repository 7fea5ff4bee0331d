//! FC3: the server comes back with an older state of its data. What was served and released since then is in it
//! again, in the names of processes that are alive and done with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockManager, LockMode, LockRequest};
use distlock_testkit::{
    LONG, RedisServer, SECOND, connect, held, ms, notified, owner, patient_builder, queue, wait_for,
};
use tokio::task::JoinSet;

/// Longer than a turn may take here: the lease of a holder that is in the older state ends later than that.
const TTL: Duration = ms(60_000);
/// How long a body has the lock.
const TURN: Duration = ms(5);
/// How much older the state is.
const AGE: Duration = ms(400);
/// Between two turns, at most. A busy machine has ten times what it takes.
const NEXT: Duration = ms(3_000);

/// Managers that take turns at one lock, each with one call at a time.
struct Turns {
    taken: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Turns {
    async fn start(
        url: &str,
        managers: usize,
        request: impl Fn(&LockManager, usize) -> LockRequest + Copy + Send + 'static,
    ) -> Self {
        let (taken, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for number in 0..managers {
            let (taken, over) = (taken.clone(), over.clone());
            let manager = connect(url).await;
            tasks.spawn(async move {
                while !over.load(SeqCst) {
                    let body = async {
                        tokio::time::sleep(TURN).await;
                        taken.fetch_add(1, SeqCst);
                    };
                    let request = request(&manager, number).ttl(TTL).wait(LONG);
                    if request.run(body).await.is_err() {
                        tokio::time::sleep(ms(5)).await;
                    }
                }
            });
        }
        let turns = Self { taken, over, tasks };
        turns.go_on(10 * managers as u64).await;
        turns
    }

    /// So many turns more.
    async fn go_on(&self, more: u64) {
        let enough = self.taken.load(SeqCst) + more;
        wait_for("turns are taken", async || self.taken.load(SeqCst) >= enough).await;
    }

    /// Until all have come to their end, and nothing is left.
    async fn end(mut self, server: &RedisServer) {
        self.over.store(true, SeqCst);
        while let Some(task) = self.tasks.join_next().await {
            task.expect("no panic");
        }
        wait_for("nothing is left", async || server.lock_keys().is_empty()).await;
    }
}

/// Restarts it with a state that is this old; how long a turn took to come at most.
async fn restored(
    managers: usize,
    request: impl Fn(&LockManager, usize) -> LockRequest + Copy + Send + 'static,
) -> Duration {
    let server = RedisServer::start();
    let turns = Turns::start(&server.url(), managers, request).await;
    // In the middle of a turn.
    wait_for("the lock is held and waited for", async || {
        server.cli::<()>(&["SAVE"]);
        !server.held_locks().is_empty()
    })
    .await;
    tokio::time::sleep(AGE).await;
    let before = turns.taken.load(SeqCst);
    let server = server.blocking(RedisServer::restart).await;
    assert!(turns.taken.load(SeqCst) >= before, "turns were taken");
    let mut longest = Duration::ZERO;
    for _ in 0..3 * managers {
        let begun = Instant::now();
        turns.go_on(1).await;
        longest = longest.max(begun.elapsed());
    }
    turns.end(&server).await;
    longest
}

#[expect(clippy::print_stdout, reason = "a figure")]
fn soon(next: Duration) {
    println!("no turn for {next:?}");
    assert!(next < NEXT, "no turn for {next:?}");
}

#[tokio::test]
async fn fc3_a_server_that_is_back_with_older_data_keeps_no_turn_waiting() {
    soon(restored(8, |manager, _| manager.lock("k")).await);
}

#[tokio::test]
async fn fc3_twenty_processes_take_turns_again_after_older_data() {
    soon(restored(20, |manager, _| manager.lock("k")).await);
}

#[tokio::test]
async fn fc3_readers_and_writers_take_turns_again_after_older_data() {
    let mode = |number| if number % 2 == 0 { LockMode::Read } else { LockMode::Write };
    soon(restored(8, move |manager, number| manager.lock("k").mode(mode(number))).await);
}

#[tokio::test]
async fn fc3_permits_are_given_again_after_older_data() {
    soon(restored(8, |manager, _| manager.lock("k").permits(2)).await);
}

/// Waiters that gave up while they had no right to leave the queue do not stay in it.
#[tokio::test]
async fn fc3_waiters_that_could_not_leave_the_queue_leave_it_when_they_may() {
    for mode in [LockMode::Exclusive, LockMode::Read] {
        let server = RedisServer::start();
        let user = |rights: &str| {
            let rule = format!("ACL SETUSER app on >secret ~distlock:* &distlock:* {rights}");
            server.cli::<()>(&rule.split(' ').collect::<Vec<_>>());
        };
        user("+@all");
        let url = format!("redis://app:secret@{}", server.addr());
        let holder = connect(&server.url()).await;
        let held = held(&holder, "k").await;
        let mut waiters = Vec::new();
        for number in 1..=5 {
            let manager = notified(patient_builder(&url).connect().await.expect("connect")).await;
            let request = manager.lock("k").mode(mode).ttl(TTL).wait(LONG);
            waiters.push((manager, tokio::spawn(request.acquire())));
            wait_for("it waits", async || queue(&server, "k").len() == number).await;
        }
        user("-evalsha -eval");
        for (_, waiter) in &waiters {
            waiter.abort();
        }
        tokio::time::sleep(ms(500)).await;
        assert_eq!(queue(&server, "k").len(), 5, "they could leave: this test shows nothing");
        user("+evalsha +eval");
        let allowed = Instant::now();
        wait_for("they leave", async || queue(&server, "k").is_empty()).await;
        // By itself the queue ends 20 s after its last poll.
        assert!(allowed.elapsed() < ms(10_000), "they left {:?} later", allowed.elapsed());
        let begun = Instant::now();
        held.release().await.expect("it was held");
        let next = connect(&server.url()).await;
        drop(next.lock("k").ttl(TTL).wait(LONG).acquire().await.expect("a lock"));
        soon(begun.elapsed());
        drop(waiters);
    }
}

/// A message about a token that is held, tried with, waited under or kept frees nothing, however late it comes.
#[tokio::test]
async fn fc3_messages_about_tokens_in_use_free_nothing() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let forge = |key: &str, token: &str| {
        let process = token.split('.').next().expect("a process");
        for kind in ["g", "s"] {
            let text = format!("{kind} {token} distlock:lock:{{{key}}}");
            let heard: i64 = server.cli(&["PUBLISH", &format!("distlock:wake:{process}"), &text]);
            assert_eq!(heard, 1);
        }
    };
    let guard = held(&manager, "held").await;
    let kept = manager.lock("kept").ttl(TTL).min_hold(TTL).acquire().await.expect("free");
    kept.release().await.expect("it was held");
    let mut waits = tokio::spawn(other.lock("held").ttl(TTL).wait(LONG).acquire());
    wait_for("it waits", async || queue(&server, "held").len() == 1).await;
    let owners = [owner(&server, "held").expect("held"), owner(&server, "kept").expect("kept")];
    let place = queue(&server, "held");
    for _ in 0..20 {
        forge("held", &owners[0]);
        forge("kept", &owners[1]);
        forge("held", &place[0]);
        tokio::time::sleep(ms(20)).await;
    }
    assert!(guard.is_held() && !waits.is_finished());
    assert_eq!(owner(&server, "held").as_ref(), Some(&owners[0]));
    assert_eq!(owner(&server, "kept").as_ref(), Some(&owners[1]));
    assert_eq!(queue(&server, "held"), place);
    guard.release().await.expect("it was held");
    let next = tokio::time::timeout(SECOND * 30, &mut waits).await.expect("in time");
    next.expect("no panic").expect("granted").release().await.expect("it was held");
}
