//! The events that observers get: the end of every call, once, and gauges that come back to zero.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::observe::{
    Acquired, Command, Connection, Lost, LostReason, Observer, Refused, Released, ReleasedLate,
    Renewed, Via, Waiting,
};
use distlock::{LockManager, LockManagerBuilder, LockName};
use distlock_testkit::{
    LONG, RedisServer, SECOND, in_line, in_own_process, this_test, wait_for, wait_until,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};

/// Records every event, with two gauges.
#[derive(Default)]
struct Told {
    waiting: i64,
    held: i64,
    lowest: i64,
    calls: BTreeMap<String, usize>,
    lost: Vec<LostReason>,
    renewed: [usize; 2],
    outages: usize,
    late: usize,
    connections: Vec<Connection>,
    commands: BTreeMap<(&'static str, bool), usize>,
    names: Vec<String>,
}

#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Told>>);

impl Keeper {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queued(&self, queued: bool) {
        let mut told = self.told();
        told.waiting -= i64::from(queued);
        told.lowest = told.lowest.min(told.waiting);
    }

    fn call(&self, lock: &LockName, outcome: String) {
        let mut told = self.told();
        told.names.push(lock.name().to_owned());
        *told.calls.entry(outcome).or_default() += 1;
    }

    /// How many calls ended so, since this was asked last.
    fn calls(&self) -> Vec<(String, usize)> {
        std::mem::take(&mut self.told().calls).into_iter().collect()
    }

    fn gauges(&self) -> (i64, i64) {
        let told = self.told();
        assert!(told.lowest >= 0, "a gauge was below zero");
        (told.waiting, told.held)
    }
}

impl Observer for Keeper {
    fn waiting(&self, _: &LockName, event: &Waiting) {
        self.told().waiting += 1;
        self.told().outages += usize::from(event.outage);
    }

    fn acquired(&self, lock: &LockName, event: &Acquired) {
        self.told().held += i64::from(event.via != Via::Outer);
        self.queued(event.queued);
        if event.index == 0 {
            self.call(lock, format!("{:?}", event.via));
        }
    }

    fn refused(&self, lock: &LockName, event: &Refused<'_>) {
        assert_eq!(event.error.is_none(), event.outcome() == "cancelled");
        self.queued(event.queued);
        self.call(lock, event.outcome().to_owned());
    }

    fn released(&self, _: &LockName, _: &Released) {
        let mut told = self.told();
        told.held -= 1;
        told.lowest = told.lowest.min(told.held);
    }

    fn renewed(&self, _: &LockName, event: &Renewed) {
        self.told().renewed[usize::from(event.ok)] += 1;
    }

    fn lost(&self, _: &LockName, event: &Lost) {
        self.told().lost.push(event.reason);
    }

    fn released_late(&self, _: &LockName, _: &ReleasedLate) {
        self.told().late += 1;
    }

    fn connection(&self, event: &Connection) {
        self.told().connections.push(event.clone());
    }

    fn command(&self, event: &Command) {
        *self.told().commands.entry((event.command, event.ok)).or_default() += 1;
    }
}

fn kept(builder: LockManagerBuilder) -> (LockManager, Keeper) {
    let keeper = Keeper::default();
    let manager = builder.observer(keeper.clone()).build().expect("a manager");
    (manager, keeper)
}

fn in_memory() -> (LockManager, Keeper) {
    kept(LockManager::builder().url("memory://"))
}

fn once(outcomes: &[&str]) -> Vec<(String, usize)> {
    outcomes.iter().map(|outcome| ((*outcome).to_owned(), 1)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_call_is_told_once_with_how_it_ended() {
    let (manager, keeper) = in_memory();
    let lock = |key: &str| manager.lock(key).name("name");

    let guard = lock("k").acquire().await.expect("free");
    assert_eq!(keeper.gauges(), (0, 1));
    lock("k").acquire().await.expect_err("held");
    lock("k").wait(SECOND).acquire().await.expect_err("held");
    assert_eq!(keeper.calls(), [("Free".to_owned(), 1), ("busy".to_owned(), 2)]);

    drop(in_line(lock("k").wait(LONG).acquire()).await);
    let next = in_line(lock("k").wait(LONG).acquire()).await;
    assert_eq!(keeper.gauges(), (1, 1));
    guard.release().await.expect("held");
    let guard = next.await.expect("handed over");
    assert_eq!(keeper.gauges(), (0, 1));
    drop(guard);
    assert_eq!(keeper.calls(), once(&["HandOver", "cancelled"]));

    lock("").acquire().await.expect_err("no key");
    assert_eq!(keeper.calls(), once(&["invalid"]));
    lock("k").ttl(Duration::ZERO).acquire().await.expect_err("no ttl");
    manager.lock_all(Vec::<String>::new()).name("name").acquire().await.expect_err("no keys");
    assert_eq!(keeper.calls(), [("invalid".to_owned(), 2)]);

    let nested = async {
        lock("k").acquire().await.expect_err("it waits for itself");
        drop(lock("k").reentrant(true).acquire().await.expect("it joins"));
        assert_eq!(keeper.gauges(), (0, 1), "it is held once");
    };
    lock("k").run(nested).await.expect("free");
    assert_eq!(keeper.calls(), once(&["Free", "Outer", "deadlock"]));

    let several = manager.lock_all(["a", "b", "c"]).name("name").acquire().await.expect("free");
    assert_eq!(keeper.gauges(), (0, 3));
    manager.lock_all(["0", "b", "c"]).name("name").wait(SECOND).acquire().await.expect_err("held");
    assert_eq!(keeper.gauges(), (0, 3));
    drop(several);
    assert_eq!(keeper.calls(), once(&["Free", "busy"]));

    let panics = tokio::spawn(lock("k").run(async { panic!("the body") }));
    assert!(panics.await.is_err());
    let lost = lock("k").max_hold(SECOND).run(pending::<()>()).await;
    assert!(lost.is_err_and(|error| error.is_lost()));
    assert_eq!(keeper.calls(), [("Free".to_owned(), 2)]);

    let held = tokio::spawn(lock("k").run(pending::<()>()));
    let waits = tokio::spawn(lock("k").wait(LONG).acquire());
    wait_for("one waits", async || keeper.gauges() == (1, 1)).await;
    manager.close(SECOND).await;
    assert!(held.await.expect("no panic").is_err() && waits.await.expect("no panic").is_err());
    lock("k").acquire().await.expect_err("closed");
    assert_eq!(keeper.calls(), [("Free".to_owned(), 1), ("closed".to_owned(), 2)]);
    assert_eq!(keeper.gauges(), (0, 0));
    wait_for("losses are told", async || keeper.told().lost.len() == 2).await;
    assert_eq!(keeper.told().lost, [LostReason::MaxHold, LostReason::Closed]);
    assert!(keeper.told().names.iter().all(|name| name == "name"));
}

#[test]
fn what_ends_with_its_runtime_is_told() {
    let (manager, keeper) = in_memory();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for _ in 0..10 {
        runtime.spawn(manager.lock("k").wait(LONG).run(pending::<()>()));
    }
    wait_until("nine wait", || keeper.gauges() == (9, 1));
    drop(runtime);
    wait_until("all have ended", || keeper.gauges() == (0, 0));
    let calls: BTreeMap<_, _> = keeper.calls().into_iter().collect();
    // Each once. The lock may go round among those that are dropped, even to the last of them.
    assert_eq!(calls.values().sum::<usize>(), 10, "{calls:?}");
}

/// Fault: FW6.
#[tokio::test]
async fn renewals_losses_connections_and_commands_are_told() {
    let mut server = RedisServer::start();
    let builder = LockManager::builder().url(server.url());
    let (manager, keeper) = kept(builder.outage_grace(Duration::ZERO));
    let guard = manager.lock("k").ttl(2 * SECOND).acquire().await.expect("free");
    wait_for("it is renewed", async || keeper.told().renewed[1] > 0).await;
    assert!(manager.force_release("k").await.expect("asked"));
    wait_for("it is lost", async || keeper.told().lost == [LostReason::Forced]).await;
    assert_eq!(keeper.gauges(), (0, 1), "its holder has not let go");
    drop(guard);
    assert_eq!(keeper.gauges(), (0, 0));

    let other = LockManager::connect(&server.url()).await.expect("another process");
    let theirs = other.lock("k").acquire().await.expect("free");
    let waits = tokio::spawn(manager.lock("k").wait(LONG).run(async {}));
    wait_for("it waits", async || keeper.gauges() == (1, 0)).await;
    theirs.release().await.expect("held");
    waits.await.expect("no panic").expect("its turn");
    assert_eq!(keeper.calls(), once(&["Free", "Queue"]));

    let _held = manager.lock("k").ttl(SECOND).acquire().await.expect("free");
    assert_eq!(keeper.told().outages, 0, "the others waited for their turn");
    server.kill9();
    wait_for("a renewal fails", async || keeper.told().renewed[0] > 0).await;
    wait_for("it is lost", async || keeper.told().lost.contains(&LostReason::Expired)).await;
    wait_for("the connection is lost", async || {
        keeper.told().connections.contains(&Connection::Disconnected)
    })
    .await;
    let refused = manager.lock("other").wait(LONG).acquire().await;
    refused.expect_err("the store is down, and has been for longer than the grace");
    drop(in_line(manager.lock("other").wait(LONG).acquire()).await);
    assert_eq!(keeper.told().outages, 2, "these waited for the store");
    assert_eq!(keeper.calls(), once(&["Free", "backend", "cancelled"]));
    assert_eq!(keeper.gauges().0, 0);

    let told = keeper.told();
    assert_eq!(told.connections[0], Connection::Connected);
    let commands = &told.commands;
    for command in ["set", "acquire", "release", "renew", "inspect"] {
        assert!(commands.contains_key(&(command, true)), "{command} of {commands:?}");
    }
    assert!(commands.contains_key(&("renew", false)), "{commands:?}");
}

/// Panics on every event.
struct Panics;

impl Observer for Panics {
    fn waiting(&self, _: &LockName, _: &Waiting) {
        panic!("waiting")
    }
    fn acquired(&self, _: &LockName, _: &Acquired) {
        panic!("acquired")
    }
    fn refused(&self, _: &LockName, _: &Refused<'_>) {
        panic!("refused")
    }
    fn released(&self, _: &LockName, _: &Released) {
        panic!("released")
    }
    fn renewed(&self, _: &LockName, _: &Renewed) {
        panic!("renewed")
    }
    fn lost(&self, _: &LockName, _: &Lost) {
        panic!("lost")
    }
    fn command(&self, _: &Command) {
        panic!("command")
    }
}

#[test]
fn observers_that_panic_harm_no_lock_and_no_other_observer() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = RedisServer::start();
        let (manager, keeper) = kept(LockManager::builder().url(server.url()).observer(Panics));
        let guard = manager.lock("k").ttl(15 * SECOND).acquire().await.expect("free");
        let next = tokio::spawn(manager.lock("k").ttl(15 * SECOND).wait(LONG).run(async {}));
        wait_for("it is renewed", async || keeper.told().renewed[1] > 0).await;
        wait_for("one waits", async || keeper.gauges() == (1, 1)).await;
        manager.lock("k").acquire().await.expect_err("held");
        guard.release().await.expect("held");
        next.await.expect("no panic").expect("its turn");
        let stopped = manager.lock("k").max_hold(SECOND).run(pending::<()>()).await;
        let error = stopped.expect_err("it never ends");
        assert!(error.is_lost(), "{error}");
        wait_for("it is told", async || keeper.told().lost == [LostReason::MaxHold]).await;
        assert_eq!(keeper.gauges(), (0, 0));
        let calls = [("Free", 2), ("HandOver", 1), ("busy", 1)];
        assert_eq!(keeper.calls(), calls.map(|(how, n)| (how.to_owned(), n)));
    });
}

/// It waits once, whatever the number of its locks.
#[tokio::test(start_paused = true)]
async fn fo9_a_call_for_several_locks_leaves_the_waiting_gauge_once() {
    let (manager, keeper) = in_memory();
    for rest in [&["a"][..], &["a", "b", "c"]] {
        let held = manager.lock_all(rest.iter().copied()).acquire().await.expect("free");
        let all = manager.lock_all(["a", "b", "c"]).wait(60 * SECOND);
        let waits = tokio::spawn(all.acquire());
        wait_for("it waits", async || keeper.told().waiting == 1).await;
        held.release().await.expect("held");
        let all = waits.await.expect("no panic").expect("its turn");
        assert_eq!(keeper.gauges(), (0, 3));
        all.release().await.expect("held");
        assert_eq!(keeper.gauges(), (0, 0));
    }
}

/// Sleeps on the events of a lost and of a renewed lease.
struct Sleeps;

impl Observer for Sleeps {
    fn renewed(&self, _: &LockName, _: &Renewed) {
        std::thread::sleep(SECOND);
    }
    fn lost(&self, _: &LockName, _: &Lost) {
        std::thread::sleep(SECOND);
    }
}

#[tokio::test]
async fn an_observer_that_sleeps_in_the_background_holds_up_no_renewal() {
    // Events in the background come one after the other.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let server = RedisServer::start();
    let builder = LockManager::builder().url(server.url()).observer(Sleeps).ttl(2 * SECOND);
    let (manager, keeper) = kept(builder);
    let mut guards = Vec::new();
    for n in 0..10 {
        guards.push(manager.lock(n.to_string()).acquire().await.expect("free"));
    }
    tokio::time::sleep(4 * SECOND).await;
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, 10, "ten renewals are told in ten seconds");
    assert!(keeper.told().renewed[1] < 10);
}

/// The fields of spans, by their order, while they last and after.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(bool, String)>>>);

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        *self.0 += &format!(" {field}={value:?}");
    }
}

impl Spans {
    fn all(&self) -> MutexGuard<'_, Vec<(bool, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "distlock"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let metadata = span.metadata();
        let mut text = format!("{} {}", metadata.level(), metadata.name());
        span.record(&mut Text(&mut text));
        let mut all = self.all();
        all.push((true, text));
        Id::from_u64(all.len() as u64)
    }
    fn record(&self, id: &Id, values: &Record<'_>) {
        values.record(&mut Text(&mut self.all()[id.into_u64() as usize - 1].1));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
    fn try_close(&self, id: Id) -> bool {
        self.all()[id.into_u64() as usize - 1].0 = false;
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_a_span_that_ends_at_the_grant() {
    let spans = Spans::default();
    // With one subscriber known, a span that another test opens for the first time meanwhile, on a thread
    // without any, counts as unwanted.
    let _second = tracing::Dispatch::new(spans.clone());
    let _log = tracing::subscriber::set_default(spans.clone());
    let manager = LockManager::in_memory();
    let n = 42;
    let lock = |wait| manager.lock(distlock::key!("order:{n}")).name("pay").wait(wait);
    let guard = lock(LONG).acquire().await.expect("free");
    let said = || spans.all().iter().map(|(_, text)| text.clone()).collect::<Vec<_>>();
    let (acquire, named) =
        ("DEBUG distlock.acquire", r#"lock.name="pay" lock.template="order:{n}""#);
    let client = r#"otel.kind="client""#;
    assert_eq!(said(), [format!("{acquire} {named} {client}")]);
    assert!(!spans.all()[0].0, "it ends with the answer, and not with the body");

    let next = in_line(lock(LONG).acquire()).await;
    drop(in_line(lock(LONG).acquire()).await);
    let begun = format!("INFO distlock.wait {named} lock.behind");
    assert!(spans.all()[1].0, "it waits");
    let token = guard.fencing_token() + 1;
    drop(guard);
    let guard = next.await.expect("handed over");
    assert_eq!(
        said()[1..],
        [
            format!(r#"{begun}=0 {client} fencing_token={token} outcome="acquired""#),
            format!(r#"{begun}=1 {client} outcome="cancelled""#),
        ]
    );
    lock(LONG).wait(SECOND).acquire().await.expect_err("held");
    assert_eq!(said()[3], format!(r#"{begun}=0 {client} outcome="busy""#));
    assert!(spans.all().iter().all(|(open, _)| !open));
    drop(guard);
}
