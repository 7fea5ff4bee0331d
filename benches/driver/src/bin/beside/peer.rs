//! A driver in a process of its own.
//!
//! It is given `--addr HOST:PORT --clients N --tasks N --keys N --body-us N --seconds N`, writes `READY` when its
//! clients are connected and warm, begins when it reads a line, and then writes one line, `TOOK_US WORST_US LOCKS LOCKS …`:
//! how long it took, the longest wait for a lock and its body, and the locks of each task.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::figures::{Counts, Tasks};
use crate::server::Server;
use crate::shape::{Shape, WHILE};

/// What its tasks had, how many connections there were, and what was written.
pub(crate) fn run(command: &str, shape: &Shape, server: &Server) -> (Tasks, u64, Counts) {
    let mut peer = Command::new("sh");
    peer.arg("-c").arg(format!(
        "exec {command} --addr {} --clients {} --tasks {} --keys {} --body-us {} --seconds {}",
        server.addr(),
        shape.clients,
        shape.tasks,
        shape.keys,
        shape.body.as_micros(),
        WHILE.as_secs(),
    ));
    let mut child = peer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start sh");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut line = || lines.next().expect("the driver ended without an answer").expect("text");
    while line() != "READY" {}
    let before = Counts::of(server);
    child.stdin.take().expect("its input").write_all(b"GO\n").expect("it listens");
    thread::sleep(WHILE / 2);
    let connections = server.connections();
    let answer = line();
    let counts = Counts::of(server).since(&before);
    let mut numbers = answer.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
    let mut time = || Duration::from_micros(numbers.next().expect("a time"));
    let (took, worst) = (time(), time());
    let locks = numbers.collect();
    assert!(child.wait().expect("wait for a driver").success(), "{command} failed");
    (Tasks { locks, worst, took }, connections, counts)
}
