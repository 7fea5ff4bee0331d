//! What the server says of itself.

use std::collections::HashSet;

use crate::RedisServer;

/// The connections of managers by their numbers; the test's own go over the unix socket.
#[track_caller]
pub fn clients(server: &RedisServer) -> HashSet<String> {
    let list: String = server.cli(&["CLIENT", "LIST"]);
    let of_managers = list.lines().filter(|client| client.contains("addr=127.0.0.1:"));
    of_managers.filter_map(|client| client.split(' ').next()).map(str::to_owned).collect()
}

/// How many connections of managers the server has.
#[track_caller]
pub fn connections(server: &RedisServer) -> usize {
    clients(server).len()
}

/// A whole number from `INFO`, of any of its sections.
#[track_caller]
pub fn info(server: &RedisServer, field: &str) -> u64 {
    let info: String = server.cli(&["INFO", "all"]);
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).expect("a number in INFO")
}

/// How often the server has run a command, inside scripts too.
#[track_caller]
pub fn runs(server: &RedisServer, command: &str) -> u64 {
    let info: String = server.cli(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let calls = info.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number in INFO"))
}
