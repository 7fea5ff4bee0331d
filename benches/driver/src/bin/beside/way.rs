//! What takes locks.

use std::sync::Arc;
use std::time::Duration;

use distlock::LockManager;
use distlock_testkit::{LONG, connect};
use tokio_postgres::{Client, NoTls};

use crate::server::Server;

#[derive(Clone)]
pub(crate) enum Way {
    Distlock,
    Advisory,
    ForUpdate,
    Peer { name: String, command: String },
}

impl Way {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Distlock => "distlock",
            Self::Advisory => "pg_advisory_lock",
            Self::ForUpdate => "SELECT … FOR UPDATE",
            Self::Peer { name, .. } => name,
        }
    }
}

/// A manager, which many tasks share, or a connection, which belongs to one.
#[derive(Clone)]
pub(crate) enum Locker {
    Manager(LockManager),
    Advisory(Arc<Client>),
    ForUpdate(Arc<Client>),
}

impl Locker {
    pub(crate) async fn new(way: &Way, server: &Server) -> Self {
        match way {
            Way::Distlock => Self::Manager(connect(&server.url()).await),
            Way::Advisory => Self::Advisory(client(&server.url()).await),
            Way::ForUpdate => Self::ForUpdate(client(&server.url()).await),
            Way::Peer { .. } => panic!("it is a process of its own"),
        }
    }

    /// Takes a lock, runs the body, and gives it back.
    pub(crate) async fn lock(&self, key: usize, body: Duration) {
        let sql = async |client: &Client, text: String| {
            client.simple_query(&text).await.expect("it is carried out");
        };
        match self {
            Self::Manager(manager) => {
                let request = manager.lock(format!("bench-{key}")).wait(LONG);
                request.run(held(body)).await.expect("its turn comes");
            }
            Self::Advisory(client) => {
                sql(client, format!("SELECT pg_advisory_lock({key})")).await;
                held(body).await;
                sql(client, format!("SELECT pg_advisory_unlock({key})")).await;
            }
            Self::ForUpdate(client) => {
                sql(client, "BEGIN".into()).await;
                sql(client, format!("SELECT id FROM bench WHERE id = {key} FOR UPDATE")).await;
                held(body).await;
                sql(client, "COMMIT".into()).await;
            }
        }
    }
}

/// A body of that length. Timers of Tokio end up to two milliseconds later, which would be most of it.
async fn held(body: Duration) {
    if !body.is_zero() {
        let slept = tokio::task::spawn_blocking(move || std::thread::sleep(body)).await;
        slept.expect("a thread that sleeps");
    }
}

async fn client(url: &str) -> Arc<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    Arc::new(client)
}
