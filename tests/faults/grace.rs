//! W: a store that is gone for long: which calls wait for it, and which do not.

use std::time::{Duration, Instant};

use distlock::{BackendKind, LockManager};
use distlock_testkit::{
    LONG, Mode, Proxy, RedisServer, backend, ms, patient_builder, served, stand, wait_for,
    wait_until, waits,
};

use crate::support::{BACK, connected, freed, works_again};

/// By then a call that does not wait for the store has its answer; one that does waits six times as long.
const SOON: Duration = BACK;

fn is_gone(manager: &LockManager) -> bool {
    !manager.status().connected
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh4_calls_that_come_late_in_an_outage_fail_within_a_command_timeout() {
    let mut server = RedisServer::builder().durable().start();
    let builder = patient_builder(&server.url()).command_timeout(ms(1000));
    let hasty = connected(builder.clone().outage_grace(ms(100))).await;
    let patient = connected(builder.outage_grace(LONG)).await;
    let held = hasty.lock("held").ttl(LONG).wait(LONG).acquire().await.expect("it is free");
    let before = waits(&hasty, "held");
    wait_until("it waits", || hasty.status().waiting == 1);
    server.kill9();
    wait_until("the outage is noticed", || is_gone(&hasty) && is_gone(&patient));
    let early = waits(&patient, "other");

    // Longer than the grace.
    tokio::time::sleep(ms(150)).await;
    let begun = Instant::now();
    let calls = [
        hasty.lock("free").wait(LONG).acquire(),
        // Behind another call of this process, which gets no answer either.
        hasty.lock("free").wait(LONG).acquire(),
        // Behind one that waits on from before.
        hasty.lock("held").wait(LONG).acquire(),
        hasty.lock_all(["free", "held", "last"]).wait(LONG).acquire(),
        hasty.lock_all(["a", "b"]).wait(LONG).acquire(),
    ];
    let calls = calls.map(|call| tokio::spawn(tokio::time::timeout(SOON, call)));
    for call in calls {
        let result = call.await.expect("no panic").expect("it does not wait for the store");
        assert_eq!(backend(result), BackendKind::Unreachable);
    }
    let body = hasty.lock("free").wait(LONG).run(async { unreachable!("nobody has the lock") });
    let result = tokio::time::timeout(SOON, body).await.expect("it does not wait for the store");
    assert_eq!(backend(result), BackendKind::Unreachable);
    assert!(begun.elapsed() >= ms(1000), "a command's time was not given to it");
    assert!(!before.is_finished() && !early.is_finished(), "they came before the grace was over");

    server.restart();
    drop(served(early).await);
    wait_until("all are back", || !is_gone(&hasty));
    freed(held).await;
    drop(served(before).await);
    works_again(&hasty, &server).await;
    // From its next outage on it is patient again: none lasts.
    drop(hasty.lock("free").wait(LONG).acquire().await.expect("the store is back"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh4_a_store_that_is_back_within_a_command_timeout_is_waited_for_as_ever() {
    let server = RedisServer::start();
    let network = Proxy::to(server.addr());
    let holder = connected(patient_builder(&server.url())).await;
    // No outage is ridden out; but one question may take long.
    let timeout = ms(4000);
    let builder = patient_builder(&network.url()).command_timeout(timeout);
    let manager = connected(builder.outage_grace(ms(0))).await;
    let held = holder.lock("k").ttl(LONG).acquire().await.expect("it is free");
    network.set(Mode::Reset);
    wait_for("the outage is noticed", async || is_gone(&manager)).await;
    let waiting = waits(&manager, "k");
    tokio::time::sleep(ms(10)).await;
    network.set(Mode::Pass);
    stand(&server, "k", 1);
    tokio::time::sleep(timeout).await;
    assert!(!waiting.is_finished(), "the store is there, and it may wait for others");
    held.release().await.expect("it was held");
    drop(served(waiting).await);
    works_again(&manager, &server).await;
}
