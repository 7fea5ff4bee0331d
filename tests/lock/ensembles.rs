//! Stores of three servers: etcd and ZooKeeper, while one of them, or two, are missing.

use distlock::{LockError, LockManager};
use distlock_testkit::{
    Ensemble, LONG, Member, SECOND, assert_busy, held, ms, notified, served, wait_for, waits,
};

/// A manager that soon asks another server.
async fn manager<P: Member>(ensemble: &Ensemble<P>) -> LockManager {
    let builder = LockManager::builder().url(ensemble.url()).command_timeout(2 * SECOND);
    notified(builder.outage_grace(LONG).connect().await.expect("connect")).await
}

async fn nothing_is_left<P: Member>(ensemble: &Ensemble<P>) {
    wait_for("nothing is left", async || ensemble.left().is_empty()).await;
}

/// While one process holds a lock, and another one waits for it, the leader is missing.
async fn a_missing_leader_costs_no_lock<P: Member>(kill: bool) {
    let mut ensemble = Ensemble::<P>::start();
    let (one, other) = (manager(&ensemble).await, manager(&ensemble).await);
    let guard = one.lock("k").ttl(20 * SECOND).acquire().await.expect("it is free");
    let waiting = waits(&other, "k");
    wait_for("it waits", async || ensemble.left().len() >= 2).await;
    let leader = ensemble.leader();
    if kill {
        ensemble.kill9(leader)
    } else {
        ensemble.stop(leader)
    }
    assert_ne!(ensemble.leader(), leader);
    let remaining = guard.remaining();
    wait_for("those that are left renew it", async || guard.remaining() > remaining).await;
    assert!(!waiting.is_finished());
    let fence = guard.fencing_token();
    match guard.release().await {
        Ok(()) => {}
        // It was asked of the one that stands still, and goes on without the caller.
        Err(LockError::Backend { .. }) if !kill => {}
        Err(error) => panic!("{error}"),
    }
    let guard = served(waiting).await;
    assert!(guard.fencing_token() > fence, "fencing tokens grow over an election");
    let fence = guard.fencing_token();
    // The former leader has no newer state.
    ensemble.revive(leader);
    ensemble.leader();
    let refused = one.lock("k").wait(ms(500)).acquire().await;
    assert_busy(refused);
    guard.release().await.expect("it was held");
    let guard = served(waits(&one, "k")).await;
    assert!(guard.fencing_token() > fence);
    guard.release().await.expect("it was held");
    nothing_is_left(&ensemble).await;
}

/// One of three grants no lock.
async fn without_a_majority_there_is_no_lock<P: Member>() {
    let mut ensemble = Ensemble::<P>::start();
    let manager = manager(&ensemble).await;
    held(&manager, "k").await.release().await.expect("it was held");
    let leader = ensemble.leader();
    let missing = [leader, (leader + 1) % 3];
    missing.iter().for_each(|one| ensemble.stop(*one));
    match manager.lock("k").acquire().await {
        Err(LockError::Backend { .. }) => {}
        other => panic!("{other:?}"),
    }
    missing.iter().for_each(|one| ensemble.revive(*one));
    ensemble.leader();
    served(waits(&manager, "k")).await.release().await.expect("it was held");
    nothing_is_left(&ensemble).await;
}

macro_rules! ensemble {
    ($store:ident, $program:ty) => {
        mod $store {
            /// Fault: ET8, Z4.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_leader_that_is_killed_costs_no_lock() {
                super::a_missing_leader_costs_no_lock::<$program>(true).await;
            }

            /// Fault: ET8, Z4.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_leader_that_stands_still_costs_no_lock() {
                super::a_missing_leader_costs_no_lock::<$program>(false).await;
            }

            /// Fault: ET8, Z4.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn without_a_majority_there_is_no_lock() {
                super::without_a_majority_there_is_no_lock::<$program>().await;
            }
        }
    };
}

ensemble!(etcd, distlock_testkit::Etcd);
ensemble!(zookeeper, distlock_testkit::ZooKeeper);
