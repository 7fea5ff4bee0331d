//! What takes locks.

use std::sync::Arc;

use distlock::LockManager;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script};

#[derive(Clone)]
pub(crate) enum Locker {
    Manager(LockManager),
    /// `SET NX` and `DEL`, which frees the lock whichever client holds it by then.
    Raw(Raw),
    /// `SET NX` and `INCR` in one write, and a script that deletes what is its own: the least that is a lock with a
    /// fencing token.
    Checked(Raw),
}

const DELETE_OWN: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A connection to each of some servers, which have keys in turn.
#[derive(Clone)]
pub(crate) struct Raw {
    servers: Vec<MultiplexedConnection>,
    delete_own: Arc<Script>,
}

impl Raw {
    pub(crate) async fn to(urls: impl IntoIterator<Item = String>) -> Self {
        let mut servers = Vec::new();
        for url in urls {
            let client = redis::Client::open(url).expect("a URL");
            servers.push(client.get_multiplexed_async_connection().await.expect("connect"));
        }
        Self { servers, delete_own: Arc::new(Script::new(DELETE_OWN)) }
    }

    fn server(&self, number: usize) -> MultiplexedConnection {
        self.servers[number % self.servers.len()].clone()
    }
}

fn set(name: &str) -> Cmd {
    let mut set = redis::cmd("SET");
    set.arg(name).arg("token").arg("NX").arg("PX").arg(30_000);
    set
}

impl Locker {
    /// Takes the lock of the key with this number, which is free, and gives it back.
    pub(crate) async fn lock(&self, number: usize, key: &str) {
        match self {
            Self::Manager(manager) => {
                manager.lock(key).run(async {}).await.expect("it is free");
            }
            Self::Raw(raw) => {
                let (mut server, name) = (raw.server(number), format!("raw:{{{key}}}"));
                let taken: Option<String> = set(&name).query_async(&mut server).await.expect("SET");
                assert!(taken.is_some(), "it is free");
                let mut del = redis::cmd("DEL");
                del.arg(&name).query_async::<()>(&mut server).await.expect("DEL");
            }
            Self::Checked(raw) => {
                let (mut server, name) = (raw.server(number), format!("raw:{{{key}}}"));
                let mut take = redis::pipe();
                take.add_command(set(&name)).cmd("INCR").arg(format!("fence:{{{key}}}"));
                let (taken, _): (Option<String>, u64) =
                    take.query_async(&mut server).await.expect("SET and INCR");
                assert!(taken.is_some(), "it is free");
                let mut delete = raw.delete_own.key(&name);
                let deleted: u32 =
                    delete.arg("token").invoke_async(&mut server).await.expect("EVALSHA");
                assert_eq!(deleted, 1, "it is its own");
            }
        }
    }

    pub(crate) fn manager(&self) -> &LockManager {
        match self {
            Self::Manager(manager) => manager,
            Self::Raw(_) | Self::Checked(_) => panic!("it has none"),
        }
    }
}
