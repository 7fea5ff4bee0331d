//! R: answers that are paired with the wrong commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use distlock_testkit::{LONG, RedisServer, held, ms, patient_builder, wait_until, waits};

use crate::support::{connected, works_again};
use crate::tap::{Tap, Way, has};

/// A network that loses the answers to one write that took a lock; the connection goes on, and every
/// answer behind them is taken for that of the command before.
fn lossy(server: &RedisServer) -> (Tap, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let network = Tap::before(server.addr(), {
        let armed = armed.clone();
        move |_, way, answer| {
            let taken = way == Way::Down && has(answer, "+OK\r\n:");
            (taken && armed.swap(false, SeqCst)).then(Vec::new)
        }
    });
    (network, armed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f16_an_answer_that_was_lost_grants_nobody_anothers_lock() {
    let server = RedisServer::start();
    let (network, armed) = lossy(&server);
    let builder = patient_builder(&network.url()).command_timeout(ms(3000));
    let manager = connected(builder).await;
    let other = connected(patient_builder(&server.url())).await;
    let theirs = held(&other, "theirs").await;
    drop(manager.lock("k").ttl(LONG).acquire().await.expect("a connection that works"));
    wait_until("its counter is not raised again", || server.lock_keys().len() == 1);

    armed.store(true, SeqCst);
    // The first call gets the answer of the second, and so on.
    let mut tried = 0;
    let unheard = loop {
        tried += 1;
        assert!(tried < 100, "no answers are lost");
        let call = waits(&manager, &format!("free {tried}"));
        let is_over = || call.is_finished() || !armed.load(SeqCst);
        wait_until("it is answered, or its answers are lost", is_over);
        if !armed.load(SeqCst) {
            break call;
        }
        // On a busy machine they may come one by one, or to a try that was sent in another form.
        drop(call.await.expect("no panic").expect("granted"));
    };
    let calls: Vec<_> = (0..4)
        .flat_map(|n| ["theirs".to_owned(), format!("free of {n}")])
        .map(|key| (key.clone(), tokio::spawn(manager.lock(key).ttl(LONG).acquire())))
        .collect();
    for (key, call) in calls {
        let granted = call.await.expect("no panic").is_ok();
        assert!(!(granted && key == "theirs"), "somebody else has it, and still does");
    }
    assert!(theirs.is_held());
    drop(unheard.await.expect("no panic").expect("granted after all"));
    theirs.release().await.expect("it was held all the time");
    works_again(&manager, &server).await;
}

/// A network that loses the answers to one try that is sent without an `ECHO`.
fn lossy_without_echo(server: &RedisServer) -> (Tap, Arc<AtomicBool>) {
    const NONE: usize = usize::MAX;
    let armed = Arc::new(AtomicBool::new(false));
    let losing = AtomicUsize::new(NONE);
    let network = Tap::before(server.addr(), {
        let armed = armed.clone();
        move |connection, way, bytes| {
            let is_try = way == Way::Up && has(bytes, "NX") && has(bytes, "INCR");
            if is_try && !has(bytes, "ECHO") && armed.load(SeqCst) {
                losing.store(connection, SeqCst);
            }
            let lost = way == Way::Down
                && losing.compare_exchange(connection, NONE, SeqCst, SeqCst).is_ok();
            lost.then(|| {
                armed.store(false, SeqCst);
                Vec::new()
            })
        }
    });
    (network, armed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f16_a_try_that_was_alone_is_not_granted_by_the_answer_to_one_behind_it() {
    let server = RedisServer::start();
    let (network, armed) = lossy_without_echo(&server);
    let manager = connected(patient_builder(&network.url()).command_timeout(ms(3000))).await;
    let other = connected(patient_builder(&server.url())).await;
    let theirs = held(&other, "theirs").await;
    // A counter that happens to be raised in front of the second one shifts its answers further.
    for round in 0..5 {
        let over = Arc::new(AtomicBool::new(false));
        let tries = tokio::spawn({
            let (manager, over) = (manager.clone(), over.clone());
            async move {
                while !over.load(SeqCst) {
                    let granted = manager.lock("theirs").ttl(LONG).acquire().await;
                    assert!(granted.is_err(), "somebody else has it, and still does");
                }
            }
        });
        armed.store(true, SeqCst);
        wait_until("the answers of one that was alone are lost", || !armed.load(SeqCst));
        drop(waits(&manager, &format!("free {round}")).await.expect("no panic").expect("granted"));
        over.store(true, SeqCst);
        tries.await.expect("none was granted");
    }
    assert!(theirs.is_held());
    theirs.release().await.expect("it was held all the time");
    works_again(&manager, &server).await;
}

/// A user without the right to `ECHO` goes without, and does not fill the server's log of refusals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f16_echo_that_is_refused_is_not_asked_for_again() {
    let server = RedisServer::start();
    server.cli::<()>(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-echo"]);
    let manager = connected(patient_builder(&format!("redis://app:any@{}", server.addr()))).await;
    for n in 0..50 {
        held(&manager, &format!("free {n}")).await.release().await.expect("it was held");
        // Each in a millisecond of its own: the first few of each are marked.
        tokio::time::sleep(ms(2)).await;
    }
    let stats: String = server.cli(&["INFO", "commandstats"]);
    let echo = stats.lines().find(|line| line.starts_with("cmdstat_echo:")).expect("it was tried");
    assert!(echo.contains("rejected_calls=1,"), "{echo}");
}
