//! What the command sees and does, and what is left when it has ended.

use std::fs;
use std::process::Stdio;

use distlock_testkit::wait_until;

use crate::support::{
    Dir, SERVER, Tool, ask, distlock, distlock_here, is_alive, is_held, key, ran, wait_until_held,
};

#[test]
fn its_arguments_are_its_own() {
    let ran = ran(distlock_here(&[
        "run",
        &key(),
        "--",
        "printf",
        "[%s]",
        "--wait",
        "5s",
        "-v",
        "--",
        "$HOME",
        "a b",
        "",
    ]));
    assert_eq!(ran.ends_with(0).stdout, "[--wait][5s][-v][--][$HOME][a b][]");
}

#[test]
fn standard_streams_are_its_own() {
    let mut command =
        distlock_here(&["run", "-v", &key(), "--", "sh", "-c", "cat; echo error >&2"]);
    let mut tool = Tool::start({
        command.stdin(Stdio::piped());
        command
    });
    tool.write("one\ntwo\n");
    drop(tool.take_stdin());
    let ran = tool.ended().ends_with(0).says(&["error\n"]);
    assert_eq!(ran.stdout, "one\ntwo\n", "stdout is the command's alone");
}

#[test]
fn much_output_comes_through_and_a_closed_pipe_reaches_it() {
    let script = "i=0; while [ $i -lt 40 ]; do printf '%0100000d' 0; i=$((i + 1)); done";
    let ran = ran(distlock_here(&["run", &key(), "--", "sh", "-c", script])).ends_with(0);
    assert_eq!(ran.stdout.len(), 4_000_000);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = distlock_here(&["run", &key(), "--", "sh", "-c", "while echo y; do :; done"]);
    command.stdout(writer);
    // By PIPE, as without this program.
    crate::support::ran(command).ends_with(141);
}

#[test]
fn what_is_no_text_comes_through() {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let mut command =
        distlock_here(&["run", &key(), "--", "sh", "-c", "test \"$1\" = \"$ODD\"", "sh"]);
    command.arg(odd).env("ODD", odd);
    ran(command).ends_with(0);
    let mut command = distlock_here(&["run"]);
    command.arg(odd).args(["--", "true"]);
    ran(command).ends_with(64).says(&["UTF-8"]);
}

/// Nothing of what a service manager or a shell may have left closed is missed.
#[test]
fn without_standard_streams() {
    let program = env!("CARGO_BIN_EXE_distlock");
    let script = format!("exec {program} run {} -- sh -c 'exit 4' <&- >&- 2>&-", key());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).env("DISTLOCK_URL", SERVER.url());
    ran(command).ends_with(4);
}

/// A file is not opened anew: a process that shares it goes on where the command stopped.
#[test]
fn a_file_on_standard_input_is_shared() {
    let dir = Dir::new();
    fs::write(dir.path("in"), "abcdef").expect("write");
    let file = fs::File::open(dir.path("in")).expect("open");
    let mut command = distlock_here(&["run", &key(), "--", "dd", "bs=1", "count=3", "status=none"]);
    command.stdin(file.try_clone().expect("a second handle"));
    assert_eq!(ran(command).ends_with(0).stdout, "abc");
    assert_eq!(std::io::read_to_string(file).expect("read"), "def");
}

#[test]
fn its_environment_and_directory() {
    let (key, dir) = (key(), Dir::new());
    let script = r#"echo "$DISTLOCK_KEY|$DISTLOCK_KEYS|$DISTLOCK_HELD|$MINE"; pwd; echo "$DISTLOCK_FENCING_TOKEN""#;
    let mut command = distlock_here(&["run", &key, "zz", &key, "--", "sh", "-c", script]);
    command.current_dir(dir.path("")).env("MINE", "kept");
    let ran = ran(command).ends_with(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], format!("{key}|distlock:lock:{{{key}}}"));
    assert_eq!(lines[1], "distlock:lock:{zz}|1|kept");
    let here = dir.path("").canonicalize().expect("a path");
    assert_eq!(lines[2], here.display().to_string().trim_end_matches('/'));
    assert!(lines[3].parse::<u64>().expect("a number") > 0);
}

#[test]
fn later_runs_have_higher_fencing_tokens() {
    let key = key();
    let token = || {
        let ran = ran(distlock_here(&["run", &key, "--", "printenv", "DISTLOCK_FENCING_TOKEN"]));
        ran.ends_with(0).stdout.trim().parse::<u64>().expect("a number")
    };
    let first = token();
    assert!(token() > first);
}

/// No file of this program's is open in it: standard streams and what they are, no more.
#[test]
#[cfg(target_os = "linux")]
fn no_other_file_is_open_in_it() {
    let script = "ls /proc/$$/fd";
    let ran = ran(distlock_here(&["run", &key(), "--", "sh", "-c", script])).ends_with(0);
    // What the tests themselves were started with is inherited.
    let mut alone = std::process::Command::new("sh");
    let alone = alone.args(["-c", script]).stdin(Stdio::null()).output().expect("start sh");
    assert_eq!(ran.stdout, String::from_utf8_lossy(&alone.stdout));
}

#[test]
fn keys_may_be_any_text() {
    for key in ["with spaces", "a:b:c", "{tag}:x", "ключ", "-", "run", "100%", "a*b?"] {
        ran(distlock_here(&["run", key, "--", "true"])).ends_with(0);
    }
    let long = "x".repeat(5000);
    ran(distlock_here(&["run", &long, "--", "true"])).ends_with(64).says(&["4096"]);
}

#[test]
fn the_lock_is_held_while_it_runs_and_no_longer() {
    let key = key();
    let tool = Tool::start(distlock_here(&["run", &key, "second", "--", "sleep", "600"]));
    wait_until_held(&SERVER, "second");
    assert!(is_held(&SERVER, &key));
    tool.signal(rustix::process::Signal::TERM);
    tool.ended().ends_with(143);
    assert!(!is_held(&SERVER, &key) && !is_held(&SERVER, "second"));
}

/// A daemon that it leaves keeps neither the lock nor this program.
#[test]
fn a_daemon_does_not_keep_the_lock() {
    let (key, dir) = (key(), Dir::new());
    let script = format!("sleep 600 >/dev/null 2>&1 & echo $! > {}", dir.text_of("pid"));
    ran(distlock_here(&["run", &key, "--", "sh", "-c", &script])).ends_with(0);
    assert!(!is_held(&SERVER, &key));
    let daemon = dir.pid("pid");
    assert!(is_alive(daemon), "what ends by itself may leave a daemon");
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).expect("kill");
}

#[test]
fn runs_take_turns() {
    let (key, dir) = (key(), Dir::new());
    let log = dir.text_of("log");
    let script = format!("echo in >> {log}; sleep 0.05; echo out >> {log}");
    let run =
        || Tool::start(distlock_here(&["run", "-w", "forever", &key, "--", "sh", "-c", &script]));
    let tools: Vec<Tool> = (0..6).map(|_| run()).collect();
    tools.into_iter().for_each(|tool| drop(tool.ended().ends_with(0)));
    assert_eq!(dir.read("log"), "in\nout\n".repeat(6));
}

#[test]
fn min_hold_keeps_the_lock_of_a_quick_command() {
    let key = key();
    ran(distlock_here(&["run", "--min-hold", "60s", &key, "--", "true"])).ends_with(0);
    assert!(is_held(&SERVER, &key));
    ran(distlock_here(&["run", &key, "--", "true"])).ends_with(75);
}

#[test]
fn verbose_says_what_happens_and_json_says_it_to_programs() {
    let key = key();
    let said = ran(distlock_here(&["run", "-v", &key, "--", "true"])).ends_with(0);
    said.says(&["holds", "fencing token", "released"]);
    let json = ran(distlock_here(&["run", "-v", "--json", &key, "--", "sh", "-c", "exit 3"]));
    let json = json.ends_with(3);
    let events: Vec<serde_json::Value> = json
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["acquired", "ended", "released"]);
    assert_eq!(events[1]["exit_code"], 3);
    let silent = ran(distlock_here(&["run", &key, "--", "true"])).ends_with(0);
    assert_eq!(silent.stderr, "", "when all is well it says nothing");
}

#[test]
fn locks_in_memory_are_taken_with_a_word_of_warning() {
    let ran = ran(distlock(&["run", "-u", "memory://", "k", "--", "true"])).ends_with(0);
    ran.says(&["nobody else"]);
}

#[test]
fn the_prefix_is_the_librarys() {
    let key = key();
    let mut command = distlock_here(&["run", &key, "--", "sleep", "600"]);
    command.env("DISTLOCK_PREFIX", "shop");
    let tool = Tool::start(command);
    let name = format!("shop:lock:{{{key}}}");
    wait_until("the lock is held", || ask::<u64>(&SERVER, &["EXISTS", &name]) == 1);
    ran(distlock_here(&["run", "--prefix", "shop", &key, "--", "true"])).ends_with(75);
    ran(distlock_here(&["run", &key, "--", "true"])).ends_with(0);
    drop(tool);
    // Empty is none, as in the library.
    let mut command = distlock_here(&["run", "k", "--", "printenv", "DISTLOCK_KEYS"]);
    command.env("DISTLOCK_PREFIX", "");
    assert_eq!(ran(command).ends_with(0).stdout, "lock:{k}\n");
}
