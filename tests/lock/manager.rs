//! How managers are made and found, what their URLs mean, and how they end.

use std::process::Command;
use std::time::Duration;

use distlock::{BackendKind, LockError, LockManager, WakeUps, redis_lock, with_manager};
use distlock_testkit::{
    RedisServer, SECOND, fork_self, in_fork, in_own_process, this_test, wait_for, wait_until,
};

const PASSWORD: &str = "hunter2-correct-horse";

/// The key that is stored for a lock "k" held by `manager`, and its ttl in milliseconds.
async fn stored(manager: &LockManager, server: &RedisServer) -> (String, u64) {
    let guard = manager.lock("k").acquire().await.expect("granted");
    let keys = server.lock_keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    let ttl = server.cli(&["PTTL", &keys[0]]);
    guard.release().await.expect("it was held");
    assert!(server.lock_keys().is_empty());
    (keys[0].clone(), ttl)
}

#[tokio::test]
async fn builder_sets_what_locks_have_in_common() {
    let server = RedisServer::start();
    let (key, ttl) = stored(
        &LockManager::builder().url(server.url()).connect().await.expect("connect"),
        &server,
    )
    .await;
    assert_eq!(key, "distlock:lock:{k}");
    assert!((25_000..=30_000).contains(&ttl), "{ttl}");

    let builder = LockManager::builder().url(server.url()).prefix("shop").ttl(600 * SECOND);
    let manager = builder.wait(60 * SECOND).connections(3).build().expect("made without I/O");
    let (key, ttl) = stored(&manager, &server).await;
    assert_eq!(key, "shop:lock:{k}");
    assert!((500_000..=600_000).contains(&ttl), "{ttl}");

    let holder = manager.lock("k").acquire().await.expect("granted");
    let release = async {
        tokio::time::sleep(SECOND / 10).await;
        holder.release().await.expect("it was held");
    };
    let ((), waited) = tokio::join!(release, manager.lock("k").acquire());
    waited.expect("waits as the builder says").release().await.expect("it was held");
}

#[tokio::test]
async fn urls() {
    let server = RedisServer::builder().password(PASSWORD).start();
    for url in [server.url(), server.url_of_db(0), server.unix_url()] {
        let manager = LockManager::connect(&url).await.expect("connect");
        assert_eq!(stored(&manager, &server).await.0, "distlock:lock:{k}");
        assert!(!format!("{manager:?}").contains(PASSWORD));
    }

    let manager = LockManager::connect(&server.url_of_db(3)).await.expect("connect");
    let guard = manager.lock("k").acquire().await.expect("granted");
    assert!(server.lock_keys().is_empty(), "it is not in database 0");
    assert!(server.cli::<String>(&["INFO", "keyspace"]).contains("db3:"));
    guard.release().await.expect("it was held");

    let rule = format!("ACL SETUSER app on >{PASSWORD} ~distlock:* &distlock:* +@all");
    server.cli::<()>(&rule.split(' ').collect::<Vec<_>>());
    let url = format!("redis://app:{PASSWORD}@{}", server.addr());
    let manager = LockManager::connect(&url).await.expect("connect");
    assert_eq!(stored(&manager, &server).await.0, "distlock:lock:{k}");
}

/// Fault: H12.
#[tokio::test]
async fn bad_settings_are_refused_with_the_mend_and_without_the_password() {
    let host = format!("u:{PASSWORD}@localhost");
    let urls = [
        String::new(),
        "localhost:6379".to_owned(),
        format!("mysql://{host}/"),
        format!("redis://{host}:notaport/"),
        format!("redis://{host}/notadatabase"),
    ];
    for url in &urls {
        for error in [
            LockManager::connect_lazy(url).expect_err("a bad URL"),
            LockManager::connect(url).await.expect_err("a bad URL"),
        ] {
            let text = format!("{error} {error:?}");
            assert!(matches!(error, LockError::InvalidOption { .. }), "{text}");
            assert!(text.contains("redis://") && !text.contains(PASSWORD), "{text}");
        }
    }
    let builder = || LockManager::builder().url(format!("redis://{host}"));
    assert!(!format!("{:?}", builder()).contains(PASSWORD));
    for (option, builder) in [
        ("url", LockManager::builder()),
        ("ttl", builder().ttl(Duration::from_millis(9))),
        ("ttl", builder().ttl(Duration::MAX)),
        ("command_timeout", builder().command_timeout(Duration::ZERO)),
        ("connect_timeout", builder().connect_timeout(Duration::ZERO)),
        ("connections", builder().connections(0)),
        ("busy_status", builder().busy_status(200)),
    ] {
        let error = builder.build().expect_err(option);
        assert!(matches!(error, LockError::InvalidOption { .. }), "{error:?}");
        assert!(error.to_string().contains(option), "{error}");
    }
    let short = LockManager::in_memory().lock("k").ttl(Duration::ZERO);
    let error = short.acquire().await.expect_err("no time to live");
    assert!(matches!(error, LockError::InvalidOption { .. }), "{error:?}");
}

#[tokio::test]
async fn errors_know_their_http_status() {
    let busy = async |manager: LockManager| {
        let _held = manager.lock("k").acquire().await.expect("granted");
        manager.lock("k").acquire().await.expect_err("held").http_status()
    };
    assert_eq!(busy(LockManager::in_memory()).await, 423);
    let builder = LockManager::builder().url("memory://").busy_status(409);
    assert_eq!(busy(builder.build().expect("settings")).await, 409);

    let manager = LockManager::in_memory();
    assert_eq!(manager.lock("").acquire().await.expect_err("no key").http_status(), 400);
    let no_ttl = manager.lock("k").ttl(Duration::ZERO).acquire().await;
    assert_eq!(no_ttl.expect_err("no time to live").http_status(), 500);
    manager.close(SECOND).await;
    assert_eq!(manager.lock("k").acquire().await.expect_err("closed").http_status(), 503);
}

#[redis_lock(key = "k")]
async fn locked() -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn without_a_manager_nothing_is_locked_and_nothing_runs() {
    if in_own_process(this_test!(), &[]) {
        assert!(matches!(distlock::manager(), Err(LockError::NotConfigured)));
        assert!(matches!(LockManager::from_env(), Err(LockError::NotConfigured)));
        assert!(matches!(locked().await, Err(LockError::NotConfigured)));
        // Which is not final.
        distlock::init(LockManager::in_memory()).expect("the first");
        locked().await.expect("granted");
    }
}

#[redis_lock(key = "job", on_fail = skip)]
async fn job() {
    unreachable!("there is no manager");
}

#[tokio::test]
async fn a_program_without_a_log_hears_of_a_job_that_does_not_run() {
    const CHILD: &str = "DISTLOCK_TEST_JOB";
    if std::env::var_os(CHILD).is_some() {
        return job().await;
    }
    let mut child = Command::new(std::env::current_exe().expect("path of this test"));
    child.args([this_test!(), "--exact", "--nocapture"]).env(CHILD, "1").env_remove("DISTLOCK_URL");
    let output = child.output().expect("it starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert!(complaint.contains("distlock: not run: no lock manager"), "{complaint}");
}

#[tokio::test]
async fn init_sets_the_manager_once() {
    if in_own_process(this_test!(), &[("DISTLOCK_URL", "redis://127.0.0.1:1")]) {
        distlock::init(LockManager::in_memory()).expect("the first");
        let again = distlock::init(LockManager::in_memory()).expect_err("the second");
        assert!(matches!(again, LockError::InvalidOption { .. }), "{again:?}");
        // The one in memory, not the one of the environment, where no server listens.
        let _guard = distlock::manager().expect("set").lock("k").acquire().await;
        assert!(locked().await.expect_err("held").is_busy());
    }
}

#[tokio::test]
async fn environment_makes_the_manager_on_first_use() {
    if in_fork() {
        let server = std::env::var("SERVER").expect("where to look");
        let mut eye = redis::Client::open(server).expect("a URL");
        let guard = distlock::manager().expect("made").lock("k").acquire().await;
        let guard = guard.expect("granted");
        let key = "shop:lock:{k}";
        let ttl: u64 = redis::cmd("PTTL").arg(key).query(&mut eye).expect("PTTL");
        assert!((80_000..=90_000).contains(&ttl), "{ttl}");
        let release = async {
            tokio::time::sleep(SECOND / 10).await;
            guard.release().await.expect("it was held");
        };
        let ((), waited) = tokio::join!(release, locked());
        waited.expect("waits as the environment says");
        let late = distlock::init(LockManager::in_memory()).expect_err("there is one already");
        assert!(matches!(late, LockError::InvalidOption { .. }), "{late:?}");
        return;
    }
    let server = RedisServer::start();
    let url = server.url();
    let env = [
        ("SERVER", url.as_str()),
        ("DISTLOCK_URL", &url),
        ("DISTLOCK_PREFIX", "shop"),
        ("DISTLOCK_TTL", "1m 30s"),
        ("DISTLOCK_WAIT", "1m"),
    ];
    fork_self(this_test!(), &env).join();
    wait_until("no key is left", || server.lock_keys().is_empty());
}

#[test]
fn environment_that_cannot_be_used_is_named() {
    if in_fork() {
        let variable = std::env::var("BAD").expect("which one is bad");
        for error in [
            LockManager::from_env().expect_err("a bad variable"),
            distlock::manager().expect_err("a bad variable"),
        ] {
            assert!(matches!(error, LockError::InvalidOption { .. }), "{error:?}");
            assert!(error.to_string().contains(&variable), "{error}");
        }
        return;
    }
    for (variable, value) in [("DISTLOCK_TTL", "5 parsecs"), ("DISTLOCK_WAIT", "-1s")] {
        let env = [("DISTLOCK_URL", "memory://"), (variable, value), ("BAD", variable)];
        fork_self(this_test!(), &env).join();
    }
}

#[tokio::test]
async fn with_manager_is_for_its_task_alone() {
    if in_own_process(this_test!(), &[("DISTLOCK_URL", "memory://")]) {
        let process_wide = distlock::manager().expect("from the environment");
        let _held = process_wide.lock("k").acquire().await.expect("granted");
        assert!(locked().await.expect_err("held").is_busy());
        let (one, other) = (LockManager::in_memory(), LockManager::in_memory());
        let nested = async {
            locked().await.expect("free in this one");
            let _held = distlock::manager().expect("this one").lock("k").acquire().await;
            assert!(locked().await.expect_err("held here, too").is_busy());
            with_manager(other, locked()).await.expect("free in the other one");
            let spawned = tokio::spawn(locked()).await.expect("no panic");
            assert!(spawned.expect_err("of the process again").is_busy());
        };
        with_manager(one, nested).await;
        assert!(locked().await.expect_err("held").is_busy());
    }
}

#[tokio::test]
async fn clones_are_one_manager() {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.expect("connect");
    let mut guards = Vec::new();
    for key in 0..20 {
        let request = manager.clone().lock(key.to_string());
        guards.push(request.acquire().await.expect("granted"));
    }
    let clients: String = server.cli(&["CLIENT", "LIST"]);
    let connections = clients.lines().filter(|client| client.contains("addr=127.0.0.1:")).count();
    assert!(connections <= 2, "{clients}");
}

/// Fault: A2.
#[tokio::test]
async fn fencing_tokens_grow_with_every_lock_and_over_lost_data() {
    let mut server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.expect("connect");
    let other = LockManager::connect(&server.url()).await.expect("connect");
    let mut last = 0;
    for round in 0..20 {
        let manager = if round % 3 == 0 { &other } else { &manager };
        if round == 10 {
            server.restart_empty();
        }
        // The first calls after the restart may still find no server.
        let mut guard = None;
        distlock_testkit::wait_for("a lock", async || {
            guard = manager.lock("k").wait(SECOND).acquire().await.ok();
            guard.is_some()
        })
        .await;
        let guard = guard.expect("granted");
        assert!(guard.fencing_token() > last, "{} after {last}", guard.fencing_token());
        last = guard.fencing_token();
        guard.release().await.expect("it was held");
    }
}

/// Fault: G9.
#[tokio::test]
async fn close_frees_what_is_held_and_gives_nothing_more() {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.expect("connect");
    let guards = [manager.lock("a"), manager.lock("b")];
    let [a, b] = guards.map(|request| request.ttl(60 * SECOND));
    let guards = (a.acquire().await.expect("granted"), b.acquire().await.expect("granted"));
    let (held, is_held) = tokio::sync::oneshot::channel();
    let call = tokio::spawn(manager.lock("c").run(async move {
        held.send(()).expect("somebody waits for it");
        std::future::pending::<()>().await;
    }));
    is_held.await.expect("it runs");

    let report = manager.close(30 * SECOND).await;
    assert_eq!((report.freed, report.unconfirmed, report.is_complete()), (3, 0, true));
    assert!(server.lock_keys().is_empty());
    assert!(!guards.0.is_held());
    assert!(guards.1.release().await.expect_err("no longer ours").is_lost());
    assert!(call.await.expect("no panic").expect_err("stopped").is_lost());
    let more = manager.lock("d").acquire().await;
    assert!(matches!(more, Err(LockError::Closed)), "{more:?}");
    assert!(manager.close(SECOND).await.is_complete(), "a second time there is nothing to do");
}

/// Fault: G9.
#[tokio::test]
async fn close_says_what_it_could_not_free() {
    let server = RedisServer::start();
    let manager = LockManager::connect(&server.url()).await.expect("connect");
    let _guard = manager.lock("k").acquire().await.expect("granted");
    server.stop();
    let report = manager.close(SECOND / 5).await;
    assert_eq!((report.freed, report.unconfirmed), (0, 1), "{report:?}");
    // It goes on in the background.
    server.cont();
    wait_until("the lock is free", || server.lock_keys().is_empty());
}

/// Without asking the store: it is right also when that cannot be reached.
#[tokio::test]
async fn status_says_what_is_held_and_waited_for() {
    let mut server = RedisServer::start();
    let memory = LockManager::in_memory();
    let redis = LockManager::connect_lazy(server.url()).expect("a URL");
    assert!(memory.status().connected);
    assert!(!redis.status().connected, "nothing was asked of it yet");
    for manager in [memory, redis] {
        let guards = [manager.lock("a").acquire().await, manager.lock("b").acquire().await]
            .map(Result::unwrap);
        let waiting = manager.lock("a").wait(60 * SECOND);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        wait_for("it waits", async || manager.status().waiting == 1).await;
        let status = manager.status();
        assert_eq!((status.connected, status.closed, status.held), (true, false, 2));
        wait_for("it is notified", async || manager.status().wake_ups == WakeUps::Notified).await;
        drop(guards);
        drop(waiting.await.expect("no panic").expect("granted"));
        wait_for("all is free", async || {
            (manager.status().held, manager.status().waiting) == (0, 0)
        })
        .await;
        manager.close(SECOND).await;
        assert!(manager.status().closed);
    }
    let manager = LockManager::connect(&server.url()).await.expect("connect");
    server.kill9();
    wait_for("it is seen", async || !manager.status().connected).await;
    wait_for("it polls", async || manager.status().wake_ups == WakeUps::Polling).await;
}

#[tokio::test]
async fn ping_says_whether_the_store_answers() {
    let mut server = RedisServer::start();
    let builder = LockManager::builder().url(server.url()).command_timeout(SECOND);
    // Also of one that has not connected yet.
    let manager = builder.build().expect("lazy");
    wait_for("it answers", async || manager.ping().await.is_ok()).await;
    let kind = async |wanted: BackendKind| {
        let pinged = tokio::time::timeout(Duration::from_secs(20), manager.ping()).await;
        let error = pinged.expect("it is bounded").expect_err("nobody answers");
        matches!(error, LockError::Backend { kind, .. } if kind == wanted)
    };
    server.stop();
    assert!(kind(BackendKind::TimedOut).await);
    server.cont();
    wait_for("it answers again", async || manager.ping().await.is_ok()).await;
    server.kill9();
    wait_for("it is gone", async || kind(BackendKind::Unreachable).await).await;
    server.restart();
    wait_for("it is back", async || manager.ping().await.is_ok()).await;
    manager.close(Duration::from_secs(5)).await;
    assert!(matches!(manager.ping().await, Err(LockError::Closed)));
    assert_eq!(LockManager::in_memory().ping().await.expect("here"), Duration::ZERO);
}
