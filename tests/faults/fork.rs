//! A process that is forked without `exec` while it has a manager.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use distlock::{LockError, LockManager};
use distlock_testkit::{
    LONG, RedisServer, fork_self, held, in_fork, in_own_process, ms, owner, patient, this_test,
};
use fork::{Fork, fork, waitpid_nohang};

/// Forked so often; `DISTLOCK_FORKS` makes it more.
const FORKS: usize = 60;
/// A child that hangs ends with this.
const HANGS: i32 = 99;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Forks, has the child do `work`, and says how it ended: 0 if nothing panicked.
fn in_child(work: impl FnOnce()) -> i32 {
    match fork().expect("a fork") {
        Fork::Child => {
            std::thread::spawn(|| {
                std::thread::sleep(LONG / 3);
                std::process::exit(HANGS);
            });
            let done = catch_unwind(AssertUnwindSafe(work));
            std::process::exit(i32::from(done.is_err()));
        }
        Fork::Parent(child) => loop {
            if let Some(status) = waitpid_nohang(child).expect("a child") {
                // How it exited, or the signal that ended it.
                return if status & 0x7f == 0 { status >> 8 } else { -(status & 0x7f) };
            }
            std::thread::sleep(ms(1));
        },
    }
}

fn names_the_mend<T>(result: Result<T, LockError>) {
    let error = result.map(drop).expect_err("the manager is the parent's").to_string();
    assert!(error.contains("make the manager after the fork"), "{error}");
}

/// Fault: G10.
#[test]
fn f33_a_forked_child_is_told_the_mend_and_touches_nothing_of_its_parents() {
    // In a process with nothing else in it.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let server = RedisServer::start();
    let of_parent = tokio::runtime::Runtime::new().expect("a runtime");
    let (manager, memory) = (of_parent.block_on(patient(&server.url())), LockManager::in_memory());
    let take = |key| of_parent.block_on(held(&manager, key));
    let guards = ["dropped", "released", "extended"].map(take);
    let [dropped, released, extended] = guards;
    let kept = of_parent.block_on(memory.lock("k").acquire()).expect("free");
    let owners = || ["dropped", "released", "extended"].map(|key| owner(&server, key));
    let before = owners();
    let [mut dropped, mut released, mut kept] = [dropped, released, kept].map(Some);
    let status = in_child(|| {
        block_on(async {
            names_the_mend(manager.lock("free").acquire().await);
            names_the_mend(manager.lock("dropped").wait(LONG).acquire().await);
            names_the_mend(manager.lock_all(["a", "b"]).run(async {}).await);
            names_the_mend(manager.inspect("free").await);
            names_the_mend(manager.ping().await);
            assert!(!manager.status().connected);
            names_the_mend(manager.force_release("dropped").await);
            names_the_mend(memory.lock("k").wait(LONG).acquire().await);
            names_the_mend(extended.extend(LONG).await);
            extended.lost().await;
            drop(dropped.take());
            names_the_mend(released.take().expect("it is there").release().await);
            names_the_mend(kept.take().expect("it is there").release().await);
            assert_eq!(manager.close(LONG).await.unconfirmed, 0);
            // One of its own.
            let own = patient(&server.url()).await;
            assert!(own.lock("dropped").acquire().await.is_err_and(|error| error.is_busy()));
            own.lock("own").acquire().await.expect("free").release().await.expect("held");
        });
    });
    assert_eq!(status, 0, "the child failed, or hung ({HANGS})");
    assert_eq!(owners(), before);
    of_parent.block_on(async {
        extended.extend(LONG).await.expect("it is held");
        for guard in [dropped, released, kept, Some(extended)].into_iter().flatten() {
            guard.release().await.expect("it was held");
        }
        manager.lock("free").acquire().await.expect("free").release().await.expect("held");
    });
}

/// What the child asked would be answered to the parent.
/// Fault: G10.
#[test]
fn f33_a_parent_of_many_children_is_never_granted_what_others_hold() {
    if !in_fork() {
        let forks = std::env::var("DISTLOCK_FORKS").unwrap_or_else(|_| FORKS.to_string());
        return fork_self(this_test!(), &[("FORKS", &forks)]).join();
    }
    let forks = std::env::var("FORKS").ok().and_then(|forks| forks.parse().ok()).unwrap_or(FORKS);
    let server = RedisServer::start();
    let other = block_on(patient(&server.url()));
    let manager = block_on(patient(&server.url()));
    let guard = block_on(held(&other, "held"));
    let before = owner(&server, "held");
    let (over, tries, grants) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        let trying = scope.spawn(|| {
            block_on(async {
                while !over.load(SeqCst) {
                    let granted = manager.lock("held").try_acquire().await.expect("an answer");
                    grants.fetch_add(usize::from(granted.is_some()), SeqCst);
                    tries.fetch_add(1, SeqCst);
                }
            });
        });
        for n in 0..forks {
            let status = in_child(|| {
                block_on(async {
                    for k in 0..5 {
                        let taken = manager.lock(format!("free-{n}-{k}")).acquire();
                        names_the_mend(
                            tokio::time::timeout(ms(3000), taken).await.expect("at once"),
                        );
                    }
                });
            });
            if status != 0 {
                failed.push(status);
            }
            // An answer of the child's would be that of a try which began behind its calls, and a machine
            // that is busy may have let none pass yet.
            let enough = tries.load(SeqCst) + 2;
            while tries.load(SeqCst) < enough && !trying.is_finished() {
                std::thread::sleep(ms(1));
            }
        }
        over.store(true, SeqCst);
    });
    let (tries, grants) = (tries.load(SeqCst), grants.load(SeqCst));
    let said =
        format!("{grants} grants in {tries} tries, {} of {forks} children failed", failed.len());
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{said}\n").as_bytes());
    assert!(guard.is_held() && owner(&server, "held") == before, "{said}");
    assert!(grants == 0 && failed.is_empty() && tries > forks, "{said}: {failed:?}");
    assert!(guard.remaining() > Duration::ZERO);
    block_on(guard.release()).expect("it was held");
}
