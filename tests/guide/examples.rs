//! The examples of the page on readers, writers and permits come to what it says, in memory and on a
//! server.

use std::process::Command;

use distlock_testkit::{PostgresServer, RedisServer};

use crate::example;

/// What an example prints with these options, a line each, without those that are not figures.
fn figures(name: &str, options: &[&str], url: Option<&str>) -> Vec<Vec<String>> {
    let mut command = Command::new(example(name));
    command.args(options).env_remove("DISTLOCK_URL");
    if let Some(url) = url {
        command.env("DISTLOCK_URL", url);
    }
    let output = command.output().expect("it starts");
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    assert!(!said.contains("please report"), "{said}");
    let is_figure = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let row = |line: &str| line.split_whitespace().filter(is_figure).map(str::to_owned).collect();
    said.lines().filter(|line| line.ends_with(" s")).map(row).collect()
}

fn in_memory_and_on_a_server(check: impl Fn(Option<&str>)) {
    check(None);
    check(Some(&RedisServer::start().url()));
}

#[test]
fn report_cache() {
    in_memory_and_on_a_server(|url| {
        let rows = figures("report_cache", &["--instances", "3", "--readers", "8"], url);
        let [_, exclusive, shared] = &rows[..] else { panic!("{rows:?}") };
        // Served, rebuilt, torn, at once.
        assert_eq!((&*exclusive[0], &*exclusive[2], &*exclusive[3]), ("120", "0", "1"), "{rows:?}");
        assert_eq!((&*shared[0], &*shared[2]), ("120", "0"), "{rows:?}");
        let at_once: u32 = shared[3].parse().expect("a number");
        assert!(at_once > 8, "readers of several instances are not together: {rows:?}");
    });
}

#[test]
fn api_quota() {
    in_memory_and_on_a_server(|url| {
        let rows = figures("api_quota", &["--at-once", "4", "--calls", "60"], url);
        let [free, _, permits] = &rows[..] else { panic!("{rows:?}") };
        // Answered, refused, at once.
        assert_ne!(free[1], "0", "without a limit it is not exceeded: {rows:?}");
        assert_eq!((&*permits[0], &*permits[1], &*permits[2]), ("60", "0", "4"), "{rows:?}");
    });
}

#[test]
fn on_postgres() {
    let server = PostgresServer::start();
    let output =
        Command::new(example("on_postgres")).arg(server.url()).output().expect("it starts");
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    assert_eq!(said.trim(), "order 7 is paid, and then once more: order 7 is paid");
}
