//! `mode` and `permits`: which callers hold a lock together, alone and with the other options.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use distlock::{LockError, LockManager, LockMode, LockStatus, redis_lock};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{alone, is_free};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

#[redis_lock(key = "report:{id}", mode = read)]
async fn read(id: u64, all: &Barrier) -> Result<(), LockError> {
    all.wait().await;
    Ok(())
}

#[redis_lock(key = "report:{id}", mode = write)]
async fn write(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = "report:{id}", mode = exclusive)]
async fn exclusive(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = "report:{id}")]
async fn of_no_mode(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// Each of three is in its body before one of them leaves it.
#[tokio::test]
async fn readers_are_in_their_bodies_together() {
    alone(async |manager| {
        let all = Barrier::new(3);
        let read = || read(7, &all);
        let together = timeout(LONG, async { tokio::join!(read(), read(), read()) });
        let (one, two, three) = together.await.expect("they wait for each other");
        one.and(two).and(three).expect("they hold it together");
        assert!(is_free(&manager, "report:7").await);
    })
    .await;
}

#[tokio::test]
async fn readers_keep_writers_out_and_writers_readers() {
    alone(async |manager| {
        let reader = manager.lock("report:7").mode(LockMode::Read).acquire().await.expect("free");
        for busy in [write(7).await, exclusive(7).await, of_no_mode(7).await] {
            assert!(busy.expect_err("it is read").is_busy());
        }
        assert_eq!(write(8).await.expect("another key"), 8);
        reader.release().await.expect("it was held");
        assert_eq!(write(7).await.expect("nobody reads"), 7);

        let writer = manager.lock("report:7").mode(LockMode::Write).acquire().await.expect("free");
        assert!(read(7, &Barrier::new(1)).await.expect_err("it is written").is_busy());
        writer.release().await.expect("it was held");
    })
    .await;
}

/// Counts the callers inside.
#[derive(Default)]
struct Partner {
    at_once: u32,
    under_way: AtomicU32,
    most: AtomicU32,
}

impl Partner {
    #[redis_lock(key = "partner", permits = self.at_once, wait = LONG, manager = locks)]
    async fn call(&self, locks: &LockManager) -> Result<(), LockError> {
        let under_way = self.under_way.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(under_way, SeqCst);
        sleep(Duration::from_millis(5)).await;
        self.under_way.fetch_sub(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn permits_are_all_in_use_and_never_more() {
    for at_once in [1, 3] {
        let manager = LockManager::in_memory();
        let partner = std::sync::Arc::new(Partner { at_once, ..Partner::default() });
        let mut calls = JoinSet::new();
        for _ in 0..20 {
            let (partner, manager) = (partner.clone(), manager.clone());
            calls.spawn(async move { partner.call(&manager).await });
        }
        for call in calls.join_all().await {
            call.expect("each has its turn");
        }
        assert_eq!(partner.most.load(SeqCst), at_once);
    }
}

#[redis_lock(key = "partner", permits = permits)]
async fn one_of(permits: u32) -> Result<u32, LockError> {
    Ok(permits)
}

#[tokio::test]
async fn each_call_is_counted_by_its_own_number() {
    alone(async |manager| {
        let permit = || manager.lock("partner").permits(2);
        let (one, other) = (permit().acquire().await, permit().acquire().await);
        assert!(one_of(2).await.expect_err("two are out").is_busy());
        assert_eq!(one_of(3).await.expect("a third one fits"), 3);
        assert!(one_of(1).await.expect_err("it would be alone").is_busy());
        drop(one.expect("free").release().await);
        assert_eq!(one_of(2).await.expect("one is back"), 2);
        drop(other.expect("free").release().await);
        assert_eq!(one_of(1).await.expect("all are back"), 1);
        let error = one_of(0).await.expect_err("nobody would be let in").to_string();
        assert!(error.contains("at least 1"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_with_the_mend() {
    alone(async |manager| {
        let both = manager.lock("k").mode(LockMode::Read).permits(2).acquire().await;
        for (refused, words) in [
            (both, "not together with mode"),
            (manager.lock("k").permits(0).acquire().await, "give at least 1"),
            (manager.lock_all(["a", "b"]).permits(2).acquire().await, "a request of its own"),
            // However many there are.
            (manager.lock_all(["a"]).permits(2).acquire().await, "a request of its own"),
        ] {
            let error = refused.expect_err(words);
            assert!(matches!(error, LockError::InvalidOption { .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(is_free(&manager, "k").await && is_free(&manager, "a").await);
    })
    .await;
}

mod with_other_options {
    use super::*;

    #[redis_lock(keys = ["a:{id}", "b:{id}"], mode = read, guard = lock)]
    async fn read_both(id: u8, all: &Barrier) -> Result<usize, LockError> {
        all.wait().await;
        Ok(lock.keys().count())
    }

    #[tokio::test]
    async fn several_keys_are_read_together() {
        alone(async |manager| {
            let all = Barrier::new(2);
            let both = async { tokio::join!(read_both(7, &all), read_both(7, &all)) };
            let (one, other) = timeout(LONG, both).await.expect("they hold them together");
            assert_eq!((one.ok(), other.ok()), (Some(2), Some(2)));
            let _written = manager.lock("b:7").acquire().await.expect("free");
            assert!(read_both(7, &Barrier::new(1)).await.expect_err("one is written").is_busy());
        })
        .await;
    }

    #[redis_lock(key = "k", mode = read)]
    async fn reading<F: Future>(inner: F) -> Result<F::Output, LockError> {
        Ok(inner.await)
    }

    #[redis_lock(key = "k", mode = write)]
    async fn writing<F: Future>(inner: F) -> Result<F::Output, LockError> {
        Ok(inner.await)
    }

    #[redis_lock(key = "k", permits = 3)]
    async fn one_of_three<F: Future>(inner: F) -> Result<F::Output, LockError> {
        Ok(inner.await)
    }

    #[redis_lock(key = "k", mode = read, reentrant = true)]
    async fn joins_reading() -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "k", mode = write, reentrant = true)]
    async fn joins_writing() -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "k", permits = permits, reentrant = true)]
    async fn joins_one_of(permits: u32) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "k", mode = read)]
    async fn reads_again() -> Result<(), LockError> {
        Ok(())
    }

    #[track_caller]
    fn would_deadlock(nested: Result<Result<(), LockError>, LockError>, mend: &str) {
        let error = nested.expect("the outer one is free").expect_err(mend);
        assert!(matches!(error, LockError::WouldDeadlock { .. }), "{error}");
        assert!(error.to_string().contains(mend), "{error}");
    }

    /// A call joins a lock that is as strict as its own, and no other.
    #[tokio::test]
    async fn reentrant_joins_what_is_as_strict() {
        alone(async |manager| {
            reading(joins_reading()).await.and_then(|inner| inner).expect("a read joins a read");
            writing(joins_reading()).await.and_then(|inner| inner).expect("a read joins a write");
            writing(joins_writing()).await.and_then(|inner| inner).expect("a write joins a write");
            writing(joins_one_of(2)).await.and_then(|inner| inner).expect("so does a permit");
            one_of_three(joins_one_of(3)).await.and_then(|inner| inner).expect("one of as many");
            one_of_three(joins_one_of(4)).await.and_then(|inner| inner).expect("one of more");

            would_deadlock(reading(reads_again()).await, "add `reentrant = true`");
            would_deadlock(reading(joins_writing()).await, "take `mode = write`, and look again");
            would_deadlock(reading(joins_one_of(2)).await, "let it end first");
            would_deadlock(one_of_three(joins_one_of(2)).await, "let it end first");
            would_deadlock(one_of_three(joins_writing()).await, "let it end first");
            assert!(is_free(&manager, "k").await);
        })
        .await;
    }

    #[redis_lock(key = "k", mode = read, max_hold = most)]
    async fn read_for(most: Duration, body: Duration) -> Result<(), LockError> {
        sleep(body).await;
        Ok(())
    }

    /// Readers that share a lease are each ended by their own `max_hold`.
    #[tokio::test]
    async fn max_hold_ends_one_reader_and_no_other() {
        alone(async |_| {
            let (stopped, done) = tokio::join!(
                read_for(Duration::from_millis(50), LONG),
                read_for(LONG, Duration::from_millis(300)),
            );
            assert!(stopped.expect_err("held for too long").is_lost());
            done.expect("it may read for longer");
        })
        .await;
    }

    #[redis_lock(key = "k", mode = read, min_hold = "300ms")]
    async fn read_shortly() -> Result<(), LockError> {
        Ok(())
    }

    #[tokio::test]
    async fn min_hold_keeps_writers_out_and_lets_readers_in() {
        alone(async |manager| {
            read_shortly().await.expect("free");
            assert!(!is_free(&manager, "k").await);
            assert!(manager.lock("k").acquire().await.is_err_and(|error| error.is_busy()));
            let reader = manager.lock("k").mode(LockMode::Read).acquire().await;
            drop(reader.expect("readers hold it together").release().await);
            let writer = manager.lock("k").wait(LONG).acquire().await;
            assert!(writer.is_ok_and(|guard| guard.is_held()));
        })
        .await;
    }

    #[redis_lock(key = "k", permits = 2, on_lost = continue, guard = permit)]
    async fn goes_on(manager: &LockManager) -> Result<bool, LockError> {
        assert!(manager.force_release("k").await?);
        sleep(Duration::from_millis(1)).await;
        Ok(permit.is_held())
    }

    #[redis_lock(key = "k", permits = 2)]
    async fn is_stopped(manager: &LockManager) -> Result<(), LockError> {
        assert!(manager.force_release("k").await?);
        sleep(LONG).await;
        Ok(())
    }

    #[tokio::test]
    async fn on_lost_is_each_holders_own() {
        alone(async |manager| {
            assert!(!goes_on(&manager).await.expect("it is not stopped"));
            assert!(is_stopped(&manager).await.expect_err("it is stopped").is_lost());
        })
        .await;
    }

    #[redis_lock(key = "k", mode = read, on_fail = skip)]
    async fn skipped() -> Option<u8> {
        Some(7)
    }

    #[tokio::test]
    async fn on_fail_skips_where_another_mode_has_it() {
        alone(async |manager| {
            let writer = manager.lock("k").acquire().await.expect("free");
            assert_eq!(skipped().await, None);
            writer.release().await.expect("it was held");
            let _reader = manager.lock("k").mode(LockMode::Read).acquire().await.expect("free");
            assert_eq!(skipped().await, Some(7));
        })
        .await;
    }
}

/// A reader holds the lock: with each option others read with it, write once it is gone, and take a permit.
mod each_option_in_each_mode {
    use super::*;

    macro_rules! each {
        ($($name:ident($($option:tt)*))*) => {
            $(mod $name {
                use super::*;

                #[redis_lock(key = "k", mode = read, $($option)*)]
                async fn read() -> Result<(), LockError> {
                    Ok(())
                }

                #[redis_lock(key = "k", mode = write, $($option)*)]
                async fn write() -> Result<(), LockError> {
                    Ok(())
                }

                #[redis_lock(key = "k", permits = 9, $($option)*)]
                async fn permit() -> Result<(), LockError> {
                    Ok(())
                }

                #[tokio::test]
                async fn is_taken_as_without_it() {
                    alone(async |manager| {
                        let reader = manager.lock("k").mode(LockMode::Read).acquire().await;
                        read().await.expect("readers read together");
                        permit().await.expect("who reads takes one of nine");
                        assert!(write().await.is_err_and(|error| error.is_busy()));
                        reader.expect("free").release().await.expect("it was held");
                        let free = async || while !is_free(&manager, "k").await {
                            sleep(Duration::from_millis(1)).await;
                        };
                        timeout(LONG, free()).await.expect("nobody reads any more");
                        write().await.expect("it is free");
                    })
                    .await;
                }
            })*
        };
    }

    each! {
        ttl(ttl = "5s")
        wait(wait = none)
        renew(renew = false)
        max_hold(max_hold = "1m")
        min_hold(min_hold = "1ms")
        on_lost(on_lost = continue)
        release(release = background)
        on_fail(on_fail = Err)
        map_err(map_err = std::convert::identity)
        reentrant(reentrant = true)
        guard(guard = _lock)
        name(name = "n")
        when(when = true)
        krate(crate = ::distlock)
    }
}

#[tokio::test]
async fn inspect_says_who_holds_it_and_whether_alone() {
    alone(async |manager| {
        let of = async || match manager.inspect("k").await.expect("a memory store answers") {
            LockStatus::Held { holders, alone, .. } => (holders.len(), alone),
            _ => (0, false),
        };
        assert_eq!(of().await, (0, false));
        let writer = manager.lock("k").acquire().await.expect("free");
        assert_eq!(of().await, (1, true));
        writer.release().await.expect("it was held");
        let permit = || manager.lock("k").permits(3).acquire();
        let permits = (permit().await.expect("free"), permit().await.expect("free"));
        assert_eq!(of().await, (2, false));
        drop(permits);
    })
    .await;
}
