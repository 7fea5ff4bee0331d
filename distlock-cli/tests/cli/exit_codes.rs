//! Each exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use distlock_testkit::RedisServer;

use crate::support::{
    Dir, SERVER, Tool, ask, distlock, distlock_at, distlock_here, holder, is_held, key, lock_of,
    ran, wait_until_held,
};

#[test]
fn the_commands_own() {
    let key = key();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        ran(distlock_here(&["run", &key, "--", "sh", "-c", script])).ends_with(code);
    }
    assert!(!is_held(&SERVER, &key));
}

#[test]
fn of_a_command_that_a_signal_ended() {
    let key = key();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139)] {
        let script = format!("kill -{signal} $$");
        ran(distlock_here(&["run", &key, "--", "sh", "-c", &script])).ends_with(code);
    }
}

#[test]
fn of_a_command_that_is_not_there() {
    let key = key();
    for command in ["no-such-command-anywhere", "/no/such/command", ""] {
        ran(distlock_here(&["run", &key, "--", command])).ends_with(127);
    }
    let ran = ran(distlock_here(&["run", &key, "--", "no-such-command-anywhere"]));
    ran.says(&["no-such-command-anywhere", "No such file"]);
    assert!(!is_held(&SERVER, &key), "the lock is free again");
}

#[test]
fn of_a_command_that_cannot_be_executed() {
    let (key, dir) = (key(), Dir::new());
    fs::write(dir.path("data"), "no program").expect("write");
    ran(distlock_here(&["run", &key, "--", &dir.text_of("data")])).ends_with(126);
    // Executable by its rights, but nothing that the system can execute.
    fs::set_permissions(dir.path("data"), fs::Permissions::from_mode(0o755)).expect("chmod");
    let odd = ran(distlock_here(&["run", &key, "--", &dir.text_of("data")])).ends_with(126);
    odd.says(&["#!/bin/sh"]);
    ran(distlock_here(&["run", &key, "--", "/"])).ends_with(126);
    assert!(!is_held(&SERVER, &key));
}

#[test]
fn of_a_lock_that_is_held_elsewhere() {
    let key = key();
    let _holder = holder(&SERVER, &key);
    let marker = Dir::new();
    let touch = ["touch".to_owned(), marker.text_of("started")];
    let run = |options: &[&str]| {
        let args = ["run"].iter().chain(options).copied().chain([key.as_str(), "--"]);
        let args: Vec<&str> = args.chain(touch.iter().map(String::as_str)).collect();
        ran(distlock_here(&args))
    };
    run(&[]).ends_with(75).says(&["held elsewhere", &key]);
    run(&["--no-wait"]).ends_with(75);
    run(&["-n"]).ends_with(75);
    run(&["--wait", "0"]).ends_with(75);
    run(&["-w", "200ms"]).ends_with(75).says(&["waited 200ms"]);
    run(&["-E", "3"]).ends_with(3);
    run(&["--busy-exit-code=0"]).ends_with(0);
    run(&["--skip-if-held"]).ends_with(0).says(&["held elsewhere", "skipped"]);
    let quiet = run(&["-q"]).ends_with(75);
    assert_eq!(quiet.stderr, "");
    let json = run(&["--json"]).ends_with(75);
    assert!(json.stderr.contains(r#""event":"busy""#), "{json:?}");
    assert!(json.stderr.contains(r#""exit_code":75"#), "{json:?}");
    assert!(!marker.path("started").exists());
}

#[test]
fn of_a_store_that_is_not_there() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.kill9();
    let run = |args: &[&str]| ran(distlock(&[&["run", "-u", &url], args].concat()));
    run(&["k", "--", "true"]).ends_with(69).says(&["cannot be reached"]);
    run(&["--wait", "forever", "k", "--", "true"]).ends_with(69);
    run(&["--skip-if-held", "k", "--", "true"]).ends_with(69);
}

#[test]
fn of_a_store_that_refuses() {
    let server = RedisServer::builder().password("open-sesame").start();
    let wrong = format!("redis://:let-me-in@{}", server.addr());
    let none = format!("redis://{}", server.addr());
    for url in [wrong, none] {
        for volume in ["-v", "-q", "--json"] {
            let ran = ran(distlock(&["run", volume, "-u", &url, "k", "--", "true"])).ends_with(69);
            assert!(!ran.stderr.contains("let-me-in"), "{ran:?}");
            assert!(ran.stderr.contains("refused access"), "{ran:?}");
        }
    }
    ran(distlock_at(&server, &["run", "k", "--", "true"])).ends_with(0);
}

#[test]
fn of_a_lease_that_was_lost() {
    let key = key();
    let tool = Tool::start(distlock_here(&["run", "-t", "600ms", &key, "--", "sleep", "600"]));
    wait_until_held(&SERVER, &key);
    let _: String = ask(&SERVER, &["SET", &lock_of(&key), "somebody else", "XX", "PX", "5000"]);
    tool.ended().ends_with(79).says(&["was lost", &key]);
}

#[test]
fn of_a_run_within_a_run_of_the_same_key() {
    let key = key();
    let program = env!("CARGO_BIN_EXE_distlock");
    let nested = |inner: &str, middle: &str| {
        ran(distlock_here(&[
            "run", &key, "--", program, "run", middle, "--", program, "run", "-w", "forever",
            inner, "--", "true",
        ]))
    };
    nested(&key, "another").ends_with(125).says(&["wait for itself"]);
    nested("a third", "another").ends_with(0);
}
