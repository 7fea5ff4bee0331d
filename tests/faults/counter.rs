//! R: the counter of fencing tokens, when something else has written to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use distlock::{BackendKind, LockError, LockManager};
use distlock_testkit::{
    LONG, RedisServer, backend, clients, held, ms, patient, patient_builder, wait_for, wait_until,
    waits, whole_text,
};

use crate::tap::{Tap, Way};

const COUNTER: &str = "distlock:fence";

fn counter(server: &RedisServer) -> Option<String> {
    server.cli(&["GET", COUNTER])
}

/// Takes and frees a lock; its fencing token.
async fn token(manager: &LockManager) -> Result<u64, LockError> {
    let guard = manager.lock("k").ttl(LONG).wait(LONG).acquire().await?;
    let token = guard.fencing_token();
    guard.release().await?;
    Ok(token)
}

/// What a call is refused with, in words.
#[track_caller]
fn refusal<T>(result: Result<T, LockError>) -> String {
    let error = result.err().expect("no token comes from such a counter");
    let text = whole_text(&error);
    backend::<()>(Err(error));
    text
}

/// The same of a manager that has to reconnect first.
async fn refusal_once_connected(manager: &LockManager) -> String {
    let mut text = String::new();
    wait_for("it has connected again", async || {
        let error = token(manager).await.expect_err("no token comes from such a counter");
        text = whole_text(&error);
        let kind = backend::<()>(Err(error));
        !matches!(kind, BackendKind::Unreachable | BackendKind::TimedOut)
    })
    .await;
    text
}

/// Drops every connection of managers, so that their next command raises the counter.
#[track_caller]
fn disconnect(server: &RedisServer) {
    server.cli::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

/// The tokens of these managers, one after the other, are above the highest, and what the counter was once is not
/// written back. Returns the last token.
async fn all_is_well<const N: usize>(
    server: &RedisServer,
    managers: [&LockManager; N],
    mut highest: u64,
    once: &str,
) -> u64 {
    for manager in managers {
        let token = token(manager).await;
        let token = token.unwrap_or_else(|error| panic!("{once}: {}", whole_text(&error)));
        assert!(token > highest, "{once}: {token} after {highest}");
        highest = token;
    }
    let counter: u64 = counter(server).expect("it counts").parse().expect("a number");
    assert!(counter < 4_000_000_000_000_000, "{once} was written: {counter}");
    highest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f37_a_counter_that_was_huge_is_well_again_once_an_operator_has_deleted_it() {
    let server = RedisServer::start();
    let (seeing, raising) = (patient(&server.url()).await, patient(&server.url()).await);
    let unaware = patient(&server.url()).await;
    let mut highest = token(&unaware).await.expect("all is well");
    for poison in [
        "9100000000000000000",
        "9223372036854775807",
        "9007199254740991",
        "9007199254740990",
        "8000000000000000",
        "9.1e15",
        "not a number",
    ] {
        server.cli::<()>(&["SET", COUNTER, poison]);
        let mut refusals = vec![refusal(token(&seeing).await)];
        refusals.push(refusal(seeing.lock("k").ttl(LONG).acquire().await));
        let connected = patient_builder(&server.url()).connect().await;
        // A manager that reconnects raises the counter, and notices it that way.
        disconnect(&server);
        refusals.push(refusal_once_connected(&raising).await);
        wait_until("nothing is left", || server.lock_keys().is_empty());

        server.cli::<()>(&["DEL", COUNTER]);
        let after = patient_builder(&server.url()).connect().await;
        let newcomer = after.unwrap_or_else(|error| panic!("{poison}: {}", whole_text(&error)));
        let all = [&seeing, &raising, &unaware, &newcomer, &seeing];
        highest = all_is_well(&server, all, highest, poison).await;
        refusals.push(refusal(connected));
        for text in refusals {
            assert!(text.contains("delete that key") && text.contains(":fence"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f37_one_wrong_answer_does_not_spoil_a_good_server() {
    tokio::join!(
        is_fooled_once("9100000000000000000", None),
        is_fooled_once("9007199254740991", None),
        is_fooled_once("9007199254740991", Some("9007199254740990")),
        is_fooled_once("9100000000000000000", Some("9100000000000000000")),
        is_fooled_once("8000000000000000", Some("7999999999999999")),
    );
}

/// The counter and the server's time, as a server might answer that is none.
async fn is_fooled_once(huge: &'static str, time: Option<&'static str>) {
    let server = RedisServer::start();
    let armed = Arc::new(AtomicBool::new(false));
    let network = Tap::before(server.addr(), {
        let armed = armed.clone();
        move |_, way, answer| {
            let text = std::str::from_utf8(answer).ok()?;
            let mut lines = text.strip_prefix("*2\r\n:")?.split("\r\n:");
            let (counter, now) = (lines.next()?, lines.next()?.trim_end());
            // That of a renewal is shorter.
            let raised = way == Way::Down && counter.len() >= 16;
            (raised && armed.swap(false, SeqCst))
                .then(|| format!("*2\r\n:{huge}\r\n:{}\r\n", time.unwrap_or(now)).into_bytes())
        }
    });
    let (fooled, other) = (patient(&network.url()).await, patient(&server.url()).await);
    let highest = token(&other).await.expect("all is well");
    armed.store(true, SeqCst);
    disconnect(&server);
    // What it comes to at first is the wrong answer's fault.
    wait_for("it has raised the counter, and is well", async || {
        let is_fooled = !armed.load(SeqCst);
        token(&fooled).await.is_ok() && is_fooled
    })
    .await;
    all_is_well(&server, [&fooled, &other, &fooled], highest, huge).await;
    drop(held(&patient(&server.url()).await, "k").await);
}

/// Data goes back under the connections of managers, as behind a proxy that fails over without a
/// word: what was drawn last is forgotten. The script that raises the counter may be unknown there.
fn goes_back(server: &RedisServer, by: u64, scripts: bool) {
    let now: u64 = counter(server).expect("it counts").parse().expect("a number");
    server.cli::<()>(&["SET", COUNTER, &(now - by).to_string()]);
    if !scripts {
        server.cli::<()>(&["SCRIPT", "FLUSH"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f17_who_was_idle_while_the_counter_went_back_gets_no_lower_token() {
    let server = RedisServer::start();
    let (busy, idle) = (patient(&server.url()).await, patient(&server.url()).await);
    let mut highest = token(&idle).await.expect("all is well");
    let connected = clients(&server);
    for scripts in [true, false, true] {
        for _ in 0..200 {
            let next = token(&busy).await.expect("all is well");
            assert!(next > highest, "{next} after {highest}");
            highest = next;
        }
        // A failover takes longer than that.
        tokio::time::sleep(ms(200)).await;
        goes_back(&server, 100, scripts);
        for manager in [&idle, &busy, &idle] {
            let next = token(manager).await.expect("all is well");
            assert!(next > highest, "{next} after {highest}, scripts known: {scripts}");
            highest = next;
        }
    }
    assert_eq!(clients(&server), connected, "over the same connections");
}

/// A resource that refuses a token smaller than one it has seen.
#[derive(Default)]
struct Fenced {
    highest: u64,
}

impl Fenced {
    fn write(&mut self, token: u64) -> bool {
        let fits = token >= self.highest;
        self.highest = self.highest.max(token);
        fits
    }
}

/// The store has lost the lock, and another process has taken it. Before its next renewal the first
/// one cannot know that, and hands the lease on: what stops the new holder is the resource.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a2_who_is_handed_a_lease_that_was_lost_with_the_data_is_refused_by_the_resource() {
    let server = RedisServer::start();
    let (here, there) = (patient(&server.url()).await, patient(&server.url()).await);
    drop(held(&there, "another").await);
    let mut stale = 0;
    // On a slow machine the loss may be noticed before the hand-over.
    for _ in 0..20 {
        let mut resource = Fenced::default();
        let first = held(&here, "k").await;
        assert!(resource.write(first.fencing_token()));
        let waiting = waits(&here, "k");
        wait_for("he waits", async || here.status().waiting == 1).await;
        server.cli::<()>(&["FLUSHALL"]);
        let newer = held(&there, "k").await;
        assert!(newer.fencing_token() > first.fencing_token());
        drop(first);
        let handed_on = tokio::time::timeout(ms(200), waiting).await;
        assert!(resource.write(newer.fencing_token()), "the new owner is served");
        if let Ok(Ok(Ok(guard))) = handed_on
            && guard.fencing_token() < newer.fencing_token()
        {
            assert!(!resource.write(guard.fencing_token()), "two holders wrote");
            let error = guard.release().await.expect_err("it was not his");
            assert!(error.is_lost(), "{error}");
            stale += 1;
        }
        assert!(newer.is_held(), "who was handed a lost lease has taken nothing away");
        newer.release().await.expect("it was held");
        wait_until("nothing is left", || server.lock_keys().is_empty());
        if stale == 2 {
            return;
        }
    }
    panic!("no lease was handed on {stale}");
}

/// A lease that was handed on so often that its next renewal is to draw a counter value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f37_a_lock_that_was_handed_on_very_often_is_kept_while_no_value_can_be_drawn() {
    const TASKS: usize = 600;
    const TTL: Duration = ms(3000);
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let first = manager.lock("k").ttl(TTL).acquire().await.expect("free");
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let request = manager.lock("k").ttl(TTL).wait(LONG);
        tasks.push(tokio::spawn(async move {
            let guard = request.acquire().await.expect("its turn");
            guard.fencing_token()
        }));
    }
    wait_until("they wait", || manager.status().waiting == TASKS);
    let last = manager.lock("k").ttl(TTL).wait(LONG).acquire();
    let last = tokio::spawn(last);
    wait_until("the last one waits", || manager.status().waiting == TASKS + 1);
    server.cli::<()>(&["SET", COUNTER, "not a number"]);
    let token = first.fencing_token();
    first.release().await.expect("it was held");
    let guard = last.await.expect("no panic").expect("its turn");
    assert!(guard.fencing_token() - token > 512, "it was not handed on");
    // As long as no renewal succeeds it has its ttl, and no more.
    tokio::time::sleep(TTL + TTL / 2).await;
    assert!(guard.is_held(), "lost for a counter that it does not need");
    server.cli::<()>(&["DEL", COUNTER]);
    guard.release().await.expect("it was held all the time");
    let later = manager.lock("k").acquire().await.expect("all is well").fencing_token();
    for task in tasks {
        assert!(task.await.expect("no panic") < later);
    }
}
