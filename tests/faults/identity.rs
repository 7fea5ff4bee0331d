//! One identity that two have: a virtual machine that goes on twice from one snapshot.

use distlock::{LockManager, LockStatus};
use distlock_runtime::testing::faults::Faults;
use distlock_testkit::{
    LONG, RedisServer, ms, owner, patient_builder, queue, served, stand, wait_until, waits,
};

use crate::support::works_again;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f25_a_lock_with_an_identity_that_was_cloned_is_not_the_clones() {
    let server = RedisServer::start();
    let twin = || {
        let faults = Faults::over(patient_builder(&server.url()));
        faults.identity("0123456789abcdef0123456789abcdef").start().expect("a manager").0
    };
    let is_held = async |manager: &LockManager| {
        let status = manager.inspect("k").await.expect("an answer");
        matches!(status, LockStatus::Held { .. })
    };
    // Both count from the same number, so what one asks for first the other does, too.
    let (one, other) = (twin(), twin());
    let guard = one.lock("k").ttl(LONG).acquire().await.expect("it is free");
    let second = other.lock("k").ttl(LONG).try_acquire().await.expect("an answer");
    assert!(second.is_none(), "both hold it");
    let second = other.lock("k").ttl(LONG).wait(ms(200)).acquire().await;
    assert!(second.is_err_and(|error| error.is_busy()), "both hold it");
    wait_until("he has left", || queue(&server, "k").is_empty());
    assert!(guard.is_held() && is_held(&other).await);
    let token = owner(&server, "k").expect("held");
    // Both hear of it when one of them is called.
    let waiting = waits(&other, "k");
    stand(&server, "k", 1);
    guard.release().await.expect("nobody has taken it away");
    let guard = served(waiting).await;
    assert_ne!(owner(&server, "k"), Some(token));
    guard.release().await.expect("it was held");
    works_again(&one, &server).await;
}
