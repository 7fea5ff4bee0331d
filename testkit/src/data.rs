//! What locks protect, and connections to it.

use std::cell::RefCell;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use crate::{RedisServer, wait_until};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection of the test's own to the data at `url`. A command may take long on it: the data is
/// not what is under test. Panics if no server answers there.
pub async fn data_at(url: &str) -> MultiplexedConnection {
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = Client::open(url).expect("a URL");
    client.get_multiplexed_async_connection_with_config(&patient).await.expect("connect")
}

/// What locks protect: values in a database of their own, read and written past the manager, by this
/// process and its children.
pub struct Data(RefCell<redis::Connection>);

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
    pub const URL: &str = "DATA_URL";

    /// In another database of the server that has the locks.
    pub fn of(server: &RedisServer) -> Self {
        Self::at(&server.url_of_db(1))
    }

    /// What the process that started this one works on; see [`environment`].
    pub fn of_parent() -> Self {
        Self::at(&std::env::var(Self::URL).expect("where the data is"))
    }

    fn at(url: &str) -> Self {
        let client = Client::open(url).expect("a URL");
        Self(RefCell::new(client.get_connection().expect("connect")))
    }

    /// Sends one command.
    #[track_caller]
    pub fn run<T: redis::FromRedisValue>(&self, args: &[&str]) -> T {
        let mut connection = self.0.borrow_mut();
        redis::cmd(args[0]).arg(&args[1..]).query(&mut *connection).expect("a command on the data")
    }

    /// The value of that name, if there is one.
    pub fn get(&self, name: &str) -> Option<String> {
        self.run(&["GET", name])
    }

    /// A write that checks nothing.
    pub fn set(&self, name: &str, value: &str) {
        self.run::<()>(&["SET", name, value]);
    }

    /// Waits until the value of that name is this.
    #[track_caller]
    pub fn wait_until_is(&self, name: &str, value: &str) {
        wait_until(value, || self.get(name).as_deref() == Some(value));
    }

    /// A write that checks the fencing token; false if it was refused.
    pub fn write_fenced(&self, name: &str, token: u64, value: &str) -> bool {
        self.run(&["EVAL", FENCED_WRITE, "1", name, &token.to_string(), value])
    }

    /// What the last write that was not refused has written.
    pub fn read_fenced(&self, name: &str) -> Option<String> {
        self.run(&["HGET", name, "value"])
    }
}

/// The environment of a child whose process-wide manager and data are on this server.
pub fn environment(server: &RedisServer) -> [(&'static str, String); 2] {
    [("DISTLOCK_URL", server.url()), (Data::URL, server.url_of_db(1))]
}
