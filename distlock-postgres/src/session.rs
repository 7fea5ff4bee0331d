//! An open connection with its schema ready, and the way in which a function is called on it.
//!
//! Parsing and planning a call takes a server as long as executing it, so a session prepares the calls of frequent
//! functions. But behind a pooler each transaction may be given another connection, which does not have the
//! statements that were prepared on the one before. Messages do not arrive there either. So a session prepares
//! nothing until the listener has received its own echo.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use crate::connect::race;
use crate::database::{Database, FenceSequence};
use crate::error::PostgresError;

/// A function of the database.
pub(crate) struct SqlFunction {
    /// The call of the function, as SQL.
    pub(crate) call: &'static str,
    /// The columns of the answer; empty for a single value.
    pub(crate) columns: &'static [&'static str],
    pub(crate) types: &'static [Type],
}

/// The settings that a statement carries with it because its session does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementSettings {
    /// Bounds the time that the call waits for locks of the server.
    LockTimeout,
    /// Bounds that time, and makes the call send no messages.
    LockTimeoutNoMessages,
}

impl SqlFunction {
    fn plain(&self) -> String {
        match self.columns {
            [] => format!("SELECT {}", self.call),
            columns => format!("SELECT {} FROM {}", columns.join(", "), self.call),
        }
    }

    /// Returns a single statement, because a pooler may give each statement to another connection. The settings
    /// end with the statement. They are in `FROM`, which is evaluated before the call.
    fn with(&self, settings: StatementSettings, lock_timeout: Duration) -> String {
        let bound = format!("set_config('lock_timeout', '{}', true)", lock_timeout.as_millis());
        let settings = match settings {
            StatementSettings::LockTimeout => bound,
            StatementSettings::LockTimeoutNoMessages => {
                format!("{bound}, set_config('distlock.quiet', 'on', true)")
            }
        };
        let settings = format!("(SELECT {settings} OFFSET 0) AS settings");
        match self.columns {
            [] => format!("SELECT {} FROM {settings}", self.call),
            columns => {
                let columns: Vec<_> =
                    columns.iter().map(|column| format!("(answer).{column}")).collect();
                let columns = columns.join(", ");
                // Without `OFFSET 0`, the server would call the function once for each column.
                format!(
                    "SELECT {columns} FROM (SELECT {} AS answer FROM {settings} OFFSET 0) AS a",
                    self.call
                )
            }
        }
    }
}

/// The statements that were prepared on one connection.
struct PreparedStatements(Vec<(&'static str, Statement)>);

impl PreparedStatements {
    async fn prepare(client: &Client, functions: &[&SqlFunction]) -> Result<Self, Error> {
        let mut statements = Vec::new();
        for function in functions {
            let statement = client.prepare_typed(&function.plain(), function.types).await?;
            statements.push((function.call, statement));
        }
        Ok(Self(statements))
    }

    fn of(&self, function: &SqlFunction) -> Option<&Statement> {
        self.0.iter().find(|(call, _)| *call == function.call).map(|(_, statement)| statement)
    }
}

/// An open connection whose database has the schema. A clone is the same connection.
#[derive(Clone)]
pub(crate) struct PostgresSession {
    client: Arc<Client>,
    number: u64,
    pub(crate) health: Arc<SessionHealth>,
    pub(crate) database: Arc<Database>,
    prepared: Arc<OnceLock<PreparedStatements>>,
}

pub(crate) type SqlValue<'a> = &'a (dyn ToSql + Sync);
pub(crate) type SqlParam<'a> = (SqlValue<'a>, Type);

impl PostgresSession {
    pub(crate) fn new(
        client: Client,
        number: u64,
        health: Arc<SessionHealth>,
        database: Arc<Database>,
    ) -> Self {
        let prepared = Arc::default();
        Self { client: Arc::new(client), number, health, database, prepared }
    }

    /// Returns the number of this session. Later sessions of a pool have higher numbers.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Reports that the answer to a command is overdue. The connection is dropped if it stays silent after that.
    pub(crate) fn answer_overdue(&self) {
        self.health.answer_overdue();
    }

    pub(crate) fn fences(&self) -> &FenceSequence {
        &self.database.fences
    }

    /// Prepares the calls of these functions, once it is known that no pooler is in between. A command cannot do
    /// that itself, because its first poll must send it.
    pub(crate) async fn prepare(&self, functions: &[&SqlFunction]) {
        let mut direct = self.database.is_direct.subscribe();
        let is_direct = direct.wait_for(|direct| *direct).await.is_ok();
        if !is_direct {
            return;
        }
        // By default a waiting backend does not check whether its client is still connected. Servers before 14 do
        // not have this setting.
        const CHECK_CLIENT: &str = "SELECT set_config(name, '1000', false) FROM pg_settings \
            WHERE name = 'client_connection_check_interval'";
        let _ = self.client.query_typed(CHECK_CLIENT, &[]).await;
        let bound = self.database.lock_timeout.as_millis();
        let bounds = format!("SELECT set_config('lock_timeout', '{bound}', false)");
        if self.client.query_typed(&bounds, &[]).await.is_ok()
            && let Ok(prepared) = PreparedStatements::prepare(&self.client, functions).await
        {
            let _ = self.prepared.set(prepared);
        }
    }

    /// Calls a function.
    pub(crate) async fn call(
        &self,
        function: &SqlFunction,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, PostgresError> {
        let before = self.health.unconfirmed();
        let answer = match self.prepared.get().and_then(|prepared| prepared.of(function)) {
            Some(statement) => self.settle(self.client.query(statement, values).await),
            None => self.call_with(StatementSettings::LockTimeout, function, values).await,
        };
        match answer {
            // The server has done nothing, because it could not queue a message. Waiters also poll.
            Err(error) if error.is_of_notify() => {
                self.call_with(StatementSettings::LockTimeoutNoMessages, function, values).await
            }
            // A failover may lose a commit that the standby has not confirmed.
            Ok(_) if self.health.unconfirmed() != before => Err(PostgresError::unconfirmed()),
            answer => answer,
        }
    }

    async fn call_with(
        &self,
        settings: StatementSettings,
        function: &SqlFunction,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, PostgresError> {
        let params: Vec<_> = values.iter().copied().zip(function.types.iter().cloned()).collect();
        self.run(&function.with(settings, self.database.lock_timeout), &params).await
    }

    /// Executes a statement.
    pub(crate) async fn run(
        &self,
        sql: &str,
        params: &[SqlParam<'_>],
    ) -> Result<Vec<Row>, PostgresError> {
        self.settle(self.client.query_typed(sql, params).await)
    }

    fn settle(&self, answer: Result<Vec<Row>, Error>) -> Result<Vec<Row>, PostgresError> {
        answer.inspect(|_| self.health.answered()).map_err(|error| {
            let error = PostgresError::of(&error);
            if error.answered {
                self.health.answered();
            }
            if error.is_of_a_pooler() {
                self.database.is_direct.send_replace(false);
            }
            if error.ends_connection() {
                self.health.set_bad();
            }
            error
        })
    }
}

/// The condition of one connection, as its commands observe it.
#[derive(Default)]
pub(crate) struct SessionHealth {
    /// The number of answers that have become overdue since the last answer.
    overdue: AtomicU64,
    answers: AtomicU64,
    /// The number of times that the server has stopped waiting for a standby.
    unconfirmed: AtomicU64,
    suspected: Notify,
    bad: Notify,
}

impl SessionHealth {
    /// Records an answer.
    fn answered(&self) {
        self.answers.fetch_add(1, Ordering::AcqRel);
        self.overdue.store(0, Ordering::Release);
    }

    /// Records that an answer is overdue.
    fn answer_overdue(&self) {
        self.overdue.fetch_add(1, Ordering::AcqRel);
        self.suspected.notify_one();
    }

    /// Makes the connection end, because it is useless.
    fn set_bad(&self) {
        self.bad.notify_one();
    }

    /// Records that the server has committed without waiting for its standby.
    pub(crate) fn standby_skipped(&self) {
        self.unconfirmed.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns a number that changes when a standby has not confirmed a commit.
    fn unconfirmed(&self) -> u64 {
        self.unconfirmed.load(Ordering::Acquire)
    }

    /// Resolves when the connection must be dropped. Returns whether the reason is silence.
    pub(crate) async fn until_bad(&self, longest_silence: Duration) -> bool {
        let is_silent = async {
            loop {
                self.suspected.notified().await;
                let before = self.answers.load(Ordering::Acquire);
                tokio::time::sleep(longest_silence).await;
                let none = self.answers.load(Ordering::Acquire) == before;
                if none && self.overdue.load(Ordering::Acquire) > 0 {
                    return;
                }
            }
        };
        race(is_silent, self.bad.notified()).await.is_some()
    }
}
