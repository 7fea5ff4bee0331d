//! F36: messages forged by a client that may publish, and no more.

use std::time::{Duration, Instant};

use distlock::LockGuard;
use distlock_testkit::{
    LONG, RedisServer, connect, held, in_line, ms, owner, patient, runs, served, stand, stored,
    wait_until, waits,
};

use crate::support::{kept, works_again};

/// Notifies the process of `token`, as a client that reserves a lock or takes one away would.
#[track_caller]
fn publish(server: &RedisServer, kind: &str, token: &str, key: &str) {
    let process = token.split('.').next().expect("the first part");
    let channel = format!("distlock:wake:{process}");
    let heard: u64 = server.cli(&["PUBLISH", &channel, &format!("{kind} {token} {}", stored(key))]);
    assert_eq!(heard, 1, "nobody hears {token}");
}

/// Earlier messages to a manager have had their effect by then: it has asked the server something on the
/// connection that also frees locks, and been answered.
async fn renewals_later(guard: &LockGuard) {
    for _ in 0..3 {
        guard.extend(LONG).await.expect("it is held");
        tokio::time::sleep(ms(30)).await;
    }
}

/// A caller that does not wait while others of its process do has no place in line, and until its answer is
/// there no lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f36_a_forged_call_does_not_free_the_lock_of_one_whose_try_is_under_way() {
    let server = RedisServer::start();
    let one = connect(&server.url()).await;
    let probe = held(&one, "probe").await;
    loop {
        server.cli::<()>(&["SET", &stored("k"), "somebody's", "PX", "60000"]);
        let waiting = waits(&one, "k");
        stand(&server, "k", 1);
        // Freed without a message: no waiter polls for a while.
        server.cli::<()>(&["DEL", &stored("k")]);
        // Sent, and no further: its answer waits for it.
        let trying = in_line(one.lock("k").ttl(LONG).try_acquire()).await;
        wait_until("it is somebody's", || owner(&server, "k").is_some());
        let token = owner(&server, "k").expect("held");
        publish(&server, "g", &token, "k");
        renewals_later(&probe).await;
        let Some(guard) = trying.await.expect("an answer") else {
            // It was the waiter that polled.
            drop(served(waiting).await);
            continue;
        };
        assert_eq!(owner(&server, "k"), Some(token), "freed by a message");
        assert!(guard.is_held() && !waiting.is_finished());
        guard.release().await.expect("it was held all the time");
        drop(served(waiting).await);
        break;
    }
    drop(probe);
    works_again(&one, &server).await;
}

/// Also for leases that are not renewed, and for a caller without a place in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f36_a_forged_loss_costs_a_command_and_ends_nothing() {
    const FORGED: u64 = 20;
    let server = RedisServer::start();
    let one = connect(&server.url()).await;
    for renew in [true, false] {
        let guard = one.lock("k").ttl(LONG).renew(renew).acquire().await.expect("free");
        let ttl = || server.cli::<i64>(&["PTTL", &stored("k")]);
        let token = owner(&server, "k").expect("held");
        let (before, left) = (runs(&server, "evalsha") + runs(&server, "eval"), ttl());
        for _ in 0..FORGED {
            publish(&server, "x", &token, "k");
        }
        let asked = || runs(&server, "evalsha") + runs(&server, "eval") - before;
        wait_until("it asks", || asked() > 0);
        tokio::time::sleep(ms(100)).await;
        assert!(guard.is_held(), "ended by a message");
        // Twice if the server does not know the script, and some renewals.
        assert!(asked() <= 2 * FORGED + 4, "{} commands", asked());
        assert!(ttl() <= left, "extended by a message");
        guard.release().await.expect("it was held all the time");
    }
    works_again(&one, &server).await;
}

/// A client that may publish cannot keep a process from renewing, however much it sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f36_a_flood_of_forged_losses_costs_no_lease() {
    const LEASES: usize = 1000;
    // A flood costs every process time: on a busy machine renewals come seconds late.
    const LEASE: Duration = ms(15_000);
    const AT_ONCE: usize = 500;
    let server = RedisServer::start();
    let one = patient(&server.url()).await;
    let mut guards = Vec::new();
    for n in 0..LEASES {
        let request = one.lock(format!("k{n}")).ttl(LEASE);
        guards.push(request.acquire().await.expect("it is free"));
    }
    let token = owner(&server, "k0").expect("held");
    let process = token.split('.').next().expect("the first part").to_owned();
    let url = server.url();
    let forger = tokio::task::spawn_blocking(move || {
        let client = redis::Client::open(url).expect("a url");
        let mut forger = client.get_connection().expect("a connection");
        for round in 0..20 {
            let mut publish = redis::pipe();
            for n in 0..AT_ONCE {
                // One that is held, and some that are not.
                let token = match n % 2 {
                    0 => token.clone(),
                    _ => format!("{process}.{round}x{n}.1000s"),
                };
                let text = format!("x {token} {}", stored("k0"));
                publish.cmd("PUBLISH").arg(format!("distlock:wake:{process}")).arg(text).ignore();
            }
            publish.query::<()>(&mut forger).expect("it may publish");
        }
    });
    forger.await.expect("no panic");
    assert_eq!(kept(&guards).await, LEASES, "leases that were kept");
    drop(guards);
    wait_until("all are free", || server.lock_keys().is_empty());
    works_again(&one, &server).await;
}

/// It does not take until the next renewal, which is twenty seconds away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f36_a_true_loss_is_noticed_at_once() {
    let server = RedisServer::start();
    let (one, operator) = (connect(&server.url()).await, connect(&server.url()).await);
    for renew in [true, false] {
        let guard = one.lock("k").ttl(LONG).renew(renew).acquire().await.expect("free");
        let start = Instant::now();
        assert!(operator.force_release("k").await.expect("an answer"));
        tokio::time::timeout(LONG / 4, guard.lost()).await.expect("it is notified");
        assert!(start.elapsed() < Duration::from_secs(10) && !guard.is_held());
        let error = guard.release().await.expect_err("it was taken away");
        assert!(error.is_lost() && error.to_string().contains("force_release"), "{error}");
    }
    works_again(&one, &server).await;
}
