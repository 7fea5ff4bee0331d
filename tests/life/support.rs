//! What these tests have in common.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use distlock::{LockError, LockManager, WakeUps};
use distlock_testkit::{RedisServer, wait_until};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Longer than any test: a lock with this ttl is not gone by itself.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Where the lock of a key is stored.
pub(crate) fn stored(key: &str) -> String {
    format!("distlock:lock:{{{key}}}")
}

/// A manager that has all its connections: the one for wake-ups is made in the background. It is
/// patient: what takes long on a busy machine is no fault.
pub(crate) async fn connect(server: &RedisServer) -> LockManager {
    let builder = LockManager::builder().url(server.url()).command_timeout(10 * SECOND);
    let manager = builder.connect_timeout(30 * SECOND).connect().await.expect("connect");
    wait_until("it can be told", || manager.status().wake_ups == WakeUps::Notified);
    manager
}

#[track_caller]
pub(crate) fn assert_lost<T: std::fmt::Debug>(result: Result<T, LockError>) {
    assert!(result.as_ref().is_err_and(LockError::is_lost), "{result:?}");
}

#[track_caller]
pub(crate) fn assert_busy<T: std::fmt::Debug>(result: Result<T, LockError>) {
    assert!(result.as_ref().is_err_and(LockError::is_busy), "{result:?}");
}

/// The owner token stored for a key.
pub(crate) fn owner(server: &RedisServer, key: &str) -> Option<String> {
    server.cli(&["GET", &stored(key)])
}

/// Milliseconds that the key of a lock still lives.
pub(crate) fn ttl_of(server: &RedisServer, key: &str) -> i64 {
    server.cli(&["PTTL", &stored(key)])
}

#[track_caller]
pub(crate) fn nothing_is_left(server: &RedisServer) {
    wait_until("no key is left", || server.lock_keys().is_empty());
}

/// Has everything that `manager` sent so far answered, releases of dropped futures included.
pub(crate) async fn settle(manager: &LockManager) {
    let probe = manager.lock("settle").acquire().await.expect("the probe");
    probe.release().await.expect("the probe's release");
}

/// True from its making until it is dropped, as a body's locals are.
pub(crate) struct Running<'a>(&'a AtomicBool);

impl<'a> Running<'a> {
    pub(crate) fn new(flag: &'a AtomicBool) -> Self {
        flag.store(true, SeqCst);
        Self(flag)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// What locks protect in these tests: values in a database of their own, read and written past the
/// manager, by this process and its children.
pub(crate) struct Data(RefCell<redis::Connection>);

/// Refuses a token that is smaller than the largest one seen. Tokens are compared as texts of
/// digits: a number in Lua does not tell two large neighbours apart.
const FENCED_WRITE: &str = "
local last = redis.call('HGET', KEYS[1], 'fence') or '0'
local mine = ARGV[1]
if #mine < #last or (#mine == #last and mine < last) then return 0 end
redis.call('HSET', KEYS[1], 'fence', mine, 'value', ARGV[2])
return 1";

impl Data {
    /// The name of the environment variable by which a child finds it.
    pub(crate) const URL: &str = "DATA_URL";

    pub(crate) fn of(server: &RedisServer) -> Self {
        Self::at(&server.url_of_db(1))
    }

    pub(crate) fn of_parent() -> Self {
        Self::at(&std::env::var(Self::URL).expect("where the data is"))
    }

    fn at(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a URL");
        Self(RefCell::new(client.get_connection().expect("connect")))
    }

    pub(crate) fn run<T: redis::FromRedisValue>(&self, args: &[&str]) -> T {
        let mut connection = self.0.borrow_mut();
        redis::cmd(args[0]).arg(&args[1..]).query(&mut *connection).expect("a command on the data")
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.run(&["GET", name])
    }

    pub(crate) fn set(&self, name: &str, value: &str) {
        self.run::<()>(&["SET", name, value]);
    }

    #[track_caller]
    pub(crate) fn wait_until_is(&self, name: &str, value: &str) {
        wait_until(value, || self.get(name).as_deref() == Some(value));
    }

    /// A write that checks the fencing token; false if it was refused.
    pub(crate) fn write_fenced(&self, name: &str, token: u64, value: &str) -> bool {
        self.run(&["EVAL", FENCED_WRITE, "1", name, &token.to_string(), value])
    }

    pub(crate) fn read_fenced(&self, name: &str) -> Option<String> {
        self.run(&["HGET", name, "value"])
    }
}

/// The environment of a child whose process-wide manager and data are on this server.
pub(crate) fn environment(server: &RedisServer) -> [(&'static str, String); 2] {
    [("DISTLOCK_URL", server.url()), (Data::URL, server.url_of_db(1))]
}
