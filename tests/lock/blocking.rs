//! Locks for code that is not `async`: threads without a runtime.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockError, LockGuard, LockManager, OnLost, assert_held, redis_lock};
use distlock_testkit::{
    RedisServer, SECOND, in_own_process, nothing_is_left, patient_builder, this_test, wait_until,
};

const LONG: Duration = Duration::from_secs(120);

/// Of all threads and processes one at a time, or the sum is wrong.
#[redis_lock(key = "till:{till.0}", wait = LONG, manager = locks, blocking)]
fn add(till: (u32, &AtomicU32), locks: &LockManager) -> Result<u32, LockError> {
    assert_held!("till:{}", till.0);
    let before = till.1.load(SeqCst);
    thread::sleep(Duration::from_millis(1));
    till.1.store(before + 1, SeqCst);
    Ok(before)
}

fn threads_take_turns(managers: &[LockManager]) {
    let sum = AtomicU32::new(0);
    thread::scope(|scope| {
        for n in 0..8 {
            let (locks, sum) = (&managers[n % managers.len()], &sum);
            scope.spawn(move || {
                for _ in 0..10 {
                    add((7, sum), locks).expect("each has its turn");
                }
            });
        }
    });
    assert_eq!(sum.load(SeqCst), 80);
}

#[test]
fn threads_without_a_runtime_take_turns() {
    let server = RedisServer::start();
    let managers = [(); 2].map(|()| patient_builder(&server.url()).build().expect("a manager"));
    threads_take_turns(&managers);
    nothing_is_left(&server);
    threads_take_turns(&[LockManager::in_memory()]);
}

#[test]
fn a_wait_ends_in_time_and_with_a_release() {
    let locks = LockManager::in_memory();
    let held = locks.lock("k").acquire_blocking().expect("it is free");
    let begin = Instant::now();
    let refused = locks.lock("k").wait(Duration::from_millis(100)).acquire_blocking();
    assert!(refused.expect_err("it is held").is_busy());
    assert!((100..20_000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    thread::scope(|scope| {
        let next = scope.spawn(|| locks.lock("k").wait(LONG).acquire_blocking().map(drop));
        wait_until("it waits", || locks.status().waiting == 1);
        drop(held);
        next.join().expect("no panic").expect("it is free");
    });
}

#[test]
fn calls_inside_a_body_would_deadlock_or_join_it() {
    let locks = LockManager::in_memory();
    let inner =
        |reentrant| locks.lock("k").reentrant(reentrant).run_blocking(LockGuard::fencing_token);
    let outer =
        locks.lock("k").run_blocking(|guard| (guard.fencing_token(), inner(true), inner(false)));
    let (token, joined, refused) = outer.expect("it is free");
    assert_eq!(joined.expect("it is the same lock"), token);
    assert!(matches!(refused, Err(LockError::WouldDeadlock { .. })), "{refused:?}");
    inner(false).expect("it is free");
}

/// On the thread of a runtime whose clock stands: what would be waited for there never comes.
#[tokio::test(start_paused = true)]
async fn it_works_on_the_thread_of_a_runtime() {
    let server = RedisServer::start();
    for locks in
        [LockManager::in_memory(), patient_builder(&server.url()).build().expect("a manager")]
    {
        let _held = locks.lock("k").acquire_blocking().expect("it is free");
        let refused = locks.lock("k").wait(Duration::from_millis(50)).acquire_blocking();
        assert!(refused.expect_err("it is held").is_busy());
        let inner = || locks.lock("other").acquire_blocking().map(drop);
        let nested = locks.lock("other").run_blocking(|_| inner()).expect("it is free");
        assert!(matches!(nested, Err(LockError::WouldDeadlock { .. })), "{nested:?}");
        // A guard that was awaited, and one that was not, are the same.
        locks
            .lock("third")
            .acquire()
            .await
            .expect("it is free")
            .release()
            .await
            .expect("it was held");
    }
}

#[test]
fn what_ran_without_its_lock_is_lost_unless_it_may_go_on() {
    let server = RedisServer::start();
    let builder = || patient_builder(&server.url()).build().expect("a manager");
    let (locks, operator) = (builder(), builder());
    for goes_on in [false, true] {
        let body = |guard: &LockGuard| {
            let (done, is_done) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_all().build();
                    let taken = runtime.expect("a runtime").block_on(operator.force_release("k"));
                    done.send(taken).expect("it is waited for");
                });
                assert!(is_done.recv().expect("an answer").expect("it answers"));
            });
            wait_until("it is noticed", || !guard.is_held());
            "done"
        };
        let on_lost = if goes_on { OnLost::Continue } else { OnLost::Cancel };
        let outcome = locks.lock("k").ttl(SECOND).on_lost(on_lost).run_blocking(body);
        match goes_on {
            true => assert_eq!(outcome.expect("it goes on"), "done"),
            false => assert!(outcome.expect_err("it was lost").is_lost()),
        }
    }
}

#[test]
fn a_body_that_panics_frees_its_lock() {
    let locks = LockManager::in_memory();
    let panics = std::panic::AssertUnwindSafe(|| locks.lock("k").run_blocking(|_| panic!("a bug")));
    let panic = std::panic::catch_unwind(panics).expect_err("it panics");
    assert_eq!(panic.downcast_ref(), Some(&"a bug"));
    drop(locks.lock("k").wait(LONG).acquire_blocking().expect("it is free"));
}

#[redis_lock(key = "job", on_fail = skip, blocking)]
fn job(runs: &AtomicU32) {
    runs.fetch_add(1, SeqCst);
}

#[redis_lock(key = "job:{id}", when = id > 0, map_err = |error| format!("{id}: {}", error.is_busy()), blocking)]
fn sometimes(id: u32) -> Result<u64, String> {
    if id == 7 {
        return Err("its own".to_owned());
    }
    let half: u32 = "21".parse().map_err(|_| "no number")?;
    Ok(u64::from(half * 2))
}

struct Account {
    id: u32,
    moved: u32,
}

impl Account {
    #[redis_lock(key = "account:{self.id}", guard = lock, blocking)]
    fn move_money<T: Into<u32>>(&mut self, sum: T) -> Result<u64, LockError> {
        self.moved += sum.into();
        assert!(lock.is_held());
        Ok(lock.fencing_token())
    }
}

#[test]
fn the_attribute_with_its_other_options() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let locks = LockManager::in_memory();
    distlock::init(locks.clone()).expect("the first");
    let runs = AtomicU32::new(0);
    job(&runs);
    {
        let _elsewhere = locks.lock("job").acquire_blocking().expect("it is free");
        job(&runs);
        let _elsewhere = locks.lock("job:1").acquire_blocking().expect("it is free");
        let _elsewhere = locks.lock("job:0").acquire_blocking().expect("it is free");
        assert_eq!(sometimes(1), Err("1: true".to_owned()));
        assert_eq!(sometimes(0), Ok(42), "without the lock");
    }
    assert_eq!(runs.load(SeqCst), 1);
    assert_eq!(sometimes(1), Ok(42));
    assert_eq!(sometimes(7), Err("its own".to_owned()));
    let mut account = Account { id: 1, moved: 0 };
    let first = account.move_money(20_u8).expect("it is free");
    let second = account.move_money(22_u16).expect("it is free");
    assert!(first < second);
    assert_eq!(account.moved, 42);
}
