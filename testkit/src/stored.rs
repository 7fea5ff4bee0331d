//! What the server has of locks with the prefix `distlock`, seen past every proxy.

use crate::{RedisServer, wait_until};

/// Where the lock of `key` is stored.
pub fn stored(key: &str) -> String {
    format!("distlock:lock:{{{key}}}")
}

/// The token that owns the lock of `key`.
#[track_caller]
pub fn owner(server: &RedisServer, key: &str) -> Option<String> {
    server.cli(&["GET", &stored(key)])
}

/// Milliseconds that the key of a lock still lives.
#[track_caller]
pub fn ttl_of(server: &RedisServer, key: &str) -> i64 {
    server.cli(&["PTTL", &stored(key)])
}

/// The tokens in the queue of `key`, in order.
#[track_caller]
pub fn queue(server: &RedisServer, key: &str) -> Vec<String> {
    server.cli(&["ZRANGE", &format!("distlock:queue:{{{key}}}"), "0", "-1"])
}

/// Waits until `n` processes stand in the queue of `key`.
#[track_caller]
pub fn stand(server: &RedisServer, key: &str, n: usize) {
    wait_until("they stand in the queue", || queue(server, key).len() == n);
}

/// Waits until no lock is held, there is no waiter, and nothing is left of earlier ones.
#[track_caller]
pub fn nothing_is_left(server: &RedisServer) {
    wait_until("no key is left", || server.lock_keys().is_empty());
}
