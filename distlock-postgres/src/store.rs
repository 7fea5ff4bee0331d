//! The store: what its operations have in common.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::select::until;
use distlock_core::store::contention::Contention;
use distlock_core::store::record::ProcessRecord;
use distlock_core::store::{Fault, Held, LockName, Store as _, StoreEvents};
use distlock_core::timers::{Alarm, Alarms};
use tokio::runtime::Handle;

use crate::database::Database;
use crate::error::PostgresError;
use crate::listen_demand::ListenDemand;
use crate::pool::PostgresPool;
use crate::session::PostgresSession;
use crate::tls::PostgresTls;
use crate::url::PostgresUrl;

/// The default number of connections for commands. On one connection, each lock would wait until all locks before it
/// are on disk. A server writes for several connections at once.
const DEFAULT_CONNECTIONS: usize = 4;

/// The settings of a store.
pub struct PostgresSettings {
    /// The URL of the database.
    pub url: PostgresUrl,
    /// The TLS configuration. A URL that [asks](PostgresUrl::tls_files) for TLS needs one.
    pub tls: Option<PostgresTls>,
    /// The longest time that the callers of a command wait for its answer.
    pub command_timeout: Duration,
    /// The longest time that connecting takes.
    pub connect_timeout: Duration,
    /// The number of connections for commands.
    pub connections: Option<usize>,
    /// The prefix of all names in the store, with its separator.
    pub prefix: String,
    /// The receiver of events of connections.
    pub events: Arc<dyn StoreEvents>,
}

/// A store of locks in one Postgres database.
pub struct PostgresStore {
    pub(crate) pool: Arc<PostgresPool>,
    /// The servers' addresses, for errors.
    servers: String,
    pub(crate) record: Arc<ProcessRecord>,
    pub(crate) contention: Contention,
    pub(crate) listen_demand: Arc<ListenDemand>,
    pub(crate) command_timeout: Duration,
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) handle: Handle,
}

impl PostgresStore {
    /// Starts a store on a runtime with I/O and timers. It connects on first use.
    pub fn start(settings: PostgresSettings, handle: &Handle, alarms: &Arc<Alarms>) -> Self {
        let PostgresSettings { url, tls, command_timeout, connect_timeout, .. } = settings;
        let links = settings.connections.unwrap_or(DEFAULT_CONNECTIONS).max(1);
        let servers = url.servers();
        let database = Database::new(url, tls, connect_timeout, command_timeout, links, handle);
        let pool = Arc::new(PostgresPool::start(database, links, &settings.events));
        Self {
            servers,
            record: Arc::new(ProcessRecord::new(settings.prefix)),
            contention: Contention::none(),
            listen_demand: Arc::new(ListenDemand::new(&pool, handle)),
            command_timeout,
            alarms: alarms.clone(),
            handle: handle.clone(),
            pool,
        }
    }

    /// Waits for an answer until `answer_by`. If the answer is overdue, reports that to the session that owes it.
    pub(crate) async fn await_answer<T>(
        &self,
        answer_by: Moment,
        session: Option<&PostgresSession>,
        work: impl Future<Output = Result<T, PostgresError>>,
    ) -> Result<T, PostgresError> {
        let alarm = Alarm::at(&self.alarms, Clock::Boottime, answer_by);
        if let Some(done) = until(work, alarm).await {
            return done;
        }
        if let Some(session) = session {
            session.answer_overdue();
        } else if let Some((_, fault)) = self.pool.outage() {
            // There was no connection to send the command over.
            return Err(fault.into());
        }
        Err(PostgresError::answer_overdue(&self.servers))
    }

    /// Returns the session for all commands of this lock.
    pub(crate) async fn session_for(
        &self,
        lock: &LockName,
        answer_by: Moment,
    ) -> Result<PostgresSession, PostgresError> {
        self.record.used(Clock::Boottime.now());
        self.await_answer(answer_by, None, self.pool.session_for(lock)).await
    }

    /// Returns the holders and waiters of a lock; `None` if it is free.
    pub(crate) async fn holders(
        &self,
        lock: &LockName,
        answer_by: Moment,
    ) -> Result<Option<Held>, Fault> {
        let session = self.session_for(lock, answer_by).await?;
        Ok(self.await_answer(answer_by, Some(&session), session.inspect(lock)).await?)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("status", &self.status()).finish_non_exhaustive()
    }
}
