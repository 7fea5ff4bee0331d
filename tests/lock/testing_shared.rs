//! The test kit with readers, writers and permits: several processes, in virtual time.

use distlock::testing::{Ended, Locks};
use distlock::{LockError, LockManager, LockMode, redis_lock, with_manager};
use distlock_testkit::{SECOND, dropped_after};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

#[redis_lock(key = "k", mode = read, ttl = "10s", wait = "1h")]
async fn read(seconds: u32) -> Result<(), LockError> {
    sleep(seconds * SECOND).await;
    Ok(())
}

#[redis_lock(key = "k", mode = write, ttl = "10s", wait = "1h")]
async fn write(seconds: u32) -> Result<(), LockError> {
    sleep(seconds * SECOND).await;
    Ok(())
}

#[redis_lock(key = "k", permits = permits, ttl = "10s", wait = "1h")]
async fn one_of(permits: u32, seconds: u32) -> Result<(), LockError> {
    sleep(seconds * SECOND).await;
    Ok(())
}

/// Starts a call in a replica, and lets it come to where it waits.
async fn start<F>(locks: &Locks, replica: &str, call: F) -> JoinHandle<F::Output>
where
    F: Future<Output = Result<(), LockError>> + Send + 'static,
{
    let call = tokio::spawn(with_manager(locks.replica(replica).manager(), call));
    sleep(SECOND / 1000).await;
    call
}

async fn done(call: JoinHandle<Result<(), LockError>>) {
    call.await.expect("no panic").expect("it has its turn");
}

#[tokio::test(start_paused = true)]
async fn readers_are_together_and_a_writer_waits_for_those_before_it() {
    let locks = Locks::new();
    let mut calls = Vec::new();
    for replica in ["a", "b", "c"] {
        calls.push(start(&locks, replica, read(10)).await);
    }
    calls.push(start(&locks, "a", write(1)).await);
    // Behind the writer, although others read.
    calls.push(start(&locks, "b", read(1)).await);
    calls.push(start(&locks, "c", read(1)).await);
    for call in calls {
        done(call).await;
    }
    locks.assert_never_together("k");
    assert_eq!(locks.most_together("k"), 3);
    let history = locks.history("k");
    assert_eq!(history.names(), ["read", "read", "read", "write", "read", "read"]);
    let at = |n: usize| history[n].from.as_secs_f64().round() as u64;
    assert_eq!((at(3), at(4), at(5)), (10, 11, 11), "{history:?}");
    let tokens: Vec<u64> = history.iter().map(|held| held.fencing_token).collect();
    assert!(tokens[..3].iter().all(|read| *read < tokens[3]), "{tokens:?}");
    assert!(tokens[4..].iter().all(|read| *read > tokens[3]), "{tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn permits_are_counted_over_all_replicas() {
    for permits in [1, 4] {
        let locks = Locks::new();
        let mut calls = JoinSet::new();
        for n in 0..24 {
            let replica = locks.replica(["a", "b", "c"][n % 3]);
            calls.spawn(with_manager(replica.manager(), one_of(permits, 1)));
        }
        for call in calls.join_all().await {
            call.expect("each has its turn");
        }
        locks.assert_never_together("k");
        assert_eq!(locks.most_together("k"), permits as usize);
        assert_eq!(locks.history("k").len(), 24);
    }
}

#[tokio::test(start_paused = true)]
async fn the_permit_of_one_that_was_killed_is_back_after_the_ttl() {
    let locks = Locks::new();
    let killed = start(&locks, "a", one_of(2, 3600)).await;
    let _other = start(&locks, "b", one_of(2, 3600)).await;
    let waits = start(&locks, "c", one_of(2, 1)).await;
    let begin = Instant::now();
    locks.replica("a").kill();
    done(waits).await;
    assert_eq!(begin.elapsed(), 11 * SECOND);
    assert!(killed.await.expect("no panic").is_err());
    locks.assert_never_together("k");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_was_killed_keeps_a_writer_out_for_its_ttl() {
    let locks = Locks::new();
    let _killed = start(&locks, "a", read(3600)).await;
    let reader = start(&locks, "b", read(2)).await;
    let writer = start(&locks, "c", write(1)).await;
    let begin = Instant::now();
    locks.replica("a").kill();
    done(reader).await;
    done(writer).await;
    assert_eq!(begin.elapsed(), 11 * SECOND);
    let history = locks.history("k");
    assert_eq!(history[0].ended, Some(Ended::Lost));
    assert_eq!(history.replicas(), ["a", "b", "c"]);
    locks.assert_never_together("k");
}

#[tokio::test(start_paused = true)]
async fn lose_takes_it_from_all_who_hold_it() {
    let locks = Locks::new();
    let readers = [start(&locks, "a", read(60)).await, start(&locks, "b", read(60)).await];
    let writer = start(&locks, "c", write(1)).await;
    assert!(locks.lose("k"));
    for reader in readers {
        assert!(reader.await.expect("no panic").expect_err("it was lost").is_lost());
    }
    done(writer).await;
    assert!(!locks.lose("k"), "nobody has it any more");
}

#[tokio::test(start_paused = true)]
async fn others_may_read_or_have_permits_elsewhere() {
    let locks = Locks::new();
    let ask = || locks.manager().lock("k");
    let reading = locks.read_elsewhere("k");
    let also_reading = locks.read_elsewhere("k");
    ask().mode(LockMode::Read).acquire().await.map(drop).expect("readers are together");
    reading.end();
    assert!(ask().acquire().await.expect_err("one still reads").is_busy());
    also_reading.end();
    ask().acquire().await.map(drop).expect("nobody reads");

    let out = locks.permits_elsewhere("k", 4);
    assert!(ask().permits(4).acquire().await.expect_err("all are out").is_busy());
    let fifth = ask().permits(5).acquire().await.expect("a fifth");
    assert!(ask().permits(5).acquire().await.expect_err("all are out").is_busy());
    drop((out, fifth));
    ask().permits(1).acquire().await.map(drop).expect("all are back");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "read_elsewhere: \"k\" is held already")]
async fn nobody_reads_where_one_is_alone() {
    let locks = Locks::new();
    let _held = locks.held_elsewhere("k");
    let _reading = locks.read_elsewhere("k");
}

/// Two at once on a store that excludes no caller.
async fn together(one: fn(LockManager) -> distlock::LockRequest, other: u32) -> Locks {
    let locks = Locks::broken();
    let one = one(locks.replica("a").manager()).acquire().await.expect("it excludes nobody");
    let mut others = Vec::new();
    for n in 0..other {
        let manager = locks.replica(&format!("b{n}")).manager();
        let other = manager.lock("k").permits(2).acquire().await;
        others.push(other.expect("it excludes nobody"));
    }
    drop((one, others));
    locks
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "2 had \"k\" at once")]
async fn one_beside_a_writer_is_seen() {
    together(|manager| manager.lock("k").mode(LockMode::Write), 1).await.assert_never_together("k");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "3 had \"k\" at once")]
async fn a_permit_too_many_is_seen() {
    together(|manager| manager.lock("k").permits(2), 2).await.assert_never_together("k");
}

#[tokio::test(start_paused = true)]
async fn those_who_may_be_together_are_no_mistake() {
    let locks = together(|manager| manager.lock("k").mode(LockMode::Read), 2).await;
    locks.assert_never_together("k");
    assert_eq!(locks.most_together("k"), 3);
}

/// Whether its wait runs out or its call is dropped.
#[tokio::test(start_paused = true)]
async fn fc1_a_waiter_of_another_mode_that_gives_up_keeps_nobody_out() {
    let locks = Locks::new();
    let [one, other, third] = ["a", "b", "c"].map(|name| locks.replica(name).manager());
    let of = |manager: &LockManager, kind: &str| {
        let request = manager.lock("k").wait(SECOND);
        match kind {
            "read" => request.mode(LockMode::Read),
            "permit" => request.permits(2),
            _ => request.mode(LockMode::Write),
        }
    };
    for held in ["write", "read", "permit"] {
        for asked in ["write", "read", "permit"] {
            // All readers count as one, so permits may be beside them.
            if !(held == "write" || asked == "write" || held == "permit" && asked == "permit") {
                continue;
            }
            let mut guards = vec![of(&one, held).acquire().await.expect("free")];
            if held != "write" {
                guards.push(of(&one, held).acquire().await.expect("there is room"));
            }
            let busy = of(&other, asked).acquire().await.expect_err("held");
            assert!(busy.is_busy(), "{busy:?}");
            for polls in 1..4 {
                let dropped = dropped_after(polls, of(&other, asked).acquire()).await;
                assert!(!matches!(dropped, Some(Ok(_))), "it is held");
            }
            let waiting = tokio::spawn(of(&other, asked).wait(60 * SECOND).acquire());
            sleep(SECOND / 1000).await;
            waiting.abort();
            for guard in guards {
                guard.release().await.expect("it was held");
            }
            // Nobody is left who would have the lock reserved for a second or more.
            let start = Instant::now();
            for next in ["read", "permit", "write"] {
                let next = of(&third, next).acquire().await;
                let next = next.unwrap_or_else(|error| panic!("{held}, {asked}: {error}"));
                next.release().await.expect("it was held");
            }
            assert!(start.elapsed() < SECOND / 2, "{held}, {asked}: {:?}", start.elapsed());
        }
    }
    assert!(third.inspect("k").await.expect("an answer").is_free());
}
