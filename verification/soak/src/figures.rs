//! What server and process say of themselves.

use std::fs;
use std::time::Duration;

use distlock_testkit::{RedisServer, runs};

/// Everything that locks ever send.
pub(crate) fn lock_commands(server: &RedisServer) -> u64 {
    ["set", "incr", "pttl", "eval", "evalsha"].iter().map(|command| runs(server, command)).sum()
}

/// A figure from `INFO`, of any of its sections.
pub(crate) fn info<T: std::str::FromStr>(server: &RedisServer, field: &str) -> Option<T> {
    let info: String = server.cli(&["INFO", "all"]);
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok())
}

/// A field of this process's status, for example `Threads`.
pub(crate) fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

/// What this process has worked so far.
pub(crate) fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// What the server has worked so far, in seconds.
pub(crate) fn server_cpu(server: &RedisServer) -> f64 {
    let part = |field| info::<f64>(server, field).unwrap_or_default();
    part("used_cpu_user") + part("used_cpu_sys")
}
