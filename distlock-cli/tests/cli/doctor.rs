//! `doctor`: each finding, provoked.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use distlock_testkit::{LONG, Mode, Proxy, RedisServer, wait_until, wait_within};
use serde_json::Value;

use crate::support::{ask, distlock, holder, ran};

/// What it found, and its exit code.
struct Report {
    code: Option<i32>,
    findings: Vec<Value>,
    text: String,
}

impl Report {
    fn of(url: &str) -> Self {
        let ran = ran(distlock(&["doctor", "--json", "-u", url]));
        let findings = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        Self { code: ran.code, findings, text: ran.stdout + &ran.stderr }
    }

    /// Asked again until a check has this level: on a busy machine answers are late.
    fn until(url: &str, check: &str, level: &str) -> Self {
        let begin = Instant::now();
        loop {
            let report = Self::of(url);
            let found = report.findings.iter().find(|finding| finding["check"] == check);
            if begin.elapsed() > LONG || found.is_some_and(|found| found["level"] == level) {
                return report;
            }
        }
    }

    /// A check has this level, and its words are in it.
    #[track_caller]
    fn has(&self, check: &str, level: &str, words: &[&str]) -> &Self {
        let found = self.findings.iter().find(|finding| finding["check"] == check);
        let found = found.unwrap_or_else(|| panic!("no {check}: {}", self.text));
        assert_eq!(found["level"], level, "{}", self.text);
        for word in words {
            assert!(found.to_string().contains(word), "{word}: {found}");
        }
        let needs_hint = ["warn", "fail"].contains(&level);
        assert_eq!(found["hint"].is_string(), needs_hint, "{found}");
        self
    }

    /// The code is that of the worst finding; this one is that of the worst which the tests' machine has no part
    /// in: where it is busy, the server is slow as well.
    #[track_caller]
    fn ends_with(&self, code: i32) -> &Self {
        let of = |finding: &Value| match finding["level"].as_str() {
            Some("warn") => 1,
            Some("fail") => 2,
            _ => 0,
        };
        assert_eq!(self.code, self.findings.iter().map(of).max(), "{}", self.text);
        let others = self.findings.iter().filter(|finding| finding["check"] != "latency");
        assert_eq!(others.map(of).max(), Some(code), "{}", self.text);
        self
    }
}

/// A server with nothing to find.
fn healthy() -> RedisServer {
    RedisServer::builder().durable().start()
}

#[test]
fn nothing_to_find() {
    let server = healthy();
    let report = Report::of(&server.url());
    report.ends_with(0);
    for check in [
        "reachable",
        "version",
        "clock",
        "rights",
        "more rights",
        "locks",
        "pub/sub",
        "eviction",
        "persistence",
        "fence",
        "expiry",
        "contents",
    ] {
        report.has(check, "ok", &[]);
    }
    assert_eq!(server.lock_keys(), Vec::<String>::new(), "it leaves nothing behind");
    wait_within(LONG, "nothing is found", || {
        let ran = ran(distlock(&["doctor", "-u", &server.url()]));
        let is_well = ran.stdout.lines().all(|line| line.starts_with("ok "));
        assert_eq!(ran.code == Some(0), is_well, "{ran:?}");
        is_well
    });
}

#[test]
fn a_store_that_does_not_let_it_in() {
    Report::of("redis://127.0.0.1:1").ends_with(2).has("reachable", "fail", &["cannot be reached"]);
    let server = RedisServer::builder().password("open-sesame").start();
    let report = Report::of(&format!("redis://:let-me-in@{}", server.addr()));
    report.ends_with(2).has("reachable", "fail", &["refused access"]);
    assert!(!report.text.contains("let-me-in"), "{}", report.text);
    ran(distlock(&["doctor"])).ends_with(64);
    ran(distlock(&["doctor", "-u", "memory://"])).ends_with(64);
}

#[test]
fn a_slow_network() {
    let server = healthy();
    let proxy = Proxy::to(server.addr());
    proxy.set(Mode::Delay(Duration::from_millis(60)));
    // On a machine that is busy as well, more than that may be found, or no answer in time.
    let is_found = || {
        let report = Report::of(&proxy.url());
        let latency = report.findings.iter().find(|finding| finding["check"] == "latency");
        latency.is_some_and(|latency| latency["level"] == "warn")
    };
    wait_within(LONG, "the network is found slow", is_found);
    Report::until(&healthy().url(), "latency", "ok").has("latency", "ok", &["p99"]);
}

#[test]
fn a_clock_of_another_time() {
    let server = healthy();
    let url = format!("redis://{}", in_front(server.addr(), set_ahead));
    Report::of(&url).ends_with(1).has("clock", "warn", &["ahead of ours"]);
}

#[test]
fn a_clock_that_jumps() {
    let server = healthy();
    let url = format!("redis://{}", in_front(server.addr(), set_ahead_every_other));
    Report::of(&url).ends_with(1).has("clock", "warn", &["went", "wrong"]);
}

#[test]
fn a_file_that_is_seldom_written_to_the_disk() {
    let server = healthy();
    let _: () = ask(&server, &["CONFIG", "SET", "appendfsync", "no"]);
    Report::of(&server.url()).ends_with(1).has("persistence", "warn", &["appendfsync no"]);
    let _: () = ask(&server, &["CONFIG", "SET", "appendfsync", "everysec"]);
    Report::of(&server.url()).ends_with(0).has("persistence", "ok", &["last second"]);
    let _: () = ask(&server, &["CONFIG", "SET", "appendfsync", "always"]);
    Report::of(&server.url()).ends_with(0).has("persistence", "ok", &["forgets no lock"]);
}

/// What servers say that are older, or whose disk is full.
#[test]
fn a_server_of_another_kind() {
    let server = healthy();
    let old = format!(
        "redis://{}",
        in_front(server.addr(), |bytes| say_instead(bytes, b"redis_version:7", b"redis_version:5"))
    );
    Report::of(&old).ends_with(2).has("version", "fail", &["Redis 5.", "6.2"]);
    let full = in_front(server.addr(), |bytes| {
        say_instead(bytes, b"aof_last_write_status:ok", b"aof_last_write_status:er");
    });
    let report = Report::of(&format!("redis://{full}"));
    report.ends_with(2).has("persistence", "fail", &["last write to it failed"]);
}

/// It is made when the first manager connects, so it is missing only where something deletes it after that.
#[test]
fn a_counter_that_is_no_number() {
    let server = healthy();
    // Only where it is asked for by itself.
    let url = in_front(server.addr(), |bytes| say_instead(bytes, b"$16\r\n1", b"$16\r\nx"));
    let report = Report::of(&format!("redis://{url}"));
    report.ends_with(2).has("fence", "fail", &["distlock:fence", "no number"]);
}

/// It says what it is, and then nothing any more.
#[test]
fn a_server_that_stops_answering() {
    static STOPPED: AtomicBool = AtomicBool::new(false);
    let server = healthy();
    let url = in_front(server.addr(), |bytes| {
        if STOPPED.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_secs(600));
        }
        let is_info = bytes.windows(14).any(|window| window == b"redis_version:");
        STOPPED.fetch_or(is_info, Ordering::Relaxed);
    });
    let report = Report::of(&format!("redis://{url}"));
    report.ends_with(2).has("latency", "fail", &["renewed in time"]).has(
        "rights",
        "fail",
        &["again"],
    );
    report.has("locks", "fail", &[]);
}

/// Puts some bytes in the place of as many others.
fn say_instead(bytes: &mut [u8], of: &[u8], these: &[u8]) {
    let at = bytes.windows(of.len()).position(|window| window == of);
    if let Some(at) = at {
        bytes[at..at + of.len()].copy_from_slice(these);
    }
}

/// In front of a server whose answers are changed.
fn in_front(server: SocketAddr, change: fn(&mut [u8])) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let to = TcpStream::connect(server).expect("connect");
            let (from, back) = (to.try_clone().expect("clone"), client.try_clone().expect("clone"));
            thread::spawn(move || pass(client, to, |_| {}));
            thread::spawn(move || pass(from, back, change));
        }
    });
    addr
}

/// Sets the answer to a lone `TIME` ahead by about 31 years.
fn set_ahead(bytes: &mut [u8]) {
    const TIME: &[u8] = b"*2\r\n$10\r\n1";
    // Seconds and microseconds, as texts.
    if bytes.starts_with(TIME) {
        bytes[TIME.len() - 1] = b'2';
    }
}

/// The same for every other answer only.
fn set_ahead_every_other(bytes: &mut [u8]) {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    if bytes.starts_with(b"*2\r\n$10\r\n1") && TIMES.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
        set_ahead(bytes);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: fn(&mut [u8])) {
    let mut bytes = [0; 65536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        change(&mut bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The URL of a user with these rights.
fn user(server: &RedisServer, rights: &[&str]) -> String {
    let rule = [&["ACL", "SETUSER", "app", "reset", "on", ">pw"], rights].concat();
    let _: () = ask(server, &rule);
    format!("redis://app:pw@{}", server.addr())
}

#[test]
fn rights_that_are_missing() {
    let server = healthy();
    let url = user(&server, &["~*", "&*", "+@all", "-zadd", "-zrank"]);
    let report = Report::of(&url);
    report.ends_with(2).has("rights", "fail", &["zadd", "zrank", "+zadd"]);
    report.has("locks", "fail", &[]);
    let url = user(&server, &["~*", "&*", "+@all", "-echo", "-client|kill"]);
    Report::of(&url).ends_with(1).has("rights", "ok", &[]).has(
        "more rights",
        "warn",
        &["+echo", "+client|kill"],
    );
}

/// The rights of the library's manual are enough for it.
#[test]
fn rights_that_are_enough() {
    let server = healthy();
    let rights = "~distlock:* &distlock:wake:* +set +get +del +incr +exists +pttl +pexpire +time +eval \
                  +evalsha +zadd +zrem +zrange +zrank +zcard +zscore +zpopmin +echo +hello +subscribe \
                  +unsubscribe +publish +pubsub|numsub";
    let rights: Vec<&str> = rights.split_whitespace().collect();
    let report = Report::of(&user(&server, &rights));
    report.ends_with(1).has("rights", "ok", &[]).has("locks", "ok", &[]).has("pub/sub", "ok", &[]);
    report.has("version", "unknown", &[]).has("eviction", "unknown", &[]).has(
        "contents",
        "unknown",
        &[],
    );
}

#[test]
fn no_pub_sub() {
    let server = healthy();
    let url = user(&server, &["~*", "resetchannels", "+@all"]);
    Report::of(&url).ends_with(1).has("pub/sub", "warn", &["once a second"]).has(
        "locks",
        "ok",
        &[],
    );
}

#[test]
fn a_server_that_throws_keys_away() {
    let policy = ["--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::builder().durable().args(policy).start();
    Report::of(&server.url()).ends_with(1).has("eviction", "warn", &["allkeys-lru"]);
    let _: () = ask(&server, &["CONFIG", "SET", "maxmemory", "100mb"]);
    Report::of(&server.url()).ends_with(2).has("eviction", "fail", &["noeviction"]);
}

#[test]
fn a_server_that_is_full() {
    let server = healthy();
    let _: () = ask(&server, &["CONFIG", "SET", "maxmemory", "1000"]);
    Report::of(&server.url()).ends_with(2).has("locks", "fail", &["out of memory"]);
}

#[test]
fn a_server_that_forgets() {
    let server = RedisServer::start();
    Report::of(&server.url()).ends_with(1).has("persistence", "warn", &["appendonly"]);
}

#[test]
fn replicas() {
    let server = healthy();
    let port = server.addr().port().to_string();
    let replica =
        RedisServer::builder().args(["--replicaof", &format!("127.0.0.1 {port}")]).start();
    let online = || ask::<String>(&server, &["INFO", "replication"]).contains("state=online");
    wait_until("the replica is there", online);
    wait_until("it confirms", || ask::<u32>(&server, &["WAIT", "1", "10000"]) == 1);
    let report = Report::until(&server.url(), "replicas", "ok");
    report.ends_with(0).has("replicas", "ok", &["1 confirmed"]);
    Report::of(&replica.url()).ends_with(2).has("reachable", "fail", &["primary"]);
    replica.stop();
    Report::of(&server.url()).ends_with(1).has("replicas", "warn", &["none confirmed"]);
    replica.cont();
}

#[test]
fn locks_without_an_end() {
    let server = healthy();
    let _: () = ask(&server, &["SET", "distlock:lock:{forgotten}", "t"]);
    Report::of(&server.url()).ends_with(2).has("expiry", "fail", &["distlock:lock:{forgotten}"]);
    let _: () = ask(&server, &["DEL", "distlock:lock:{forgotten}"]);
    let _: () = ask(&server, &["SET", "distlock:process:forgotten", "app=a"]);
    Report::of(&server.url()).ends_with(2).has("expiry", "fail", &["distlock:process:forgotten"]);
}

#[test]
fn a_counter_that_is_far_ahead() {
    let server = healthy();
    let time: (u64, u64) = ask(&server, &["TIME"]);
    let ahead = (time.0 + 10 * 24 * 3600) * 1_000_000;
    let _: () = ask(&server, &["SET", "distlock:fence", &ahead.to_string()]);
    Report::of(&server.url()).ends_with(1).has("fence", "warn", &["ahead of the clock"]);
    let _: () = ask(&server, &["SET", "distlock:fence", "nonsense"]);
    Report::of(&server.url()).ends_with(2).has("reachable", "fail", &["counter of fencing tokens"]);
}

#[test]
fn what_is_there() {
    let server = healthy();
    let _holder = holder(&server, "mine");
    let channels = || ask::<Vec<String>>(&server, &["PUBSUB", "CHANNELS", "distlock:wake:*"]).len();
    wait_until("the holder can be told", || channels() == 1);
    let _: () = ask(&server, &["SET", "shop:lock:{x}", "t", "PX", "60000"]);
    let report = Report::of(&server.url());
    report.has("contents", "ok", &["1 lock held", "1 other process", "other prefixes: shop"]);
}
