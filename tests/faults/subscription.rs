//! R: the subscribed connection: when it may not, when it cannot, and how much it listens to.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, WakeUps, redis_lock};
use distlock_testkit::{
    Log, Mode, Proxy, RedisServer, clients, connect, held, in_own_process, ms, patient_builder,
    queue, served, stand, this_test, wait_until, wait_within, waits,
};
use tokio::task::JoinSet;

use crate::support::{connected, works_again};
use crate::tap::{Tap, Way, has};

/// Twenty times the longest pause before a subscription is made again. A manager that takes
/// it for forbidden asks again after a quarter of a minute at the earliest.
const HEARD_AGAIN: Duration = ms(10_000);

fn is_told(manager: &LockManager) -> bool {
    manager.status().wake_ups == WakeUps::Notified
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_subscribers_cut_off_from_a_busy_server_are_told_again_as_soon_as_it_answers() {
    // In a process of its own: what is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let server = RedisServer::builder().args(["--busy-reply-threshold", "50"]).start();
    // Connections that want to subscribe, and those among them that got `BUSY`.
    let (asking, refused) = (Mutex::new(HashSet::new()), Arc::new(Mutex::new(HashSet::new())));
    let network = Tap::before(server.addr(), {
        let refused = refused.clone();
        move |number, way, bytes| {
            let mut asking = asking.lock().expect("no panic");
            if way == Way::Up && has(bytes, "SUBSCRIBE") {
                asking.insert(number);
            } else if way == Way::Down && asking.contains(&number) && has(bytes, "-BUSY") {
                refused.lock().expect("no panic").insert(number);
            }
            None
        }
    });
    let managers = [connect(&network.url()).await, connect(&network.url()).await];
    let mut script = server.eye();
    let script = thread::spawn(move || {
        let endless = redis::cmd("EVAL").arg("while true do end").arg(0).to_owned();
        endless.query::<()>(&mut script).expect_err("it is killed");
    });
    let mut probe = server.eye();
    wait_until("the server is busy", || redis::cmd("PING").query::<()>(&mut probe).is_err());
    network.cut();
    wait_until("they may not subscribe", || refused.lock().expect("no panic").len() >= 2);
    redis::cmd("SCRIPT").arg("KILL").query::<()>(&mut probe).expect("it wrote nothing");
    script.join().expect("no panic");

    wait_within(HEARD_AGAIN, "they are told again", || managers.iter().all(is_told));
    assert!(!log.text().contains("wake_ups_denied"), "nothing is forbidden: {}", log.text());
    let guard = held(&managers[0], "k").await;
    let waiting = waits(&managers[1], "k");
    stand(&server, "k", 1);
    assert!(queue(&server, "k")[0].ends_with('s'), "whoever frees the lock tells its process");
    guard.release().await.expect("it was held");
    drop(served(waiting).await);
    works_again(&managers[0], &server).await;
}

#[redis_lock(key = "k", prefix = prefix, manager = manager, wait = "60s")]
async fn of_tenant(manager: &LockManager, prefix: String) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_with_a_prefix_for_every_request_a_process_is_told_again_after_an_interruption() {
    const TENANTS: usize = 1500;
    let server = RedisServer::start();
    let network = Proxy::to(server.addr());
    // Scaled: one after the other the channels take three times what a connection may.
    let connect_timeout = ms(1000);
    let builder = patient_builder(&network.url()).connect_timeout(connect_timeout);
    let manager = connected(builder).await;
    network.set(Mode::Delay(ms(1)));
    let mut calls = JoinSet::new();
    for n in 0..TENANTS {
        let manager = manager.clone();
        calls.spawn(async move { of_tenant(&manager, format!("tenant-{n}")).await });
    }
    while let Some(call) = calls.join_next().await {
        call.expect("no panic").expect("granted");
    }
    let channels = || server.cli::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len();
    let all_heard = || channels() == TENANTS + 1;
    wait_within(HEARD_AGAIN, "every channel is subscribed", all_heard);
    let subscriber = || -> String { server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]) };
    let id = |list: String| list.split(' ').next().unwrap_or_default().to_owned();
    for _ in 0..2 {
        let before = id(subscriber());
        server.cli::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        wait_within(HEARD_AGAIN, "every channel is subscribed again", || {
            let now = id(subscriber());
            !now.is_empty() && now != before && all_heard()
        });
    }
    wait_within(HEARD_AGAIN, "it is told", || is_told(&manager));
    // It stays so for longer than a connection takes that does not come to an end.
    let calm = Instant::now() + connect_timeout + ms(500);
    while Instant::now() < calm {
        assert!(is_told(&manager) && all_heard(), "it went deaf again");
        tokio::time::sleep(ms(50)).await;
    }
    assert!(clients(&server).len() <= 3, "connections are left over");
}
