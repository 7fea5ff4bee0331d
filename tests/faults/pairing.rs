//! R: answers that are paired with the wrong commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use distlock_testkit::{LONG, RedisServer, held, ms, patient_builder, wait_until, waits};

use crate::support::{connected, works_again};
use crate::tap::{Tap, Way};

/// A network that loses the answers to one write that took a lock; the connection goes on, and every
/// answer behind them is taken for that of the command before.
fn lossy(server: &RedisServer) -> (Tap, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let network = Tap::before(server.addr(), {
        let armed = armed.clone();
        move |_, way, answer| {
            let taken = way == Way::Down && answer.starts_with(b"+OK\r\n:");
            (taken && armed.swap(false, SeqCst)).then(Vec::new)
        }
    });
    (network, armed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r16_an_answer_that_was_lost_grants_nobody_anothers_lock() {
    let server = RedisServer::start();
    let (network, armed) = lossy(&server);
    let builder = patient_builder(&network.url()).command_timeout(ms(3000));
    let manager = connected(builder).await;
    let other = connected(patient_builder(&server.url())).await;
    let theirs = held(&other, "theirs").await;
    drop(manager.lock("k").ttl(LONG).acquire().await.expect("a connection that works"));
    wait_until("its counter is not raised again", || server.lock_keys().len() == 1);

    armed.store(true, SeqCst);
    // The first to be answered is told what the second was, and so on.
    let unheard = waits(&manager, "free 1");
    wait_until("its answers are lost", || !armed.load(SeqCst));
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
