use std::sync::Barrier;

use distlock::LockManager;
use distlock_testkit::SECOND;
use metrics::with_local_recorder;

use crate::text::{builder, sum};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

fn calls(text: &str, outcome: &str) -> f64 {
    sum(text, "distlock_acquisitions_total", &[("lock", "pay"), ("outcome", outcome)])
}

/// Two threads use one manager, each with a recorder of its own.
#[test]
fn recorders_of_two_threads_do_not_meet() {
    let manager = LockManager::in_memory();
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        for n in [3, 5] {
            let (manager, both) = (manager.clone(), &both);
            scope.spawn(move || {
                let recorder = builder().build_recorder();
                let text = || recorder.handle().render();
                with_local_recorder(&recorder, || {
                    both.wait();
                    let guard = block_on(async {
                        for _ in 0..n {
                            let key = format!("{n}");
                            manager.lock(key).name("pay").run(async {}).await.expect("free");
                        }
                        manager.lock(format!("{n}")).name("pay").acquire().await.expect("free")
                    });
                    assert_eq!(sum(&text(), "distlock_held", &[]), 1.0, "{}", text());
                    // Its end goes to the recorder that got its beginning, on whichever thread it comes.
                    std::thread::spawn(move || drop(guard)).join().expect("no panic");
                    both.wait();
                });
                let text = text();
                assert_eq!(sum(&text, "distlock_held", &[("lock", "pay")]), 0.0, "{text}");
                assert_eq!(calls(&text, "acquired"), f64::from(n + 1), "{text}");
                assert_eq!(sum(&text, "distlock_hold_seconds_count", &[]), f64::from(n + 1));
            });
        }
    });
}

/// The next recorder may lie where the last one did.
#[test]
fn recorders_one_after_the_other_each_hear_their_own() {
    let manager = LockManager::in_memory();
    for n in 1..5 {
        let recorder = builder().build_recorder();
        with_local_recorder(&recorder, || {
            block_on(async {
                let lock = || manager.lock("k").name("pay");
                for _ in 0..n {
                    let guard = lock().acquire().await.expect("free");
                    lock().acquire().await.expect_err("held");
                    let mut waits = Box::pin(lock().wait(SECOND).acquire());
                    tokio::select! {
                        biased;
                        _ = waits.as_mut() => panic!("it is held"),
                        () = tokio::task::yield_now() => {}
                    }
                    let waiting = sum(&recorder.handle().render(), "distlock_waiting", &[]);
                    assert_eq!(waiting, 1.0);
                    drop(waits);
                    drop(guard);
                }
            });
        });
        let text = recorder.handle().render();
        for outcome in ["acquired", "busy", "cancelled"] {
            assert_eq!(calls(&text, outcome), f64::from(n), "{outcome}: {text}");
        }
        assert_eq!(sum(&text, "distlock_waiting", &[]), 0.0, "{text}");
        assert_eq!(sum(&text, "distlock_info", &[("store", "memory")]), 1.0, "{text}");
    }
}
