//! What cannot be used is refused with the mend, and with 64.

use distlock_testkit::RedisServer;
use rustix::process::Signal;

use crate::support::{Dir, SERVER, Tool, distlock, distlock_here, is_held, key, ran};

#[test]
fn mistakes_in_the_command_line() {
    let key = key();
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["runn", &key, "--", "true"], "'run'"),
        (&["run"], "distlock run KEY -- COMMAND"),
        (&["run", &key], "distlock run KEY -- COMMAND"),
        (&["run", &key, "true"], "behind `--`"),
        (&["run", &key, "ls", "-l"], "behind `--`"),
        (&["run", &key, "-c", "a | b"], "-- sh -c"),
        (&["run", &key, "--nowait", "--", "true"], "--no-wait"),
        (&["run", &key, "--"], "COMMAND"),
        (&["run", "--", "true"], "KEY"),
        (&["run", "-x", "--", "true"], "--key=-KEY"),
        (&["run", "--", "-x", "--", "true"], "--key=-KEY"),
        (&["run", "", "--", "true"], "empty"),
        (&["run", "a\nb", "--", "true"], "line break"),
        (&["run", "--ttl", "5", &key, "--", "true"], "`5s`"),
        (&["run", "--ttl", "soon", &key, "--", "true"], "such as `5s`"),
        (&["run", "--ttl", "0", &key, "--", "true"], "100ms"),
        (&["run", "--ttl", "99ms", &key, "--", "true"], "100ms"),
        (&["run", "--ttl", "-5s", &key, "--", "true"], "not negative"),
        (&["run", "--ttl", "1000years", &key, "--", "true"], "365 days"),
        (&["run", "--ttl", &key, "--", "true"], "such as `5s`"),
        (&["run", "--wait", "10", &key, "--", "true"], "`10s`"),
        (&["run", "--wait", "for ever", &key, "--", "true"], "`forever`"),
        (&["run", "--wait=", &key, "--", "true"], "such as `5s`"),
        (&["run", "--wait", "1s", "--no-wait", &key, "--", "true"], "--no-wait"),
        (&["run", "--grace", "15s", &key, "--", "true"], "half of the ttl"),
        (
            &["run", "--min-hold", "2s", "--max-hold", "1s", &key, "--", "true"],
            "--min-hold: must not be longer than --max-hold",
        ),
        (&["run", "--shared", "--permits", "2", &key, "--", "true"], "--permits"),
        (&["run", "--permits", "0", &key, "--", "true"], "0 is not in 1"),
        (&["run", "--permits", "many", &key, "--", "true"], "many"),
        (&["run", "--permits", "2", &key, "other", "--", "true"], "--permits: not with several"),
        (&["run", "-E", "256", &key, "--", "true"], "256"),
        (&["run", "-E", "x", &key, "--", "true"], "'x'"),
        (&["run", "--on-lost", "panic", &key, "--", "true"], "terminate"),
        (&["run", "-q", "-v", &key, "--", "true"], "--verbose"),
        (&["run", "--timeout", "5s", &key, "--", "true"], "--wait DURATION"),
        (&["run", "--nonblock", &key, "--", "true"], "--no-wait"),
        (&["-q", "run", &key, "--", "true"], "distlock run -q"),
        (&["run", "--prefix", "{x}", &key, "--", "true"], "prefix"),
        (&["run", "-u", "http://localhost", &key, "--", "true"], "unknown scheme"),
        (&["run", "-u", "", &key, "--", "true"], "--url is empty"),
        (&["run", "-u", "localhost:6379", &key, "--", "true"], "no scheme"),
        (&["run", "-u", "redis://:hunter2@h:99999/", &key, "--", "true"], "65535"),
        (&["inspect"], "KEY"),
        (&["inspect", &key, "other"], "other"),
        (&["ls", "--limit", "many"], "many"),
        (&["ls", "--limit", "0"], "0 is not in 1"),
        (&["completions", "cmd.exe"], "bash"),
    ];
    for (args, words) in cases {
        let ran = ran(distlock_here(args));
        assert_eq!(ran.code, Some(64), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{args:?}: {ran:?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
    }
    assert!(!is_held(&SERVER, &key));
}

/// Whatever a script has found: where it is to be a key it is one.
#[test]
fn keys_that_look_like_options() {
    for args in [
        &["run", "--key=-x", "--", "printenv", "DISTLOCK_KEY"][..],
        &["run", "-k", "-x", "--", "printenv", "DISTLOCK_KEY"],
        &["run", "--key", "-x", &key(), "--", "printenv", "DISTLOCK_KEY"],
    ] {
        assert_eq!(ran(distlock_here(args)).ends_with(0).stdout, "-x\n", "{args:?}");
    }
    let free = ran(distlock_here(&["inspect", "--", "-x"])).ends_with(0);
    assert_eq!(free.stdout, "\"-x\" is free\n");
    ran(distlock_here(&["release", "--force", "--", "--x"]))
        .ends_with(1)
        .says(&["\"--x\" is free"]);
    // Of another command there is nothing better to say.
    ran(distlock_here(&["inspect", "-x"])).ends_with(64).says(&["-- -x"]);
}

#[test]
fn a_store_must_be_named() {
    ran(distlock(&["run", "k", "--", "true"])).ends_with(64).says(&["--url", "DISTLOCK_URL"]);
    let mut empty = distlock(&["run", "k", "--", "true"]);
    empty.env("DISTLOCK_URL", "");
    ran(empty).ends_with(64).says(&["DISTLOCK_URL"]);
}

#[test]
fn the_url_of_the_command_line_counts() {
    for args in [
        ["-u", &SERVER.url(), "run", "k1", "--", "true"],
        ["run", "-u", &SERVER.url(), "k1", "--", "true"],
    ] {
        let mut command = distlock(&args);
        command.env("DISTLOCK_URL", "redis://127.0.0.1:1");
        ran(command).ends_with(0);
    }
    let unix = SERVER.unix_url();
    ran(distlock(&["run", &key(), "-u", &unix, "--", "true"])).ends_with(0);
}

#[test]
fn help_says_what_people_look_for() {
    let help = ran(distlock(&["--help"])).ends_with(0);
    assert!(help.stdout.contains("run") && help.stdout.contains("inspect"), "{help:?}");
    let help = ran(distlock(&["run", "--help"])).ends_with(0);
    for words in
        ["Does not wait by default", "75", "79", "127", "DISTLOCK_FENCING_TOKEN", "--skip-if-held"]
    {
        assert!(help.stdout.contains(words), "{words}: {}", help.stdout);
    }
    let version = ran(distlock(&["--version"])).ends_with(0);
    assert!(version.stdout.starts_with("distlock "), "{version:?}");
}

/// Help must not show what the environment holds.
#[test]
fn help_shows_no_password() {
    let mut command = distlock(&["run", "--help"]);
    command.env("DISTLOCK_URL", "redis://:hunter2@localhost");
    assert!(!ran(command).ends_with(0).stdout.contains("hunter2"));
}

/// All users of a machine see the arguments of all processes.
#[test]
#[cfg(target_os = "linux")]
fn a_password_does_not_stay_on_the_command_line() {
    let server = RedisServer::builder().password("hunter2").start();
    let url = format!("redis://:hunter2@{}", server.addr());
    let args =
        |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    for given in [&["-u", &url][..], &[&format!("--url={url}")], &[&format!("-u{url}")]] {
        let (key, dir) = (key(), Dir::new());
        let script = format!("env; echo $PPID > {}; exec sleep 600", dir.text_of("guardian"));
        let tool = Tool::start(distlock(
            &[&["run", "-t", "60s"], given, &[&key, "--", "sh", "-c", &script]].concat(),
        ));
        let guardian = dir.pid("guardian").as_raw_pid();
        for process in [tool.pid().as_raw_pid(), guardian] {
            assert!(args(process).starts_with("distlock") || args(process).contains("/distlock\0"));
            assert!(!args(process).contains("hunter2"), "{given:?}: {}", args(process));
        }
        tool.signal(Signal::TERM);
        let ran = tool.ended().ends_with(143);
        assert!(ran.stdout.contains(&key) && !ran.stdout.contains("hunter2"), "{ran:?}");
    }
    // What stands behind `--` is the command's.
    let ran = ran(distlock(&["run", "-u", &url, &key(), "--", "echo", &url])).ends_with(0);
    assert_eq!(ran.stdout.trim(), url);
    let wrong = url.replace("hunter2", "hunter3");
    let ran = crate::support::ran(distlock(&["ls", "-u", &wrong])).ends_with(69);
    assert!(!ran.stderr.contains("hunter3"), "{ran:?}");
}
