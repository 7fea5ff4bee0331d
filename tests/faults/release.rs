//! Giving locks back to a server that does not take them.

use distlock::Release;
use distlock_testkit::{
    LONG, Log, RedisServer, connect, in_own_process, info, ms, patient, runs, this_test, wait_for,
    wait_within,
};

use crate::support::{BACK, works_again};

/// Refuses every write, or does not any more.
#[track_caller]
fn refuses(server: &RedisServer, refuses: bool) {
    let replicas = if refuses { "1" } else { "0" };
    server.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
}

#[tokio::test]
async fn background_release_that_fails_is_reported_and_tried_again() {
    // In a process of its own: what is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let request = manager.lock("k").name("first").ttl(LONG).release(Release::Background);
    let result = request.run(async { refuses(&server, true) }).await;
    result.expect("the result stands");
    wait_for("it is reported", async || log.says("WARN", &["released_late", "first"])).await;
    refuses(&server, false);
    works_again(&manager, &server).await;

    let request = manager.lock("k").name("stolen").ttl(LONG).release(Release::Background);
    request.run(async { server.cli::<()>(&["FLUSHALL"]) }).await.expect("the result stands");
    wait_for("it is reported", async || {
        log.says("WARN", &["released_late", "stolen", "another owner"])
    })
    .await;
}

#[tokio::test]
async fn f39_releases_that_are_refused_share_one_pace_and_are_done_once_the_server_is_well() {
    const GUARDS: usize = 300;
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let mut guards = Vec::new();
    for n in 0..GUARDS {
        let request = manager.lock(format!("k-{n}")).ttl(10 * LONG);
        guards.push(request.acquire().await.expect("granted"));
    }
    refuses(&server, true);
    drop(guards);
    // Each is tried once, whatever the server does then.
    let tried = || runs(&server, "evalsha") + runs(&server, "eval");
    wait_for("all were tried", async || tried() >= GUARDS as u64).await;
    let before = info(&server, "total_commands_processed");
    tokio::time::sleep(ms(3000)).await;
    let more = info(&server, "total_commands_processed") - before;
    assert!(more < 3 * 200, "{more} commands in three seconds");
    assert_eq!(server.lock_keys().len(), GUARDS);
    refuses(&server, false);
    wait_within(BACK, "all are free", || server.lock_keys().is_empty());
    // What was done is not done again.
    silent(&server).await;
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn f39_nothing_is_sent_for_refused_calls_once_they_are_over() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    server.cli::<()>(&["HSET", "distlock:lock:{k}", "of another", "type"]);
    for _ in 0..50 {
        let request = || manager.lock("k").ttl(10 * LONG);
        request().acquire().await.expect_err("it is no lock");
        request().wait(LONG).acquire().await.expect_err("it is no lock");
        drop(tokio::time::timeout(ms(1), request().wait(LONG).acquire()).await);
    }
    silent(&server).await;
}

/// Nothing is asked of the server any more, for a whole second.
async fn silent(server: &RedisServer) {
    // Renewals are none of it: the locks of these tests live long.
    let sent = || info(server, "total_commands_processed");
    let silence = async {
        loop {
            let before = sent();
            tokio::time::sleep(ms(1000)).await;
            // Asking is a command itself.
            if sent() - before <= 1 {
                return;
            }
        }
    };
    tokio::time::timeout(LONG / 3, silence).await.expect("nothing is asked of the server any more");
}

/// What this process has in memory, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn f14_a_call_with_min_hold_keeps_nothing_in_the_process_when_it_is_over() {
    const CALLS: usize = 20_000;
    // In a process of its own: memory is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = RedisServer::start();
        let manager = patient(&server.url()).await;
        let calls = async |keep: std::time::Duration, at: usize| {
            let mut tasks = tokio::task::JoinSet::new();
            for task in 0..8 {
                let manager = manager.clone();
                tasks.spawn(async move {
                    for n in 0..CALLS / 8 {
                        let request = manager.lock(format!("k-{at}-{task}-{n}")).min_hold(keep);
                        request.run(async {}).await.expect("granted");
                    }
                });
            }
            tasks.join_all().await;
        };
        calls(ms(0), 0).await;
        let before = resident();
        calls(60 * LONG, 1).await;
        let more = resident().saturating_sub(before) / CALLS as u64;
        assert!(more < 150, "{more} bytes stay for each call");
        assert_eq!(server.lock_keys().len(), CALLS);
    });
}

#[tokio::test]
async fn f14_whoever_comes_while_a_lock_is_kept_has_it_when_it_is_due() {
    const MIN: std::time::Duration = ms(1500);
    let server = RedisServer::start();
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    for by in [&holder, &other] {
        let start = std::time::Instant::now();
        holder.lock("k").ttl(LONG).min_hold(MIN).run(async {}).await.expect("granted");
        let next = by.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("when it is due");
        let after = start.elapsed();
        // A look that is not meant for the end of the lease comes after four seconds at the earliest.
        assert!(after >= MIN * 9 / 10 && after < ms(4000), "after {after:?}");
        next.release().await.expect("it was held");
    }
    works_again(&holder, &server).await;
}
