//! What every story needs: a server, connections to it, and a count of who is in the body.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use distlock::LockManager;
use distlock_testkit::{PostgresServer, RedisServer, data_at, wait_for};
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio_postgres::{NoTls, SimpleQueryMessage};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Longer than any story takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The expiry of a lock whose holder is paused for longer than that.
pub(crate) const SHORT: Duration = Duration::from_millis(100);
/// The same with distlock, which gives no lock whose time was over before its answer came: long enough
/// for a machine with other work.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// A redis-server, a PostgreSQL server where one is needed, and keys that no other run has.
pub(crate) struct Stage {
    server: RedisServer,
    postgres: OnceLock<PostgresServer>,
    run: usize,
}

impl Stage {
    pub(crate) fn new(run: usize) -> Self {
        Self { server: RedisServer::start(), postgres: OnceLock::new(), run }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn key(&self, of: &str) -> String {
        format!("{of}:{}", self.run)
    }

    /// A process with a connection of its own.
    pub(crate) async fn redis(&self) -> Result<Redis, Error> {
        // By itself redis gives up on an answer after half a second, which a busy machine may take.
        Ok(Redis(data_at(&self.server.url()).await))
    }

    /// The same with distlock: a process with a manager of its own.
    pub(crate) async fn locks(&self) -> Result<LockManager, Error> {
        self.locks_at(&self.url()).await
    }

    pub(crate) async fn locks_at(&self, url: &str) -> Result<LockManager, Error> {
        let locks = LockManager::builder().url(url).command_timeout(Duration::from_secs(10));
        Ok(locks.connect().await?)
    }

    pub(crate) fn postgres(&self) -> &PostgresServer {
        self.postgres.get_or_init(PostgresServer::start)
    }

    /// A process with a connection to the database.
    pub(crate) async fn sql(&self) -> Result<Sql, Error> {
        self.sql_at(&self.postgres().url()).await
    }

    pub(crate) async fn sql_at(&self, url: &str) -> Result<Sql, Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // It ends with the client.
        tokio::spawn(connection);
        Ok(Sql(client))
    }
}

/// A connection. All clones share it, as tasks of one process do.
#[derive(Clone)]
pub(crate) struct Redis(MultiplexedConnection);

impl Redis {
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> Result<T, Error> {
        let mut asked = redis::cmd(command[0]);
        Ok(asked.arg(&command[1..]).query_async(&mut self.0.clone()).await?)
    }

    /// The lock of most tutorials: `SET key value NX PX expiry`; true if it is taken now.
    pub(crate) async fn set_nx(
        &self,
        key: &str,
        value: &str,
        expiry: Duration,
    ) -> Result<bool, Error> {
        let expiry = expiry.as_millis().to_string();
        let set: Option<String> = self.ask(&["SET", key, value, "NX", "PX", &expiry]).await?;
        Ok(set.is_some())
    }

    /// Returns when the server has let a key expire.
    pub(crate) async fn expired(&self, key: &str) {
        wait_for("the key expires", async || matches!(self.ask(&["EXISTS", key]).await, Ok(0)))
            .await;
    }
}

/// A connection to a database.
pub(crate) struct Sql(tokio_postgres::Client);

impl Sql {
    /// The first field of the first row, if there is one.
    pub(crate) async fn run(&self, text: &str) -> Result<Option<String>, Error> {
        let answer = self.0.simple_query(text).await?;
        let field = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(answer.iter().find_map(field))
    }
}

/// What happened, line by line, and who was in the body meanwhile.
#[derive(Default)]
pub(crate) struct Story(Mutex<Told>);

#[derive(Default)]
struct Told {
    lines: Vec<String>,
    inside: Vec<&'static str>,
    /// The largest number that was in the body at once.
    most: usize,
    /// Something else that went wrong.
    flaw: Option<&'static str>,
}

impl Story {
    pub(crate) fn tell(&self, who: &str, what: &str) {
        self.told().lines.push(format!("{who:4}{what}"));
    }

    /// It believes that it has the lock, and its body begins.
    pub(crate) fn enters(&self, who: &'static str, how: &str) {
        let mut told = self.told();
        told.inside.push(who);
        told.most = told.most.max(told.inside.len());
        let others: Vec<_> = told.inside.iter().filter(|other| **other != who).copied().collect();
        let beside = if others.is_empty() {
            String::new()
        } else {
            format!(", beside {}", others.join(" and "))
        };
        told.lines.push(format!("{who:4}{how} and is in the body{beside}"));
    }

    /// Its body has ended.
    pub(crate) fn leaves(&self, who: &str) {
        self.told().inside.retain(|inside| *inside != who);
    }

    /// Something else than two bodies at once went wrong.
    pub(crate) fn fails(&self, flaw: &'static str) {
        self.told().flaw = Some(flaw);
    }

    pub(crate) fn went_wrong(&self) -> bool {
        let told = self.told();
        told.most > 1 || told.flaw.is_some()
    }

    /// Prints it; true if something went wrong.
    pub(crate) fn print(&self) -> bool {
        let told = self.told();
        for line in &told.lines {
            println!("    {line}");
        }
        match (told.most, told.flaw) {
            (_, Some(flaw)) => println!("\n    WRONG: {flaw}.\n"),
            (0 | 1, None) => println!("\n    Right: one at a time.\n"),
            (most, None) => println!("\n    WRONG: {most} in the body at once.\n"),
        }
        drop(told);
        self.went_wrong()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
