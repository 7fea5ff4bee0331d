//! Processes cannot be listed, or may not be signalled. The tests need root, as in CI; otherwise they print
//! what they skip.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use distlock_testkit::{LONG, wait_until, wait_within};
use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};

use crate::support::{Dir, SERVER, Tool, distlock_here, is_held, key};

/// Whether this command can be run here; if not, prints what is skipped.
fn can(program: &str, args: &[&str], left_out: &str) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_root = cfg!(target_os = "linux") && geteuid().is_root();
    let can = is_root && command.status().is_ok_and(|status| status.success());
    if !can {
        let why = format!("`{program} {}` is not possible here", args.join(" "));
        let _ = writeln!(std::io::stderr(), "not tested: {left_out}, because {why}");
    }
    can
}

/// The program as it is called in a chroot in which everything is as outside, except for an empty `/proc`.
fn without_processes(dir: &Dir, args: &[&str]) -> Option<Command> {
    if !can("unshare", &["-m", "true"], "an empty /proc") {
        return None;
    }
    let root = dir.text_of("root");
    fs::create_dir(&root).expect("create a directory");
    let inside = distlock_here(args);
    let script = format!(
        "mount --rbind / {root} && mount -t tmpfs none {root}/proc && exec chroot {root} \"$0\" \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(inside.get_program()).args(inside.get_args());
    for (name, value) in inside.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// The shell ends at once. Its child takes a moment, in the same process group or in its own.
/// Fault: FO2.
#[test]
fn without_a_list_of_processes_the_lock_is_kept_until_the_last_one_has_ended() {
    for own_group in [false, true] {
        let (key, dir) = (key(), Dir::new());
        let slow = format!(
            "trap '' TERM; echo $$ > {}; while [ ! -e {} ]; do sleep 0.01; done; echo done > {}",
            dir.text_of("pid"),
            dir.text_of("end"),
            dir.text_of("done"),
        );
        fs::write(dir.path("slow"), slow).expect("write");
        let apart = if own_group { "setsid" } else { "" };
        let script = format!("test ! -e /proc/self && {apart} sh {} & wait", dir.text_of("slow"));
        let args = ["run", "--grace", "14s", &key, "--", "sh", "-c", &script];
        let Some(command) = without_processes(&dir, &args) else { return };
        let mut tool = Tool::start(command);
        dir.pid("pid");
        tool.signal(Signal::TERM);
        // Longer than it takes to notice that the shell has ended.
        std::thread::sleep(Duration::from_secs(2));
        assert!(!tool.has_ended() && is_held(&SERVER, &key), "in a group of its own: {own_group}");
        fs::write(dir.path("end"), "").expect("write");
        wait_until("the lock is free", || !is_held(&SERVER, &key));
        assert_eq!(dir.read("done"), "done\n", "in a group of its own: {own_group}");
        tool.ended().ends_with(143);
    }
}

/// A command that runs as root under a tool that does not.
struct OfRoot {
    tool: Tool,
    key: String,
    command: Pid,
    guardian: Pid,
    _dir: Dir,
}

impl OfRoot {
    fn start(options: &[&str]) -> Option<Self> {
        let (key, dir) = (key(), Dir::new());
        // `sudo` sets the real user as well, so do the same.
        let setpriv =
            ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().find(|path| Path::new(path).exists());
        let sudo = dir.text_of("sudo");
        fs::copy(setpriv?, &sudo).expect("copy a program");
        fs::set_permissions(&sudo, fs::Permissions::from_mode(0o4755)).expect("make it setuid");
        let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let as_root = [&sudo[..], "--reuid=0", "--regid=0", "--clear-groups"];
        let both = [&as_nobody[..], &as_root, &["true"]].concat();
        if !can("setpriv", &both, "a command of another user") {
            return None;
        }
        let pid = dir.text_of("pid");
        fs::write(&pid, "").expect("write");
        let script = format!("echo $$ > {pid}; exec sleep 600");
        let command = [&as_root[..], &["sh", "-c", &script]].concat();
        let inside = distlock_here(&[&["run"], options, &[&key, "--"], &command].concat());
        let mut setpriv = Command::new("setpriv");
        setpriv.args(as_nobody).arg(inside.get_program()).args(inside.get_args());
        setpriv.env("DISTLOCK_URL", SERVER.url());
        setpriv.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let tool = Tool::start(setpriv);
        let command = dir.pid("pid");
        let guardian = parent(command);
        Some(Self { tool, key, command, guardian, _dir: dir })
    }

    fn kill(&self) {
        let _ = kill_process(self.command, Signal::KILL);
    }
}

impl Drop for OfRoot {
    fn drop(&mut self) {
        self.kill();
    }
}

fn parent(pid: Pid) -> Pid {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).expect("it runs");
    let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
    Pid::from_raw(parent.expect("a parent").parse().expect("a number")).expect("positive")
}

/// Fault: FO3.
#[test]
fn a_command_of_another_user_is_said_to_be_out_of_reach_and_keeps_the_lock() {
    let Some(mut run) = OfRoot::start(&[]) else { return };
    run.tool.signal(Signal::TERM);
    std::thread::sleep(Duration::from_secs(1));
    run.tool.signal(Signal::TERM);
    std::thread::sleep(Duration::from_secs(1));
    assert!(!run.tool.has_ended() && is_held(&SERVER, &run.key));
    run.kill();
    wait_until("the tool ends", || run.tool.has_ended());
    assert!(!is_held(&SERVER, &run.key));
    let tool = std::mem::replace(&mut run.tool, Tool::start(distlock_here(&["--version"])));
    let ran = tool.ended().ends_with(137).says(&["as another user", "cannot be signalled"]);
    assert_eq!(ran.stderr.matches("another user").count(), 1, "{ran:?}");
}

/// Returns how often a process has gone to sleep.
fn sleeps(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).expect("it runs");
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    sleeps.expect("a count").trim().parse().expect("a number")
}

/// Fault: FO6.
#[test]
fn a_guardian_that_cannot_end_its_command_does_not_look_again_and_again() {
    let Some(run) = OfRoot::start(&[]) else { return };
    run.tool.signal(Signal::KILL);
    std::thread::sleep(Duration::from_secs(3));
    let before = sleeps(run.guardian);
    std::thread::sleep(Duration::from_secs(3));
    let looks = sleeps(run.guardian) - before;
    assert!(looks < 150, "{looks} in three seconds");
    assert!(test_kill_process(run.command).is_ok(), "the command lives");
    run.kill();
    wait_within(LONG, "the guardian ends", || test_kill_process(run.guardian).is_err());
}

/// Fault: FO6.
#[test]
fn a_tool_that_cannot_end_its_command_gives_up_in_time() {
    let Some(mut run) = OfRoot::start(&[]) else { return };
    kill_process(run.guardian, Signal::KILL).expect("the guardian runs");
    let begin = Instant::now();
    wait_until("the tool ends", || run.tool.has_ended());
    // It should take five seconds; allow ten times that.
    assert!(begin.elapsed() < Duration::from_secs(50), "{:?}", begin.elapsed());
    // The command inherits the tool's standard error, which the test reads to its end.
    run.kill();
    let tool = std::mem::replace(&mut run.tool, Tool::start(distlock_here(&["--version"])));
    tool.ended().ends_with(125).says(&["cannot be ended"]);
}
