//! What takes locks.

use distlock::LockManager;
use redis::aio::MultiplexedConnection;

#[derive(Clone)]
pub(crate) enum Locker {
    Manager(LockManager),
    Raw(Raw),
}

/// A connection to each of some servers, which have keys in turn.
#[derive(Clone)]
pub(crate) struct Raw {
    servers: Vec<MultiplexedConnection>,
}

impl Raw {
    pub(crate) async fn to(urls: impl IntoIterator<Item = String>) -> Self {
        let mut servers = Vec::new();
        for url in urls {
            let client = redis::Client::open(url).expect("a URL");
            servers.push(client.get_multiplexed_async_connection().await.expect("connect"));
        }
        Self { servers }
    }
}

impl Locker {
    /// Takes the lock of the key with this number, which is free, and gives it back.
    pub(crate) async fn lock(&self, number: usize, key: &str) {
        match self {
            Self::Manager(manager) => {
                manager.lock(key).run(async {}).await.expect("it is free");
            }
            Self::Raw(raw) => {
                let mut server = raw.servers[number % raw.servers.len()].clone();
                let name = format!("raw:{{{key}}}");
                let mut set = redis::cmd("SET");
                set.arg(&name).arg("token").arg("NX").arg("PX").arg(30_000);
                let taken: Option<String> = set.query_async(&mut server).await.expect("SET");
                assert!(taken.is_some(), "it is free");
                let mut del = redis::cmd("DEL");
                del.arg(&name).query_async::<()>(&mut server).await.expect("DEL");
            }
        }
    }

    pub(crate) fn manager(&self) -> &LockManager {
        match self {
            Self::Manager(manager) => manager,
            Self::Raw(_) => panic!("it has none"),
        }
    }
}
