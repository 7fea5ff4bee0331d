//! Durations, keys and data that should not be used, and will be: section H.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockKey, LockManager, LockRequest, key};
use distlock_testkit::{
    LONG, Log, Mode, Proxy, RedisServer, SECOND, assert_busy, assert_lost, connect, in_own_process,
    ms, nothing_is_left, owner, settle, stored, this_test, ttl_of, wait_until, whole_text,
};

#[track_caller]
fn assert_invalid_option<T: std::fmt::Debug>(option: &str, result: Result<T, LockError>) {
    match &result {
        Err(LockError::InvalidOption { .. }) => {}
        _ => panic!("{option}: {result:?}"),
    }
    let text = result.expect_err("checked above").to_string();
    assert!(text.starts_with(option), "{text}");
}

/// How many commands the server was sent, this question not counted.
fn commands(server: &RedisServer) -> u64 {
    let stats: String = server.cli(&["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.and_then(|count| count.trim().parse().ok()).expect("a count")
}

/// Says whether the server was sent anything but the questions of this test in between.
async fn assert_nothing_is_sent(server: &RedisServer, act: impl AsyncFnOnce()) {
    let own = {
        let before = commands(server);
        commands(server) - before
    };
    let before = commands(server);
    act().await;
    assert_eq!(commands(server) - before, own, "the server was asked");
}

type Set = fn(LockRequest) -> LockRequest;

#[tokio::test]
async fn h1_zero_and_too_short_durations_are_refused_and_nothing_is_sent() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let cases: [(&str, Set); 6] = [
        ("ttl", |r| r.ttl(Duration::ZERO)),
        ("ttl", |r| r.ttl(ms(9))),
        ("ttl", |r| r.ttl(Duration::from_nanos(1)).renew(false)),
        ("max_hold", |r| r.max_hold(Duration::ZERO)),
        ("max_hold", |r| r.max_hold(ms(9))),
        ("min_hold", |r| r.max_hold(SECOND).min_hold(2 * SECOND)),
    ];
    assert_nothing_is_sent(&server, async || {
        for (option, set) in cases {
            let ran = AtomicBool::new(false);
            let body = async { ran.store(true, SeqCst) };
            assert_invalid_option(option, set(manager.lock("k")).acquire().await);
            assert_invalid_option(option, set(manager.lock("k")).try_acquire().await);
            assert_invalid_option(option, set(manager.lock_all(["k", "l"])).run(body).await);
            assert!(!ran.load(SeqCst));
        }
        assert_invalid_option("keys", manager.lock_all([""; 0]).acquire().await);
    })
    .await;
    // Zero is a good `wait` and a good `min_hold`: none.
    let request = || manager.lock("k").wait(Duration::ZERO).min_hold(Duration::ZERO);
    let guard = request().acquire().await.expect("granted");
    assert_busy(request().acquire().await);
    guard.release().await.expect("it was held");
    assert_eq!(owner(&server, "k"), None);
}

#[tokio::test]
async fn h2_durations_that_overflow_are_refused_or_capped_and_never_panic() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let year = 365 * 24 * 3600 * SECOND;
    let cases: [(&str, Set); 5] = [
        ("ttl", |r| r.ttl(Duration::MAX)),
        ("ttl", |r| r.ttl(Duration::from_millis(u64::MAX))),
        ("ttl", |r| r.ttl(Duration::from_millis(i64::MAX as u64))),
        ("min_hold", |r| r.min_hold(Duration::MAX)),
        ("min_hold", |r| r.min_hold(Duration::from_millis(u64::MAX))),
    ];
    assert_nothing_is_sent(&server, async || {
        for (option, set) in cases {
            assert_invalid_option(option, set(manager.lock("k")).acquire().await);
        }
    })
    .await;
    // The longest that make sense; and waits without an end, which are.
    for manager in [manager, LockManager::in_memory()] {
        let request = || manager.lock("k").ttl(year).wait(Duration::MAX).max_hold(Duration::MAX);
        let guard = request().acquire().await.expect("granted");
        assert!(guard.remaining() > year / 2);
        guard.extend(year).await.expect("it is held");
        let released = async {
            tokio::time::sleep(ms(20)).await;
            guard.release().await.expect("it was held");
        };
        let (next, ()) = tokio::join!(request().acquire(), released);
        drop(next.expect("its turn"));
        let guard = request().min_hold(year).run(async {}).await;
        guard.expect("granted");
        assert!(manager.force_release("k").await.expect("an answer"), "kept for a year");
        assert!(manager.close(Duration::MAX).await.is_complete());
    }
    nothing_is_left(&server);
    let eternal = LockManager::builder().url(server.url()).wait(Duration::MAX);
    let eternal = eternal.command_timeout(Duration::MAX).connect_timeout(Duration::MAX);
    let eternal = eternal.max_hold(Duration::MAX).connect().await.expect("connect");
    eternal.lock("k").run(async {}).await.expect("granted");
}

/// Rounded up: at the server a lease is never shorter than it is here.
#[tokio::test]
async fn h3_fractions_of_a_millisecond_are_rounded_up() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    // Every command is written down, arguments and all.
    server.cli::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let just_over = |duration| duration + Duration::from_nanos(1);
    let request = manager.lock("k").ttl(just_over(LONG)).min_hold(just_over(Duration::ZERO));
    let guard = request.acquire().await.expect("granted");
    assert!(guard.remaining() < LONG);
    guard.extend(just_over(2 * LONG)).await.expect("it is held");
    guard.release().await.expect("it was held");
    assert_eq!(owner(&server, "k"), None);
    let log: redis::Value = server.cli(&["SLOWLOG", "GET", "100"]);
    let log = format!("{log:?}");
    for sent in ["120001", "240001"] {
        assert!(log.contains(sent), "{sent} is not in {log}");
    }
}

/// No two lists of arguments make one lock, whatever is in them.
#[tokio::test]
async fn h4_separators_in_arguments_do_not_make_two_locks_one() {
    let nasty = [
        "",
        "x",
        "x:y",
        "y",
        ":",
        "::",
        "{",
        "}",
        "{x}",
        "}{",
        "%",
        "%3A",
        "%253A",
        "\0",
        "\r\n",
        "lock",
        "distlock:lock:{x}",
        "x}:lock:{y",
    ];
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let mut seen: HashMap<String, (&str, &str)> = HashMap::new();
    for a in nasty {
        for b in nasty {
            let guard = manager.lock(key!("{a}:{b}")).acquire().await.expect("granted");
            let stored = server.lock_keys();
            assert_eq!(stored.len(), 1, "{stored:?}");
            if let Some(other) = seen.insert(stored[0].clone(), (a, b)) {
                panic!("{other:?} and {:?} share {}", (a, b), stored[0]);
            }
            guard.release().await.expect("it was held");
        }
    }
    assert_eq!(seen.len(), nasty.len() * nasty.len());
}

/// The slot of a Redis Cluster is chosen by what stands between the first `{` and the next `}`: not
/// by an argument, but by the key's author with such a tag.
#[tokio::test]
async fn h5_braces_in_arguments_do_not_choose_the_slot() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    // A single server computes slots if it is configured as a cluster.
    let cluster = RedisServer::builder().args(["--cluster-enabled", "yes"]).start();
    let slot = |name: &str| cluster.cli::<u64>(&["CLUSTER", "KEYSLOT", name]);
    let evil = "{same}";
    let mut names = Vec::new();
    for lock in [key!("order:{evil}"), key!("user:{evil}"), key!("{evil}"), key!("{{{evil}}}:a")] {
        let guard = manager.lock(lock).acquire().await.expect("granted");
        names.extend(server.lock_keys());
        guard.release().await.expect("it was held");
    }
    assert_eq!(
        names,
        [
            "distlock:lock:{order:%7Bsame%7D}",
            "distlock:lock:{user:%7Bsame%7D}",
            "distlock:lock:{%7Bsame%7D}",
            "distlock:lock::{%7Bsame%7D}:a",
        ]
    );
    assert_ne!(slot(&names[0]), slot(&names[1]));
    assert_eq!(slot(&names[3]), slot("%7Bsame%7D"), "the author's own tag");
}

/// What a key is made of does not matter to a length-prefixed protocol; that it is one, does.
#[tokio::test]
async fn h6_binary_unicode_long_and_empty_keys() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let long = "x".repeat(4096);
    let keys = [
        "\0",
        "a\0b",
        "a",
        "\r\n",
        "x\r\nDEL y\r\n",
        "$3\r\nfoo\r\n",
        "*1",
        " ",
        "\t",
        "ß→∀🔒",
        "\u{202e}abc",
        "\u{feff}",
        "'\"\\",
        "KEYS[1]",
        "return 1",
        &long,
    ];
    for key in keys {
        let guard = manager.lock(key).ttl(LONG).acquire().await.expect("granted");
        assert_eq!(server.lock_keys(), [stored(key)], "{key:?}");
        assert_eq!(guard.key(), key);
        assert_busy(manager.lock(key).acquire().await);
        guard.extend(LONG).await.expect("it is held");
        assert!(!manager.inspect(key).await.expect("an answer").is_free());
        guard.release().await.expect("it was held");
        assert_eq!(server.lock_keys(), [""; 0], "{key:?}");
    }
    assert_nothing_is_sent(&server, async || {
        for key in [String::new(), "x".repeat(4097), "x".repeat(1 << 20)] {
            for error in [
                manager.lock(&key).wait(LONG).acquire().await.map(drop),
                manager.lock_all(["fine", &key]).acquire().await.map(drop),
                manager.inspect(&key).await.map(drop),
                manager.force_release(&key).await.map(drop),
            ] {
                assert!(matches!(error, Err(LockError::InvalidKey { .. })), "{error:?}");
                assert!(format!("{error:?}").len() < 1000, "it repeats the key");
            }
        }
    })
    .await;
}

/// Keys are bytes: nothing is folded, trimmed or normalised.
#[tokio::test]
async fn h7_look_alikes_are_different_locks() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let alike = ["order", "Order", "order ", " order", "order.", "оrder", "orde\u{301}r", "ordér"];
    let mut guards = Vec::new();
    for key in alike {
        guards.push(manager.lock(key).ttl(LONG).acquire().await.expect("another lock"));
    }
    assert_eq!(server.lock_keys().len(), alike.len());
    // As one request they are as many locks.
    drop(guards);
    settle(&manager).await;
    let guard = manager.lock_all(alike).ttl(LONG).acquire().await.expect("granted");
    assert_eq!(guard.keys().count(), alike.len());
}

const SECRET: &str = "alice@example.org";
const PASSWORD: &str = "hunter2-correct-horse";

/// Neither keys nor passwords are in anything that is printed or logged, whatever goes wrong.
#[tokio::test]
async fn h8_h12_no_key_and_no_password_in_errors_debug_and_logs() {
    // What is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let mut server = RedisServer::builder().password(PASSWORD).start();
    let proxy = Proxy::to(server.addr());
    let url = server.url_at(proxy.addr());
    let builder = LockManager::builder().url(&url).command_timeout(SECOND);
    let mut printed = format!("{builder:?} {builder:#?}");
    let manager = builder.connect().await.expect("connect");
    let other = connect(&server.url()).await;
    let request = || manager.lock(key!("user:{SECRET}")).name("h8").ttl(3 * SECOND);
    let stored = stored(&format!("user:{SECRET}"));
    printed += &format!("{manager:?} {manager:#?} {:?}", request());
    let mut errors = Vec::new();

    let guard = request().acquire().await.expect("granted");
    printed += &format!("{guard:?} {guard:#?}");
    errors.push(request().acquire().await.map(drop).expect_err("held"));
    errors.push(request().run(async {}).await.expect_err("held"));
    let all = manager.lock_all([key!("user:{SECRET}"), key!("other:{SECRET}")]);
    printed += &format!("{all:?}");
    errors.push(all.acquire().await.map(drop).expect_err("held"));
    server.cli::<()>(&["DEL", &stored]);
    guard.lost().await;
    printed += &format!("{guard:?}");
    errors.push(guard.release().await.expect_err("lost"));
    let nested = request().run(async { request().acquire().await.map(drop) }).await;
    errors.push(nested.expect("granted").expect_err("it would wait for itself"));
    server.cli::<()>(&["RPUSH", &stored, "x"]);
    errors.push(request().acquire().await.map(drop).expect_err("no lock"));
    errors.push(manager.inspect(key!("user:{SECRET}")).await.map(drop).expect_err("no lock"));
    server.cli::<()>(&["DEL", &stored]);
    errors.push(request().ttl(ms(1)).acquire().await.map(drop).expect_err("too short"));
    let long = SECRET.repeat(500);
    errors.push(manager.lock(long).acquire().await.map(drop).expect_err("too long"));
    // A renewal that is never answered, a release that is never answered, an outage.
    let lost = request().run(async {
        settle(&manager).await;
        tokio::time::sleep(ms(200)).await;
        proxy.set(Mode::Freeze);
        std::future::pending::<()>().await;
    });
    errors.push(lost.await.expect_err("lost"));
    proxy.set(Mode::Pass);
    wait_until("it is given back", || server.lock_keys().is_empty());
    let mut guard = None;
    distlock_testkit::wait_for("a lock", async || {
        guard = request().acquire().await.ok();
        guard.is_some()
    })
    .await;
    let dangling = request().name("h8-late").wait(SECOND);
    let given_up = || log.text().lines().filter(|line| line.contains("release_given_up")).count();
    let before = given_up();
    server.kill9();
    errors.push(guard.expect("granted").release().await.expect_err("nobody there"));
    errors.push(dangling.acquire().await.map(drop).expect_err("nobody there"));
    errors.push(LockManager::connect(&url).await.map(drop).expect_err("nobody there"));
    let wrong = RedisServer::builder().password("another").start();
    let wrong = wrong.url().replace("another", PASSWORD);
    errors.push(LockManager::connect(&wrong).await.map(drop).expect_err("refused"));
    for url in [format!("redis://:{PASSWORD}@h:x/"), format!("nonsense://u:{PASSWORD}@h")] {
        errors.push(LockManager::connect_lazy(&url).map(drop).expect_err("no URL"));
    }
    drop(other);
    printed += &format!("{:?}", manager.close(ms(50)).await);
    // The engine gives up on what it could not release, and logs it.
    wait_until("a line about it", || given_up() > before);
    assert!(log.text().contains("h8"), "a lock is named: {}", log.text());

    let printed = errors.iter().map(whole_text).fold(printed, |all, one| all + "\n" + &one);
    for (what, text) in [("printed", &printed), ("logged", &log.text())] {
        for secret in [SECRET, "alice", PASSWORD, "hunter2"] {
            assert!(!text.contains(secret), "{what}: {secret} in {text}");
        }
    }
    assert!(errors.iter().any(|error| error.key() == Some("user:alice@example.org")), "by request");
    assert!(printed.contains("user:{SECRET}"), "the template helps: {printed}");
}

/// 122 random bits for each manager, a number for each lease: nothing that another could guess, and
/// nothing that two processes share.
#[tokio::test]
async fn h9_owner_tokens_are_unique_and_not_predictable() {
    let server = RedisServer::start();
    let mut owners = std::collections::HashSet::new();
    let mut identities = std::collections::HashSet::new();
    for _ in 0..20 {
        let manager = connect(&server.url()).await;
        for _ in 0..5 {
            let guard = manager.lock("k").acquire().await.expect("granted");
            let token = owner(&server, "k").expect("held");
            let identity = token.split('.').next().expect("a part").to_owned();
            assert!(identity.len() >= 25, "122 bits need as many digits in base 36: {identity}");
            identities.insert(identity);
            assert!(owners.insert(token), "a token twice");
            guard.release().await.expect("it was held");
        }
    }
    assert_eq!(identities.len(), 20);
    let mut firsts: Vec<_> = identities.iter().map(|identity| &identity[..8]).collect();
    firsts.sort_unstable();
    firsts.dedup();
    assert_eq!(firsts.len(), 20, "they begin alike: {identities:?}");
}

/// A client that may write to the store can take any lock away: that is the trust boundary. But it cannot
/// make a token wrap around or go backwards, or a body run without its lock.
#[tokio::test]
async fn h10_forged_counters_and_ttls_do_no_more_than_deny() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let take = async || manager.lock("k").ttl(LONG).acquire().await;
    let first = take().await.expect("granted");
    let highest = first.fencing_token();
    first.release().await.expect("it was held");
    for forged in ["-5", "0", "1", "-9223372036854775808"] {
        server.cli::<()>(&["SET", "distlock:fence", forged]);
        let guard = take().await.expect("the counter is raised again");
        assert!(guard.fencing_token() > highest, "{forged}: {}", guard.fencing_token());
        guard.release().await.expect("it was held");
    }
    for forged in
        ["9223372036854775807", "9223372036854775806", "1152921504606846976", "9007199254740993"]
    {
        server.cli::<()>(&["SET", "distlock:fence", forged]);
        for manager in [manager.clone(), LockManager::connect_lazy(server.url()).expect("a URL")] {
            let error = manager.lock("k").ttl(LONG).wait(LONG).acquire().await;
            let Err(LockError::Backend { kind: BackendKind::Other, .. }) = error else {
                panic!("{forged}: {error:?}");
            };
            wait_until("nothing is left", || server.lock_keys().is_empty());
        }
    }
    server.cli::<()>(&["DEL", "distlock:fence"]);
    let guard = take().await.expect("an operator mended it");
    assert!(guard.fencing_token() > highest);
    // A ttl without end, or for years: the release takes it away all the same.
    for forge in [vec!["PERSIST"], vec!["PEXPIRE", "99999999999"]] {
        let stored = stored("k");
        let mut command = vec![forge[0], stored.as_str()];
        command.extend(&forge[1..]);
        server.cli::<i64>(&command);
    }
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
    // With an ACL a client is kept to its prefix, and needs no more than that.
    let rule = format!("ACL SETUSER app on >{PASSWORD} ~shop:* +@all -@dangerous -@admin");
    server.cli::<()>(&rule.split(' ').collect::<Vec<_>>());
    let url = format!("redis://app:{PASSWORD}@{}", server.addr());
    let builder = LockManager::builder().url(&url);
    let shop = builder.clone().prefix("shop").connect().await.expect("connect");
    shop.lock("k").run(async {}).await.expect("granted");
    let error = builder.prefix("bank").connect().await.expect_err("another's locks");
    assert!(matches!(error, LockError::Backend { kind: BackendKind::Refused, .. }), "{error:?}");
}

/// A client that may write to the queue can put places into it that no process of ours has ever used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f29_forged_places_in_the_queue_are_passed_over() {
    let server = RedisServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let huge = "9".repeat(30) + "n";
    let forged = ["0n", "00n", "99999999999n", "9223372036854775808n", &huge, "n", ""];
    let forged = forged.map(|claim| format!("stranger.1.{claim}"));
    for freed_by_release in [true, false] {
        let guard = one.lock("k").ttl(LONG).acquire().await.expect("it is free");
        let waiting = tokio::spawn(other.lock("k").ttl(LONG).wait(LONG).acquire());
        let queue = || server.cli::<Vec<String>>(&["ZRANGE", "distlock:queue:{k}", "0", "-1"]);
        wait_until("he stands in the queue", || queue().len() == 1);
        let waiter = queue().remove(0);
        for (place, token) in (1..).zip(&forged) {
            server.cli::<()>(&["ZADD", "distlock:queue:{k}", &place.to_string(), token]);
        }
        if freed_by_release {
            guard.release().await.expect("it was held");
        } else {
            // As if it had run out: the waiter polls, and finds those places in front of its own.
            server.cli::<()>(&["DEL", &stored("k")]);
            let channel = format!("distlock:wake:{}", waiter.split('.').next().expect("a part"));
            server.cli::<u64>(&["PUBLISH", &channel, &format!("g {waiter} {}", stored("k"))]);
            assert_lost(guard.release().await);
        }
        let served = waiting.await.expect("no panic").expect("his turn comes");
        served.release().await.expect("it was held");
        nothing_is_left(&server);
    }
}

/// Scripts are constants: no key, no token and no number is ever part of one's text.
#[tokio::test]
async fn h11_no_input_is_part_of_a_script() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let evil = [
        "'; redis.call('FLUSHALL') --",
        "]] redis.call('FLUSHALL') --",
        "\" .. redis.call('SET','pwned','1') .. \"",
        "%s %d %n",
    ];
    server.cli::<()>(&["SET", "witness", "here"]);
    for key in evil {
        let guard = manager.lock(key).ttl(SECOND).acquire().await.expect("granted");
        guard.extend(LONG).await.expect("it is held");
        guard.release().await.expect("it was held");
        manager.lock(key).min_hold(ms(50)).run(async {}).await.expect("granted");
    }
    wait_until("nothing but the witness", || server.lock_keys() == ["witness"]);
    // The server keeps every script it was ever given: each of ours was tried once.
    let memory: String = server.cli(&["INFO", "memory"]);
    let cached = memory.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:"));
    assert!(cached.is_some_and(|n| n.trim().parse::<u32>().is_ok_and(|n| n <= 12)), "{cached:?}");
}

/// Something that is no lock stands where the lock would: it has no holder that would free it, so waiting
/// is no use.
/// Fault: A12.
#[tokio::test]
async fn h13_another_type_at_the_key_is_an_error_and_not_a_wait() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let things = [
        vec!["RPUSH", "x"],
        vec!["SADD", "x"],
        vec!["HSET", "x", "y"],
        vec!["XADD", "*", "x", "y"],
    ];
    for thing in things {
        let name = stored("k");
        let mut command = vec![thing[0], name.as_str()];
        command.extend(&thing[1..]);
        server.cli::<redis::Value>(&command);
        let start = Instant::now();
        for wait in [Duration::ZERO, LONG] {
            let ran = AtomicBool::new(false);
            let run = manager.lock("k").wait(wait).run(async { ran.store(true, SeqCst) }).await;
            let error = run.expect_err("no lock");
            assert!(matches!(error, LockError::Backend { .. }), "{thing:?}: {error:?}");
            assert_eq!(error.key(), Some("k"), "it says which key");
            assert!(whole_text(&error).contains("WRONGTYPE"), "{}", whole_text(&error));
            assert!(!ran.load(SeqCst));
        }
        assert!(start.elapsed() < LONG / 2, "it waited");
        assert!(manager.inspect("k").await.is_err());
        assert!(manager.force_release("k").await.is_err());
        assert_eq!(server.lock_keys(), [name.as_str()], "it was not touched");
        server.cli::<i64>(&["DEL", &name]);
    }
    manager.lock("k").acquire().await.map(drop).expect("free");
    nothing_is_left(&server);
}

/// A text that is no token of ours is a foreign lock: it is waited for, not touched, and shown.
#[tokio::test]
async fn h13_a_foreign_value_at_the_key_is_a_lock_of_somebody_elses() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    for value in ["", "other", "\u{0}\u{1}", "1", "a.b.c.d.e", "☃"] {
        let name = stored("k");
        server.cli::<()>(&["SET", &name, value]);
        assert_busy(manager.lock("k").wait(ms(20)).acquire().await);
        assert!(!manager.inspect("k").await.expect("an answer").is_free());
        assert_eq!(server.cli::<String>(&["GET", &name]), value);
        server.cli::<()>(&["PEXPIRE", &name, "100"]);
        let guard = manager.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("expired");
        // And while we hold it: overwritten, it is lost, and left to the writer.
        server.cli::<()>(&["SET", &name, value]);
        assert_lost(guard.release().await);
        assert_eq!(server.cli::<String>(&["GET", &name]), value);
        assert!(manager.force_release("k").await.expect("an answer"), "an operator may");
    }
    // Nor is a foreign set touched: ours expire.
    let name = stored("k");
    server.cli::<i64>(&["ZADD", &name, "1", "theirs", "1e15", "too"]);
    for wait in [Duration::ZERO, ms(20)] {
        assert_busy(manager.lock("k").wait(wait).acquire().await);
    }
    assert!(!manager.inspect("k").await.expect("an answer").is_free());
    assert_eq!(server.cli::<i64>(&["ZCARD", &name]), 2);
    assert_eq!(ttl_of(&server, "k"), -1);
    assert!(manager.force_release("k").await.expect("an answer"), "an operator may");
    // Junk elsewhere under our prefix does not matter, the counter excepted.
    server.cli::<()>(&["SET", "distlock:junk", "x"]);
    server.cli::<i64>(&["RPUSH", "distlock:lock:junk", "x"]);
    manager.lock("k").run(async {}).await.expect("granted");
    for junk in [vec!["SET", "distlock:fence", "junk"], vec!["RPUSH", "distlock:fence", "x"]] {
        server.cli::<i64>(&["DEL", "distlock:fence"]);
        server.cli::<redis::Value>(&junk);
        let error = manager.lock("k").ttl(LONG).wait(LONG).acquire().await;
        assert!(matches!(error, Err(LockError::Backend { .. })), "{error:?}");
        let left = ["distlock:junk", "distlock:lock:junk"];
        wait_until("nothing is left of it", || server.lock_keys() == left);
    }
}

/// No lock of ours is stored without an end. One that lost it has it back at the next renewal; one
/// that is not renewed is waited for no longer than `wait`.
#[tokio::test]
async fn h13_a_key_without_a_ttl() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = manager.lock("k").ttl(3 * SECOND).acquire().await.expect("granted");
    assert_eq!(server.cli::<i64>(&["PERSIST", &stored("k")]), 1);
    wait_until("its holder gives it one again", || ttl_of(&server, "k") > 0);
    assert!(guard.is_held());
    server.cli::<i64>(&["PERSIST", &stored("k")]);
    guard.release().await.expect("it was held");
    assert_eq!(owner(&server, "k"), None);

    server.cli::<()>(&["SET", &stored("k"), "nobody"]);
    let error = other.lock("k").acquire().await.expect_err("held for ever");
    assert_eq!(error.lease_remaining(), None, "nobody knows");
    let start = Instant::now();
    assert_busy(other.lock("k").wait(ms(300)).acquire().await);
    assert!(start.elapsed() < 10 * SECOND);
    let waiter = tokio::spawn(other.lock("k").wait(LONG).acquire());
    tokio::time::sleep(ms(50)).await;
    server.cli::<i64>(&["DEL", &stored("k")]);
    let guard = waiter.await.expect("no panic").expect("it looked again");
    drop(guard);
    nothing_is_left(&server);
}

/// The same key under two prefixes is two locks, and no prefix can be made to look like another.
#[tokio::test]
async fn h4_prefixes_do_not_meet() {
    let server = RedisServer::start();
    let mut guards = Vec::new();
    for prefix in ["", "a", "a:lock", "a:lock:lock", "lock", ":", "A"] {
        let builder = LockManager::builder().url(server.url()).prefix(prefix);
        let manager = builder.connect().await.expect("connect");
        for key in ["k", "lock:{k}", "a:lock:{k}", "{k}", "{k}x", "fence"] {
            let guard = manager.lock(LockKey::from(key)).ttl(LONG).acquire().await;
            guards.push(guard.unwrap_or_else(|error| panic!("{prefix:?} {key:?}: {error}")));
        }
    }
    // A request may name them as well.
    let manager = connect(&server.url()).await;
    for prefix in ["", "a", "a:lock", "A"] {
        let held = manager.lock("k").prefix(prefix).try_acquire().await;
        assert!(held.expect("an answer").is_none(), "{prefix:?} is another one");
    }
    // Not the counters, which have no braces in their names.
    let locks = server.keys().iter().filter(|name| name.contains('{')).count();
    assert_eq!(locks, guards.len());
    // The last two would reach into the names of the prefix "a" and of none.
    for bad in ["{a}", "a}", "a\0", "a\r\n", "a:lock:", "lock:"] {
        let made = LockManager::builder().url(server.url()).prefix(bad).build();
        assert_invalid_option("prefix", made.map(drop));
        let named = manager.lock("k").prefix(bad).acquire().await;
        assert_invalid_option("prefix", named.map(drop));
    }
}
