//! Q: the holder of a lock is asked for and named by messages, which may be forged, lost or left unanswered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{Holder, LockManager, LockStatus};
use distlock_testkit::{
    LONG, RedisServer, connect, connect_all, dropped_after, fork_self, held, in_fork, ms, owner,
    patient, stored, wait_for, wait_until,
};

use crate::support::{kept, works_again};

/// No inspection takes longer, whichever process is to answer. Ten times what it should take.
const BOUND: Duration = Duration::from_secs(15);

async fn holder(by: &LockManager, key: &str) -> Holder {
    let begin = Instant::now();
    let status = by.inspect(key).await.expect("an answer");
    assert!(begin.elapsed() < BOUND, "{:?}", begin.elapsed());
    match status {
        LockStatus::Held { holders, .. } => holders[0].clone(),
        other => panic!("it is held, not {other:?}"),
    }
}

fn process_of(server: &RedisServer, key: &str) -> String {
    let token = owner(server, key).expect("held");
    token.split('.').next().expect("the first part").to_owned()
}

/// What is said on channels that fit `pattern`, from now on: how many messages, and the longest.
struct Overheard {
    messages: Arc<AtomicUsize>,
    longest: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Overheard {
    fn on(server: &RedisServer, pattern: &str) -> Self {
        let (messages, longest, over) = Default::default();
        let this = Self { messages, longest, over };
        let (messages, longest) = (this.messages.clone(), this.longest.clone());
        let (over, mut eye, pattern) = (this.over.clone(), server.eye(), pattern.to_owned());
        let ready = Arc::new(AtomicBool::new(false));
        let begun = ready.clone();
        std::thread::spawn(move || {
            eye.set_read_timeout(Some(ms(100))).expect("a timeout");
            let mut subscription = eye.as_pubsub();
            subscription.psubscribe(pattern).expect("subscribe");
            begun.store(true, SeqCst);
            while !over.load(SeqCst) {
                let Ok(message) = subscription.get_message() else { continue };
                messages.fetch_add(1, SeqCst);
                longest.fetch_max(message.get_payload_bytes().len(), SeqCst);
            }
        });
        wait_until("it listens", || ready.load(SeqCst));
        this
    }

    fn messages(&self) -> usize {
        self.messages.load(SeqCst)
    }
}

impl Drop for Overheard {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q1_a_forged_question_is_answered_on_channels_of_ours_alone() {
    let server = RedisServer::start();
    let one = connect(&server.url()).await;
    let guard = held(&one, "k").await;
    let process = process_of(&server, "k");
    let channel = format!("distlock:wake:{process}");
    let elsewhere = Overheard::on(&server, "[^d]*");
    let answers = Overheard::on(&server, "distlock:wake:forger");
    let long = "x".repeat(100_000);
    let good = format!("q distlock:wake:forger 1 {}", stored("k"));
    for question in [
        "q",
        "q ",
        "q  ",
        "q a",
        "q spy 1",
        "q spy:wake:a 1",
        "q distlock:wake: 1",
        "q distlock:wake:a:b 1",
        "q distlock:wake:forger é",
        "q distlock:wake:forger 1,2",
        "a",
        "a 1",
        "a 1 {",
        "a 1 {}",
        "a , {}",
        "q distlock:wake:* 1",
        "\u{0}",
        "z distlock:wake:forger 1",
        &format!("q distlock:wake:forger {long}"),
        &format!("q {long} 1"),
        &format!("a {long} {{}}"),
        &format!("a 1 {}", "[".repeat(60_000)),
        &good,
    ] {
        let heard: u64 = server.cli(&["PUBLISH", &channel, question]);
        assert_eq!(heard, 1, "nobody hears {question:.40}");
    }
    wait_until("the good one is answered", || answers.messages() == 1);
    assert_eq!(elsewhere.messages(), 0, "somebody else was told");
    assert!(guard.is_held());
    guard.release().await.expect("it was held all the time");
    works_again(&one, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q2_a_flood_of_questions_costs_an_answer_a_second_and_no_lease() {
    const LEASES: usize = 300;
    // A flood costs every process time: on a busy machine renewals come seconds late.
    const LEASE: Duration = ms(15_000);
    let server = RedisServer::start();
    let one = patient(&server.url()).await;
    wait_until("it can be asked", || one.status().wake_ups == distlock::WakeUps::Notified);
    let mut guards = Vec::new();
    for n in 0..LEASES {
        guards.push(one.lock(format!("k{n}")).ttl(LEASE).acquire().await.expect("it is free"));
    }
    let process = process_of(&server, "k0");
    let answers = Overheard::on(&server, "distlock:wake:forger");
    let begin = Instant::now();
    let mut forger = server.eye();
    tokio::task::spawn_blocking(move || {
        for round in 0..40 {
            let mut publish = redis::pipe();
            for n in 0..500 {
                let text = format!("q distlock:wake:forger {round}x{n} {}", stored("k0"));
                publish.cmd("PUBLISH").arg(format!("distlock:wake:{process}")).arg(text).ignore();
            }
            publish.query::<()>(&mut forger).expect("it may publish");
        }
    })
    .await
    .expect("no panic");
    let kept = kept(&guards).await;
    wait_until("it answers", || answers.messages() > 0);
    let most = begin.elapsed().as_secs() + 2;
    assert!(answers.messages() <= most as usize, "{} answers", answers.messages());
    assert!(answers.longest.load(SeqCst) <= 64 * 1024 + 16);
    assert_eq!(kept, LEASES, "leases that were kept");
    drop(guards);
    wait_until("all are free", || server.lock_keys().is_empty());
    works_again(&one, &server).await;
}

/// A process that is stopped still holds what it held, for its ttl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q3_a_holder_that_stands_still_is_named_by_its_record() {
    if in_fork() {
        let manager = connect(&std::env::var("SERVER").expect("a server")).await;
        let _guard = held(&manager, "k").await;
        tokio::time::sleep(20 * LONG).await;
        return;
    }
    let server = RedisServer::start();
    let env = [("SERVER", server.url())];
    let env: Vec<_> = env
        .iter()
        .map(|(name, is)| (*name, is.as_str()))
        .chain([("DISTLOCK_APP", "still")])
        .collect();
    let fork = fork_self("questions::q3_a_holder_that_stands_still_is_named_by_its_record", &env);
    let operator = connect(&server.url()).await;
    wait_for("it holds", async || !operator.inspect("k").await.expect("an answer").is_free()).await;
    wait_for("it answers", async || holder(&operator, "k").await.since.is_some()).await;
    fork.stop();
    // What it has said before is good for a second.
    let silent = async || holder(&operator, "k").await.since.is_none();
    wait_for("it does not answer", silent).await;
    let named = holder(&operator, "k").await;
    assert_eq!(named.process.map(|process| process.app).as_deref(), Some("still"));
    assert!(named.remaining.is_some() && named.name.is_none());
    // It is not waited for as long again.
    let begin = Instant::now();
    for _ in 0..5 {
        holder(&operator, "k").await;
    }
    assert!(begin.elapsed() < BOUND / 3, "{:?}", begin.elapsed());
    fork.cont();
    wait_for("it answers again", async || holder(&operator, "k").await.since.is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q4_who_asks_and_is_gone_leaves_nothing_behind() {
    let server = RedisServer::start();
    let [one, operator] = connect_all(&server.url()).await;
    let guard = held(&one, "k").await;
    for polls in 0..40 {
        dropped_after(polls % 8, operator.inspect("k")).await;
    }
    let gone = connect(&server.url()).await;
    dropped_after(3, gone.inspect("k")).await;
    drop(gone);
    assert!(holder(&operator, "k").await.since.is_some());
    assert!(guard.is_held());
    drop(guard);
    works_again(&one, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q5_all_who_ask_at_once_are_answered() {
    let server = RedisServer::start();
    let [one, a, b, c] = connect_all(&server.url()).await;
    let mut guards = Vec::new();
    for n in 0..20 {
        let request = one.lock(format!("k{n}")).ttl(LONG).name(format!("name {n}"));
        guards.push(request.acquire().await.expect("free"));
    }
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..20 {
        for operator in [&a, &b, &c] {
            let operator = operator.clone();
            asking.spawn(async move { (n, holder(&operator, &format!("k{n}")).await) });
        }
    }
    while let Some(asked) = asking.join_next().await {
        let (n, holder) = asked.expect("no panic");
        assert_eq!(holder.name, Some(format!("name {n}")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q6_one_of_very_many_locks_is_named() {
    const LOCKS: usize = 5000;
    let server = RedisServer::start();
    let [one, operator] = connect_all(&server.url()).await;
    let keys: Vec<String> = (0..LOCKS).map(|n| format!("a long name of a lock {n}")).collect();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(one.lock(key.as_str()).ttl(4 * LONG).acquire().await.expect("free"));
    }
    let answers = Overheard::on(&server, "distlock:wake:*");
    for key in [&keys[0], &keys[LOCKS / 2], &keys[LOCKS - 1]] {
        let holder = holder(&operator, key).await;
        assert!(holder.since.is_some() && holder.name.is_some(), "{holder:?}");
    }
    // Each hears them in a thread of its own.
    wait_for("they are overheard", async || answers.longest.load(SeqCst) > 1000).await;
    let longest = answers.longest.load(SeqCst);
    assert!(longest <= 64 * 1024 + 16, "{longest}");
    let kept = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(kept, LOCKS);
}

/// A tenant does not see what others hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q7_who_asks_under_a_prefix_is_told_of_its_locks_alone() {
    let server = RedisServer::start();
    let one = connect(&server.url()).await;
    let _own = held(&one, "secret").await;
    let request = one.lock("k").prefix("tenant").ttl(LONG);
    let _tenants = request.acquire().await.expect("free");
    let tenant = LockManager::builder().url(server.url()).prefix("tenant").connect().await;
    let tenant = tenant.expect("connect");
    let overheard = Overheard::on(&server, "tenant:wake:*");
    // Its channel under another prefix is subscribed a moment later.
    wait_for("it is named", async || holder(&tenant, "k").await.since.is_some()).await;
    // Each hears it in a thread of its own.
    wait_for("it is overheard", async || overheard.longest.load(SeqCst) > 0).await;
    let heard = tell(&server, &one, "tenant").await;
    assert!(heard.contains("tenant:lock:{k}") && !heard.contains("secret"), "{heard}");
}

/// What a manager answers to a question under a prefix.
async fn tell(server: &RedisServer, one: &LockManager, prefix: &str) -> String {
    assert!(one.status().connected);
    let process = process_of(server, "secret");
    let (channel, reply) = (format!("{prefix}:wake:{process}"), format!("{prefix}:wake:spy"));
    let mut eye = server.eye();
    let asked = server.url();
    tokio::task::spawn_blocking(move || {
        let mut subscription = eye.as_pubsub();
        subscription.subscribe(&reply).expect("subscribe");
        let client = redis::Client::open(asked).expect("a URL");
        let mut asks = client.get_connection().expect("connect");
        let question = format!("q {reply} 7");
        let _: u64 =
            redis::cmd("PUBLISH").arg(channel).arg(question).query(&mut asks).expect("ask");
        subscription.get_message().expect("an answer").get_payload().expect("a text")
    })
    .await
    .expect("no panic")
}
