//! `ls`, `inspect`, `release`, `completions`, `man`.

use distlock_testkit::{RedisServer, wait_until};
use serde_json::Value;

use crate::support::{
    Tool, ask, distlock, distlock_at, distlock_here, holder, is_held, key, lock_of, ran,
};

fn json(ran: crate::support::Ran) -> Value {
    let ran = ran.ends_with(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn ls_lists_what_is_held() {
    let server = RedisServer::start();
    let none = ran(distlock_at(&server, &["ls"])).ends_with(0).says(&["no lock is held"]);
    assert_eq!(none.stdout, "");
    assert_eq!(json(ran(distlock_at(&server, &["ls", "--json"]))), serde_json::json!([]));
    let _holders = ["order:1", "order 2", "{tag}:3"].map(|key| holder(&server, key));
    let _other: String = ask(&server, &["SET", "other:lock:{x}", "t"]);
    let table = ran(distlock_at(&server, &["ls"])).ends_with(0).stdout;
    assert!(table.starts_with("KEY"), "{table}");
    for key in ["order:1", "order 2", "{tag}:3"] {
        assert!(table.lines().any(|line| line.starts_with(key)), "{table}");
    }
    assert_eq!(table.lines().count(), 4, "{table}");
    let fitting = json(ran(distlock_at(&server, &["ls", "order*", "--json"])));
    let keys: Vec<&str> = fitting
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|held| held["key"].as_str())
        .collect();
    assert_eq!(keys, ["order 2", "order:1"]);
    assert!(fitting[0]["remaining_ms"].as_u64().is_some_and(|rest| rest <= 30_000), "{fitting}");
    assert_eq!(fitting[0]["waiting"], 0);
    let some =
        ran(distlock_at(&server, &["ls", "--limit", "2"])).ends_with(0).says(&["there are more"]);
    assert_eq!(some.stdout.lines().count(), 3);
    let elsewhere = ran(distlock_at(&server, &["ls", "--prefix", "other"])).ends_with(0).stdout;
    assert!(elsewhere.contains("without end"), "{elsewhere}");
}

#[test]
fn ls_walks_many() {
    let server = RedisServer::start();
    let script = "for i = 1, 3000 do redis.call('SET', 'distlock:lock:{k' .. i .. '}', 't.1.1000s', 'PX', 60000) end";
    let _: () = ask(&server, &["EVAL", script, "0"]);
    let all = json(ran(distlock_at(&server, &["ls", "--json", "--limit", "5000"])));
    assert_eq!(all.as_array().map(Vec::len), Some(3000));
    let usual = ran(distlock_at(&server, &["ls"])).ends_with(0);
    assert_eq!(usual.stdout.lines().count(), 1001);
}

/// What else stands under a name of ours hides no lock, and is named.
#[test]
fn ls_lists_locks_beside_what_is_none() {
    let server = RedisServer::start();
    let _holders = ["a", "y"].map(|key| holder(&server, key));
    let _: u64 = ask(&server, &["HSET", &lock_of("hash"), "f", "v"]);
    let _: u64 = ask(&server, &["RPUSH", &lock_of("list"), "v"]);
    let _: u64 = ask(&server, &["RPUSH", "distlock:queue:{y}", "v"]);
    let all = [("a", None), ("hash", Some("a hash, no lock")), ("list", Some("a list, no lock"))];
    let all = [&all[..], &[("y", Some("a list for a queue"))]].concat();
    let listed = json(ran(distlock_at(&server, &["ls", "--json"])));
    let listed = listed.as_array().expect("a list").iter();
    let listed: Vec<_> =
        listed.map(|held| (held["key"].as_str().expect("a key"), held["amiss"].as_str())).collect();
    assert_eq!(listed, all);
    for args in [&["ls"][..], &["top", "--once"]] {
        let table = ran(distlock_at(&server, args)).ends_with(0).stdout;
        for (key, amiss) in &all {
            let line = table.lines().find(|line| line.starts_with(key));
            assert!(line.is_some_and(|line| line.contains(amiss.unwrap_or("@"))), "{table}");
        }
    }
    // A user that may not ask for types still sees that it is no lock.
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-type"];
    let _: () = ask(&server, &user);
    let url = format!("redis://app:pw@{}", server.addr());
    let table = ran(distlock(&["ls", "-u", &url])).ends_with(0).stdout;
    assert!(table.contains("of another type, no lock"), "{table}");
    let one = ran(distlock_at(&server, &["inspect", "hash"])).ends_with(69);
    one.says(&["WRONGTYPE"]);
}

#[test]
fn inspect_shows_one() {
    let server = RedisServer::start();
    let key = key();
    let free = ran(distlock_at(&server, &["inspect", &key])).ends_with(0);
    assert_eq!(free.stdout, format!("\"{key}\" is free\n"));
    assert_eq!(json(ran(distlock_at(&server, &["inspect", &key, "--json"])))["held"], false);
    let _holder = holder(&server, &key);
    let _waiters: Vec<Tool> = (1..=2)
        .map(|count| {
            let waiter =
                Tool::start(distlock_at(&server, &["run", "-w", "60s", &key, "--", "true"]));
            let queue = format!("distlock:queue:{{{key}}}");
            wait_until("it waits", || ask::<u64>(&server, &["ZCARD", &queue]) == count);
            waiter
        })
        .collect();
    let queue: Vec<String> =
        ask(&server, &["ZRANGE", &format!("distlock:queue:{{{key}}}"), "0", "-1"]);
    let status = json(ran(distlock_at(&server, &["inspect", &key, "--json"])));
    assert_eq!(status["held"], true);
    let waiting = status["waiting"].as_array().expect("a list");
    assert_eq!(waiting.len(), 2);
    for (waiter, token) in waiting.iter().zip(&queue) {
        assert!(waiter["process"].as_str().is_some_and(|id| token.starts_with(id)), "{status}");
    }
    let shown = ran(distlock_at(&server, &["inspect", &key])).ends_with(0).stdout;
    for words in ["is held", "holder", "lease", "2 processes", "1.", "2."] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

/// The holder itself reports its process, since when it holds, and the lock's name; so do the waiters.
#[test]
fn inspect_names_who_holds_and_who_waits() {
    let server = RedisServer::start();
    let run = |app: &str, name: &str| {
        let args = ["run", "-w", "60s", "--name", name, "k", "--", "sleep", "60"];
        let mut command = distlock_at(&server, &args);
        command.env("DISTLOCK_APP", app);
        Tool::start(command)
    };
    let holder = run("billing", "nightly");
    wait_until("it is held", || is_held(&server, "k"));
    let waits = |count: u64| ask::<u64>(&server, &["ZCARD", "distlock:queue:{k}"]) == count;
    let _first = run("the till", "by hand");
    wait_until("the first waits", || waits(1));
    let _second = run("cellar", "weekly");
    wait_until("the second waits", || waits(2));
    let status = json(ran(distlock_at(&server, &["inspect", "k", "--json"])));
    let pid = status["holder"]["pid"].as_u64().expect("a number");
    assert_eq!(
        (status["holder"]["app"].as_str(), pid),
        (Some("billing"), holder.pid().as_raw_nonzero().get() as u64)
    );
    assert_eq!(status["holder"]["name"], "nightly");
    assert_eq!(status["alone"], true);
    assert!(status["holder"]["since_ms"].is_u64() && status["holder"]["fencing_token"].is_u64());
    let line = |field: &str| {
        let waiting = status["waiting"].as_array().expect("a list").iter();
        waiting.map(|waits| waits[field].as_str().unwrap_or("?").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(line("app"), ["the till", "cellar"]);
    assert_eq!(line("name"), ["by hand", "weekly"]);
    let shown = ran(distlock_at(&server, &["inspect", "k"])).ends_with(0).stdout;
    for words in ["billing@", "nightly", "ago", "1. the till@", "2. cellar@"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let table = ran(distlock_at(&server, &["ls"])).ends_with(0).stdout;
    assert!(table.contains(&format!(":{pid}")), "{table}");
}

/// Several that hold a lock together stand in a set.
#[test]
fn holders_of_a_shared_lock_are_all_shown() {
    let server = RedisServer::start();
    let far = "99999999999999";
    let _: () = ask(&server, &["ZADD", &lock_of("k"), far, "abc.1.1000sr", far, "def.2.1000sr"]);
    let _: () = ask(&server, &["PEXPIRE", &lock_of("k"), "60000"]);
    let held = json(ran(distlock_at(&server, &["ls", "--json"])));
    assert_eq!(
        (held[0]["alone"].as_bool(), held[0]["holders"].as_array().map(Vec::len)),
        (Some(false), Some(2))
    );
    let table = ran(distlock_at(&server, &["ls"])).ends_with(0).stdout;
    assert!(table.contains("abc +1"), "{table}");
}

/// What a process says of itself is shown.
#[test]
fn a_process_that_is_known_is_named() {
    let server = RedisServer::start();
    let _: () = ask(&server, &["SET", &lock_of("k"), "abc.1.1000s", "PX", "60000"]);
    let _: () =
        ask(&server, &["SET", "distlock:process:abc", "v=0.2.0 app=orders host=web-3 pid=4711"]);
    let shown = ran(distlock_at(&server, &["ls"])).ends_with(0).stdout;
    assert!(shown.contains("orders@web-3:4711"), "{shown}");
    let json = json(ran(distlock_at(&server, &["inspect", "k", "--json"])));
    assert_eq!(json["holder"]["app"], "orders");
}

#[test]
fn release_takes_away() {
    let server = RedisServer::start();
    let key = key();
    ran(distlock_at(&server, &["release", &key, "--force"])).ends_with(1).says(&["is free"]);
    let holder = holder(&server, &key);
    ran(distlock_at(&server, &["release", &key])).ends_with(64).says(&["is held by", "--force"]);
    assert!(is_held(&server, &key));
    ran(distlock_at(&server, &["release", &key, "--force"]))
        .ends_with(0)
        .says(&["is held by", "taken away"]);
    holder.ended().ends_with(79);
    assert!(!is_held(&server, &key));
}

#[test]
fn a_store_that_cannot_be_looked_into() {
    for args in [&["ls"][..], &["inspect", "k"], &["release", "k", "--force"]] {
        let nobody = ran(distlock(&[args, &["-u", "redis://127.0.0.1:1"]].concat())).ends_with(69);
        nobody.says(&["Connection refused"]);
        ran(distlock(&[args, &["-u", "memory://"]].concat())).ends_with(64).says(&["memory://"]);
        ran(distlock(args)).ends_with(64).says(&["DISTLOCK_URL"]);
    }
}

/// A user that may only take locks sees which right is missing.
#[test]
fn a_right_that_is_missing_is_named() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-scan"];
    let _: () = ask(&server, &user);
    let url = format!("redis://app:pw@{}", server.addr());
    ran(distlock(&["ls", "-u", &url])).ends_with(69).says(&["scan"]);
}

/// A pipe that is closed is no failure, a disk that is full is one.
#[test]
fn what_cannot_be_written_is_said() {
    for args in [
        &["ls", "--json"][..],
        &["inspect", "k"],
        &["top", "--once"],
        &["man"],
        &["completions", "zsh"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = distlock_here(args);
        command.stdout(writer);
        let closed = ran(command).ends_with(0);
        assert!(!closed.stderr.contains("cannot be written"), "{closed:?}");
        let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { continue };
        let mut command = distlock_here(args);
        command.stdout(full);
        ran(command).ends_with(125).says(&["cannot be written"]);
    }
}

#[test]
fn completions_and_manual() {
    for (shell, words) in [
        ("bash", "_distlock"),
        ("elvish", "distlock"),
        ("fish", "complete -c distlock"),
        ("powershell", "Register-ArgumentCompleter"),
        ("zsh", "#compdef distlock"),
    ] {
        let script = ran(distlock(&["completions", shell])).ends_with(0).stdout;
        assert!(script.contains(words), "{shell}");
        assert!(!script.contains("__guard"), "{shell}");
    }
    let page = ran(distlock(&["man"])).ends_with(0).stdout;
    assert!(page.contains(".TH distlock 1") || page.contains(".TH distlock"), "{page}");
    for command in ["run", "ls", "inspect", "release", "doctor", "completions", "man"] {
        let page = ran(distlock(&["man", command])).ends_with(0).stdout;
        assert!(
            page.contains(&format!(".TH distlock\\-{command}"))
                || page.contains(&format!(".TH distlock-{command}")),
            "{page}"
        );
    }
    let page = ran(distlock(&["man", "run"])).ends_with(0).stdout;
    assert!(page.contains("skip\\-if\\-held") && page.contains("Exit codes"), "{page}");
    ran(distlock(&["man", "walk"])).ends_with(64).says(&["walk"]);
}
