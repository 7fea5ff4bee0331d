//! The command has ended before its lease has, whatever happens.

use std::process::Command;
use std::time::{Duration, Instant};

use distlock_testkit::{RedisServer, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    Dir, SERVER, Tool, ask, distlock_at, distlock_here, is_alive, is_held, key, lock_of, ran,
    rounds, wait_until_held,
};

/// A command of three processes, of which one does not care for TERM and one has left the group.
/// They write down their numbers.
fn stubborn(dir: &Dir) -> String {
    format!(
        "setsid sh -c 'echo $$ > {far}; exec sleep 600' & \
         sh -c 'trap \"\" TERM HUP; echo $$ > {near}; while :; do sleep 0.01; done' & \
         echo $$ > {own}; wait; wait",
        far = dir.text_of("far"),
        near = dir.text_of("near"),
        own = dir.text_of("own"),
    )
}

fn all(dir: &Dir) -> [Pid; 3] {
    ["own", "near", "far"].map(|name| dir.pid(name))
}

#[track_caller]
fn wait_until_gone(pids: &[Pid], within: Duration) {
    distlock_testkit::wait_within(within, "all processes are gone", || {
        !pids.iter().any(|pid| is_alive(*pid))
    });
}

/// With the store frozen no other process can have the lock before the lease is over by the store's clock.
/// The next holder then finds nothing left of the command.
#[test]
fn a_frozen_store() {
    const AT_ONCE: u64 = 3;
    let server = RedisServer::start();
    for _ in 0..rounds().unwrap_or(AT_ONCE).div_ceil(AT_ONCE) {
        let turns: Vec<Turn> = (0..AT_ONCE).map(|_| Turn::begin(&server)).collect();
        server.stop();
        // At its lease's end here all is gone; there it has not ended yet, and does so only later.
        for turn in &turns {
            wait_until_gone(&turn.pids, Duration::from_secs(30));
        }
        server.cont();
        turns.into_iter().for_each(Turn::end);
    }
}

/// A script that says which of these processes run. A zombie, ended but not waited for, does not.
fn which_are_alive(pids: &[Pid]) -> String {
    let look = |pid: &Pid| {
        let pid = pid.as_raw_pid();
        format!(
            "if [ -e /proc/self/status ]; then grep -q '^State:[[:space:]]*[^ZX[:space:]]' /proc/{pid}/status 2>/dev/null; \
             else kill -0 {pid} 2>/dev/null; fi && echo {pid}; "
        )
    };
    pids.iter().map(look).collect::<String>() + "true"
}

#[test]
fn one_that_has_ended_is_not_alive() {
    let mut ended = Command::new("true").spawn().expect("start it");
    let pid = Pid::from_child(&ended);
    let look = |pid| {
        let look = Command::new("sh").args(["-c", &which_are_alive(&[pid])]).output();
        String::from_utf8(look.expect("look").stdout).expect("a number")
    };
    // It stays a zombie until `wait` below.
    wait_until("it has ended", || !is_alive(pid));
    assert_eq!(look(pid), "");
    ended.wait().expect("ask after it");
    let own = rustix::process::getpid();
    assert_eq!(look(own), format!("{}\n", own.as_raw_pid()));
}

/// A holder, and the next one, which says which processes of the holder are left.
struct Turn {
    holder: Tool,
    pids: [Pid; 3],
    next: Tool,
    _dir: Dir,
}

impl Turn {
    fn begin(server: &RedisServer) -> Self {
        let (key, dir) = (key(), Dir::new());
        let options = ["run", "-t", "3s", "--grace", "1400ms", &key, "--", "sh", "-c"];
        let holder = Tool::start(distlock_at(server, &[&options[..], &[&stubborn(&dir)]].concat()));
        let pids = all(&dir);
        let look = which_are_alive(&pids);
        let next = ["run", "-w", "60s", &key, "--", "sh", "-c", &look];
        let next = Tool::start(distlock_at(server, &next));
        let queue = format!("distlock:queue:{{{key}}}");
        wait_until("the next one waits", || ask::<u64>(server, &["ZCARD", &queue]) == 1);
        Self { holder, pids, next, _dir: dir }
    }

    fn end(self) {
        self.holder.ended().ends_with(79).says(&["was lost"]);
        assert_eq!(self.next.ended().ends_with(0).stdout, "");
    }
}

/// The same without waiting for the processes: the store goes on while they are ended.
#[test]
fn a_store_that_is_frozen_for_about_a_ttl() {
    let server = RedisServer::start();
    let (key, dir) = (key(), Dir::new());
    let log = dir.text_of("log");
    let script = format!(
        "trap '' TERM; echo $$ > {}; while :; do date +%s%N > {log}.last; done",
        dir.text_of("pid")
    );
    let holder = Tool::start(distlock_at(
        &server,
        &["run", "-t", "4s", "--grace", "1900ms", &key, "--", "sh", "-c", &script],
    ));
    let pid = dir.pid("pid");
    server.stop();
    std::thread::sleep(Duration::from_millis(3900));
    server.cont();
    let next = which_are_alive(&[pid]);
    let next = ran(distlock_at(&server, &["run", "-w", "60s", &key, "--", "sh", "-c", &next]));
    assert_eq!(next.ends_with(0).stdout, "");
    holder.ended().ends_with(79);
}

/// An operator took the lock away: TERM at once, and KILL after the grace.
#[test]
fn a_lock_that_was_taken_away() {
    let (key, dir) = (key(), Dir::new());
    let options = ["run", "-t", "3s", "--grace", "300ms", &key, "--", "sh", "-c"];
    let tool = Tool::start(distlock_here(&[&options[..], &[&stubborn(&dir)]].concat()));
    let pids = all(&dir);
    let _: String = ask(&SERVER, &["SET", &lock_of(&key), "somebody else", "XX", "PX", "60000"]);
    tool.ended().ends_with(79).says(&["was lost", "was ended"]);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    assert!(is_held(&SERVER, &key), "the lock of another is left alone");
}

#[test]
fn a_command_that_cleans_up_has_the_grace() {
    let (key, dir) = (key(), Dir::new());
    let script = format!(
        "trap 'sleep 0.2; echo clean > {}; exit 0' TERM; echo $$ > {}; while :; do sleep 0.01; done",
        dir.text_of("clean"),
        dir.text_of("pid")
    );
    let tool = Tool::start(distlock_here(&["run", "-t", "30s", &key, "--", "sh", "-c", &script]));
    dir.pid("pid");
    let taken = Instant::now();
    ran(distlock_here(&["release", "--force", &key])).ends_with(0);
    tool.ended().ends_with(79);
    // By a message, and not by the next renewal.
    assert!(taken.elapsed() < Duration::from_secs(9), "{:?}", taken.elapsed());
    assert_eq!(dir.read("clean"), "clean\n");
}

#[test]
fn on_lost_continue_lets_it_end() {
    let (key, dir) = (key(), Dir::new());
    let script = format!(
        "echo $$ > {}; while [ -d {} ]; do sleep 0.01; done; exit 4",
        dir.text_of("pid"),
        dir.text_of("sub")
    );
    std::fs::create_dir(dir.path("sub")).expect("create");
    let tool = Tool::start(distlock_here(&[
        "run",
        "--on-lost",
        "continue",
        "-t",
        "300ms",
        &key,
        "--",
        "sh",
        "-c",
        &script,
    ]));
    let command = dir.pid("pid");
    let _: u64 = ask(&SERVER, &["DEL", &lock_of(&key)]);
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_alive(command));
    std::fs::remove_dir(dir.path("sub")).expect("remove");
    tool.ended().ends_with(4).says(&["was lost", "goes on"]);
}

#[test]
fn max_hold_ends_it() {
    let (key, dir) = (key(), Dir::new());
    let script = format!("echo $$ > {}; exec sleep 600", dir.text_of("pid"));
    let tool =
        Tool::start(distlock_here(&["run", "--max-hold", "1s", &key, "--", "sh", "-c", &script]));
    let command = dir.pid("pid");
    tool.ended().ends_with(79).says(&["was held for 1s, as --max-hold says"]);
    assert!(!is_alive(command));
    wait_until("the lock is free", || !is_held(&SERVER, &key));
}

#[test]
fn the_ttl_is_what_was_asked_for() {
    for (options, least, most) in [(&["-t", "5m"][..], 200_000, 300_000), (&[], 20_000, 30_000)] {
        let key = key();
        let tool = Tool::start(distlock_here(
            &[&["run", &key], options, &["--", "sleep", "600"]].concat(),
        ));
        wait_until_held(&SERVER, &key);
        let stored: u64 = ask(&SERVER, &["PTTL", &lock_of(&key)]);
        assert!((least..=most).contains(&stored), "{stored} of {options:?}");
        drop(tool);
    }
}

#[test]
fn a_long_command_keeps_a_short_lease() {
    let key = key();
    ran(distlock_here(&["run", "-t", "4s", &key, "--", "sleep", "5"])).ends_with(0);
}

/// kill -9, as by the out-of-memory killer.
#[test]
fn a_tool_that_is_killed() {
    let (key, dir) = (key(), Dir::new());
    let tool = Tool::start(distlock_here(&["run", &key, "--", "sh", "-c", &stubborn(&dir)]));
    let pids = all(&dir);
    tool.signal(Signal::KILL);
    // A second, with ten times the room.
    wait_until_gone(&pids, Duration::from_secs(10));
    assert!(is_held(&SERVER, &key), "the lock is kept until its ttl is over");
}

/// The next holder waits for the ttl, and finds nothing of the command.
#[test]
fn the_lock_of_a_killed_tool_is_free_after_its_ttl() {
    let (key, dir) = (key(), Dir::new());
    let options = ["run", "-t", "3s", &key, "--", "sh", "-c"];
    let tool = Tool::start(distlock_here(&[&options[..], &[&stubborn(&dir)]].concat()));
    let pids = all(&dir);
    tool.signal(Signal::KILL);
    let look = which_are_alive(&pids);
    let next = ran(distlock_here(&["run", "-w", "60s", &key, "--", "sh", "-c", &look]));
    assert_eq!(next.ends_with(0).stdout, "");
}

/// A tool that is stopped renews nothing; its command does not outlive the lease all the same.
#[test]
fn a_tool_that_is_stopped() {
    let (key, dir) = (key(), Dir::new());
    let options = ["run", "-t", "4s", "--grace", "1900ms", &key, "--", "sh", "-c"];
    let tool = Tool::start(distlock_here(&[&options[..], &[&stubborn(&dir)]].concat()));
    let pids = all(&dir);
    tool.signal(Signal::STOP);
    let look = which_are_alive(&pids);
    let next = ran(distlock_here(&["run", "-w", "60s", &key, "--", "sh", "-c", &look]));
    assert_eq!(next.ends_with(0).stdout, "");
    tool.signal(Signal::CONT);
    tool.ended().ends_with(79);
}

#[test]
fn a_guardian_that_is_killed() {
    let (key, dir) = (key(), Dir::new());
    let tool = Tool::start(distlock_here(&["run", &key, "--", "sh", "-c", &stubborn(&dir)]));
    let pids = all(&dir);
    let guardian = parent(pids[0]);
    kill_process(guardian, Signal::KILL).expect("kill the guardian");
    tool.ended().ends_with(125).says(&["guardian"]);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    assert!(!is_held(&SERVER, &key));
}

#[test]
fn a_guardian_that_is_stopped() {
    let server = RedisServer::start();
    let (key, dir) = (key(), Dir::new());
    let options = ["run", "-t", "3s", "--grace", "1s", &key, "--", "sh", "-c"];
    let tool = Tool::start(distlock_at(&server, &[&options[..], &[&stubborn(&dir)]].concat()));
    let pids = all(&dir);
    kill_process(parent(pids[0]), Signal::STOP).expect("stop the guardian");
    server.stop();
    tool.ended().ends_with(79);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    server.cont();
}

fn parent(pid: Pid) -> Pid {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).expect("its parent");
    let fields = stat.rsplit_once(") ").expect("a state").1;
    let parent = fields.split(' ').nth(1).and_then(|pid| pid.parse().ok()).expect("a number");
    Pid::from_raw(parent).expect("positive")
}

/// Several keys: one that is lost ends the command.
#[test]
fn one_lost_of_several() {
    let (one, two) = (key(), key());
    let tool =
        Tool::start(distlock_here(&["run", "-t", "500ms", &one, &two, "--", "sleep", "600"]));
    wait_until_held(&SERVER, &two);
    let _: u64 = ask(&SERVER, &["DEL", &lock_of(&one)]);
    tool.ended().ends_with(79);
    wait_until("the other is free", || !is_held(&SERVER, &two));
}
