//! Signals: to the whole command, and at any time.

use std::fs;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use distlock_testkit::{wait_until, wait_within};
use rustix::process::Signal;

use crate::support::{
    Dir, SERVER, Tool, ask, distlock_here, holder, is_alive, is_held, is_ignored, key, lock_of,
    ran, rounds,
};

/// A command that says that it is ready, and then which signals it gets; TERM ends it.
fn listener(dir: &Dir) -> String {
    format!(
        "for s in HUP INT QUIT USR1 USR2; do trap \"echo $s >> {log}\" $s; done; \
         trap 'echo TERM >> {log}; exit 9' TERM; echo $$ > {pid}; while :; do sleep 0.01; done",
        log = dir.text_of("log"),
        pid = dir.text_of("pid"),
    )
}

#[test]
fn each_is_passed_on() {
    let (key, dir) = (key(), Dir::new());
    let tool = Tool::start(distlock_here(&["run", &key, "--", "sh", "-c", &listener(&dir)]));
    dir.pid("pid");
    let signals = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ];
    for (signal, name) in signals {
        tool.signal(signal);
        wait_until(name, || dir.read("log").lines().any(|line| line == name));
    }
    tool.signal(Signal::TERM);
    tool.ended().ends_with(9);
    assert_eq!(dir.read("log").lines().last(), Some("TERM"));
}

/// Not only to the shell in front: that is what left commands behind elsewhere.
#[test]
fn each_ends_the_whole_command() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
        let (key, dir) = (key(), Dir::new());
        // A shell that runs something behind the command waits for it in front.
        let script = format!("sh -c 'echo $$ > {}; exec sleep 600'; true", dir.text_of("pid"));
        let tool = Tool::start(distlock_here(&["run", &key, "--", "sh", "-c", &script]));
        let grandchild = dir.pid("pid");
        tool.signal(signal);
        tool.ended().ends_with(128 + signal.as_raw());
        assert!(!is_alive(grandchild), "{signal:?}");
        assert!(!is_held(&SERVER, &key));
    }
}

/// The lock is not free while a part of the command that was signalled to end is still at work.
#[test]
fn the_lock_is_kept_until_all_of_it_has_ended() {
    let (key, dir) = (key(), Dir::new());
    // The shell ends at once, what it has started takes a moment.
    let slow = format!(
        "trap 'sleep 0.3; echo done > {}; exit' TERM; echo $$ > {}; while :; do sleep 0.01; done",
        dir.text_of("done"),
        dir.text_of("pid")
    );
    fs::write(dir.path("slow"), slow).expect("write");
    let script = format!("sh {} & wait", dir.text_of("slow"));
    let tool = Tool::start(distlock_here(&["run", &key, "--", "sh", "-c", &script]));
    dir.pid("pid");
    tool.signal(Signal::TERM);
    wait_until("the lock is free", || !is_held(&SERVER, &key));
    assert_eq!(dir.read("done"), "done\n");
    tool.ended().ends_with(143);
}

#[test]
fn stop_and_continue_are_passed_on_while_the_lock_is_kept() {
    let (key, dir) = (key(), Dir::new());
    let script = format!("echo $$ > {}; exec sleep 600", dir.text_of("pid"));
    // As long as a busy machine may take to start the command.
    let tool = Tool::start(distlock_here(&["run", "-t", "3s", &key, "--", "sh", "-c", &script]));
    let command = dir.pid("pid");
    let state =
        || fs::read_to_string(format!("/proc/{}/stat", command.as_raw_pid())).unwrap_or_default();
    if !state().is_empty() {
        tool.signal(Signal::TSTP);
        wait_until("it is stopped", || state().contains(") T "));
        // Longer than its ttl: it is renewed all the while.
        std::thread::sleep(Duration::from_secs(4));
        assert!(is_held(&SERVER, &key));
        tool.signal(Signal::CONT);
        wait_until("it goes on", || state().contains(") S "));
    }
    tool.signal(Signal::TERM);
    tool.ended().ends_with(143);
}

#[test]
fn whoever_waits_ends_at_once_and_leaves_the_queue() {
    let key = key();
    let _holder = holder(&SERVER, &key);
    let queue = format!("distlock:queue:{{{key}}}");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let marker = Dir::new();
        let touch = marker.text_of("started");
        let tool =
            Tool::start(distlock_here(&["run", "-w", "forever", &key, "--", "touch", &touch]));
        wait_until("it waits", || ask::<u64>(&SERVER, &["ZCARD", &queue]) == 1);
        let sent = Instant::now();
        tool.signal(signal);
        tool.ended().ends_with(128 + signal.as_raw());
        // A second, with ten times the room.
        assert!(sent.elapsed() < Duration::from_secs(10));
        assert_eq!(
            ask::<u64>(&SERVER, &["ZCARD", &queue]),
            0,
            "its place is left when it has ended"
        );
        assert!(!marker.path("started").exists());
    }
}

/// A command that takes its time has it, unless the grace says how much.
#[test]
fn whoever_ignores_term_is_killed_after_a_grace_that_was_given() {
    for (grace, code) in [(Some("300ms"), 137), (None, 3)] {
        let (key, dir) = (key(), Dir::new());
        let script = format!(
            "trap '' TERM; echo $$ > {}; while [ ! -e {} ]; do sleep 0.01; done; exit 3",
            dir.text_of("pid"),
            dir.text_of("end")
        );
        let grace: Vec<&str> = grace.iter().flat_map(|grace| ["--grace", grace]).collect();
        let args = [&["run"], &grace[..], &[&key, "--", "sh", "-c", &script]].concat();
        let mut tool = Tool::start(distlock_here(&args));
        let command = dir.pid("pid");
        tool.signal(Signal::TERM);
        if grace.is_empty() {
            // Longer than the one of the other command.
            std::thread::sleep(Duration::from_millis(600));
            assert!(!tool.has_ended() && is_held(&SERVER, &key));
            fs::write(dir.path("end"), "").expect("write");
        }
        tool.ended().ends_with(code);
        assert!(!is_alive(command) && !is_held(&SERVER, &key));
    }
}

/// The waiters behind it would wait for a process that is gone.
#[test]
fn whoever_has_waited_long_enough_leaves_the_queue() {
    let key = key();
    let _holder = holder(&SERVER, &key);
    ran(distlock_here(&["run", "-w", "300ms", &key, "--", "true"])).ends_with(75);
    let queue = format!("distlock:queue:{{{key}}}");
    assert_eq!(ask::<u64>(&SERVER, &["ZCARD", &queue]), 0);
}

/// Whenever it comes: the command is not started after it, and if it was before, it ends.
#[test]
fn no_command_is_started_after_it() {
    let rounds = rounds().unwrap_or(25);
    // Each tool has said one of two things: that it has started the command, or that it will not.
    let (mut before, mut after) = (0, 0);
    let usual = until_started();
    // One that is ignored from the beginning would be lost until the program is there.
    let signals = [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP)];
    let signals = signals.iter().filter(|(name, _)| *name == "TERM" || !is_ignored(name));
    let signals: Vec<Signal> = signals.map(|(_, signal)| *signal).collect();
    for round in 0..rounds {
        let (key, dir) = (key(), Dir::new());
        let script = format!("echo $$ > {}; exec sleep 600", dir.text_of("pid"));
        let options = ["run", "-v", "-w", "5s", &key, "--", "sh", "-c", &script];
        let tool = Tool::start(distlock_here(&options));
        // From before there are handlers until the command runs; spread evenly, in no order.
        std::thread::sleep(usual.mul_f64(round as f64 * 0.618_034 % 1.0 * 1.3));
        tool.signal(signals[round as usize % signals.len()]);
        let ran = tool.ended();
        // Without a handler yet it is the signal itself.
        assert!(matches!(ran.code, Some(129 | 130 | 143) | None), "{ran:?}");
        let processes = processes_with(&dir.text_of("pid"));
        assert_eq!(processes, Vec::<String>::new(), "{ran:?}");
        let is_refused = ran.stderr.contains("before the command was started");
        let has_run = dir.path("pid").exists();
        assert!(!(has_run && (is_refused || ran.code.is_none())), "{ran:?}");
        before += u64::from(!has_run);
        after += u64::from(has_run);
        // Without a handler it is held for its ttl at most.
        if ran.code.is_some() {
            wait_until("the lock is free", || !is_held(&SERVER, &key));
        }
    }
    assert!(
        before > 0 && after > 0,
        "{before} before, {after} later, of a start that takes {usual:?}"
    );
}

/// How long it takes from the start of the program until its command runs.
fn until_started() -> Duration {
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let dir = Dir::new();
            let begin = Instant::now();
            let script = format!("echo > {}; exec sleep 600", dir.text_of("in"));
            let tool = Tool::start(distlock_here(&["run", &key(), "--", "sh", "-c", &script]));
            while !dir.path("in").exists() {
                std::thread::sleep(Duration::from_micros(200));
            }
            let took = begin.elapsed();
            drop(tool);
            took
        })
        .collect();
    times.sort();
    times[2]
}

/// The processes in whose arguments this text stands, where the system lists them.
fn processes_with(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let arguments =
        entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    arguments.filter(|arguments| arguments.contains(text)).collect()
}

/// nohup has HUP ignored: by the command, too.
#[test]
fn what_is_ignored_stays_ignored() {
    let (key, dir) = (key(), Dir::new());
    let script = format!("echo $$ > {}; exec sleep 600", dir.text_of("pid"));
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", r#"trap "" HUP; exec "$@""#, "sh", env!("CARGO_BIN_EXE_distlock")])
        .args(["run", &key, "--", "sh", "-c", &script])
        .env("DISTLOCK_URL", SERVER.url())
        .stdin(std::process::Stdio::null());
    let tool = Tool::start(command);
    let command = dir.pid("pid");
    tool.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(200));
    assert!(is_alive(command) && is_held(&SERVER, &key));
    rustix::process::kill_process(command, Signal::HUP).expect("signal");
    std::thread::sleep(Duration::from_millis(50));
    assert!(is_alive(command));
    tool.signal(Signal::TERM);
    tool.ended().ends_with(143);
}

/// What signals whole groups, as shells and service managers do, reaches the tool: it does not die
/// before the command.
#[test]
fn a_signal_to_the_tools_group_ends_all_in_order() {
    let (key, dir) = (key(), Dir::new());
    let mut command = distlock_here(&["run", &key, "--", "sh", "-c", &listener(&dir)]);
    command.process_group(0);
    let tool = Tool::start(command);
    dir.pid("pid");
    tool.signal_group(Signal::TERM);
    tool.ended().ends_with(9);
    assert_eq!(dir.read("log"), "TERM\n");
    assert!(!is_held(&SERVER, &key));
}

#[test]
fn a_command_that_does_not_care_goes_on() {
    let (key, dir) = (key(), Dir::new());
    let script =
        format!("trap '' TERM; echo $$ > {}; while :; do sleep 0.01; done", dir.text_of("pid"));
    let mut tool = Tool::start(distlock_here(&["run", &key, "--", "sh", "-c", &script]));
    let command = dir.pid("pid");
    tool.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!tool.has_ended() && is_alive(command) && is_held(&SERVER, &key));
    rustix::process::kill_process(command, Signal::KILL).expect("kill");
    tool.ended().ends_with(137);
}

#[test]
fn one_that_comes_while_the_store_is_frozen_ends_the_wait() {
    let server = distlock_testkit::RedisServer::start();
    let key = key();
    let held = holder(&server, &key);
    let queue = format!("distlock:queue:{{{key}}}");
    let waiter = Tool::start(crate::support::distlock_at(
        &server,
        &["run", "-w", "60s", &key, "--", "true"],
    ));
    wait_until("it waits", || ask::<u64>(&server, &["ZCARD", &queue]) == 1);
    server.stop();
    waiter.signal(Signal::TERM);
    waiter.ended().ends_with(143);
    server.cont();
    let _: u64 = ask(&server, &["DEL", &lock_of(&key)]);
    drop(held);
    wait_within(Duration::from_secs(60), "a lock that others can take", || {
        ran(crate::support::distlock_at(&server, &["run", "-w", "1s", &key, "--", "true"])).code
            == Some(0)
    });
    wait_until("nobody holds it", || !is_held(&server, &key));
}

/// Without a group of its own: as a child of a program that has one for all of its children.
#[test]
fn in_the_foreground_they_reach_all_of_it_too() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (key, dir) = (key(), Dir::new());
        let script = format!("sh -c 'echo $$ > {}; exec sleep 600'; true", dir.text_of("pid"));
        let args = ["run", "--foreground", &key, "--", "sh", "-c", &script];
        let tool = Tool::start(distlock_here(&args));
        let grandchild = dir.pid("pid");
        tool.signal(signal);
        tool.ended().ends_with(128 + signal.as_raw());
        assert!(!is_alive(grandchild), "{signal:?}");
    }
}
