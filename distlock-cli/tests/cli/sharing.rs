//! `--shared` and `--permits`: commands that hold one lock at the same time.

use distlock_testkit::wait_until;

use crate::support::{SERVER, Tool, ask, distlock_here, is_held, key, lock_of, ran};

/// A command that holds the lock of `key` until it is killed.
fn holds(options: &[&str], key: &str) -> Tool {
    let command = ["--", "sleep", "600"];
    Tool::start(distlock_here(&[&["run"], options, &[key], &command].concat()))
}

/// How many hold the lock together.
fn together(key: &str) -> u64 {
    match ask::<String>(&SERVER, &["TYPE", &lock_of(key)]).as_str() {
        "zset" => ask(&SERVER, &["ZCARD", &lock_of(key)]),
        _ => 0,
    }
}

fn ends(tool: Tool) {
    tool.signal(rustix::process::Signal::TERM);
    tool.ended().ends_with(143);
}

#[test]
fn readers_run_together_and_a_writer_alone() {
    let key = key();
    let one = holds(&["-s"], &key);
    let other = holds(&["--shared"], &key);
    wait_until("both read", || together(&key) == 2);
    ran(distlock_here(&["run", &key, "--", "true"])).ends_with(75).says(&["is held elsewhere"]);
    ends(one);
    wait_until("one reads", || together(&key) == 1);
    let writer = Tool::start(distlock_here(&["run", "-w", "60s", &key, "--", "true"]));
    let queue = format!("distlock:queue:{{{key}}}");
    wait_until("the writer waits", || ask::<u64>(&SERVER, &["ZCARD", &queue]) == 1);
    // Behind a writer that waits: it came later.
    ran(distlock_here(&["run", "-s", &key, "--", "true"])).ends_with(75);
    ends(other);
    writer.ended().ends_with(0);
    ran(distlock_here(&["run", "-s", &key, "--", "true"])).ends_with(0);
    assert!(!is_held(&SERVER, &key));
}

#[test]
fn as_many_as_there_are_permits() {
    let key = key();
    let two = ["--permits", "2"];
    let holders = [holds(&two, &key), holds(&two, &key)];
    wait_until("both have one", || together(&key) == 2);
    let refused = ran(distlock_here(&[&["run"], &two[..], &[&key, "--", "true"]].concat()));
    refused.ends_with(75).says(&["all 2 permits", "are taken"]);
    // A caller that allows more is let in; one that wants the lock alone is not.
    ran(distlock_here(&["run", "--permits", "3", &key, "--", "true"])).ends_with(0);
    ran(distlock_here(&["run", &key, "--", "true"])).ends_with(75);
    holders.into_iter().for_each(ends);
    ran(distlock_here(&[&["run"], &two[..], &[&key, "--", "true"]].concat())).ends_with(0);
    assert!(!is_held(&SERVER, &key));
}
