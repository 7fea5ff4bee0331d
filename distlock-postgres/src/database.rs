//! The state that all connections to one database share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::error::PostgresError;
use crate::tls::PostgresTls;
use crate::url::PostgresUrl;

/// The time that a session has for any answer after one was overdue. It is longer while the server may wait for
/// a lock of its own.
const SILENCE: Duration = Duration::from_secs(1);
/// A command waits no longer than this for a lock of the server.
const LONGEST_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// One database, as all connections to it know it.
pub(crate) struct Database {
    pub(crate) url: PostgresUrl,
    tls: Option<PostgresTls>,
    pub(crate) connect_timeout: Duration,
    pub(crate) fences: FenceSequence,
    /// The number of the newest session. Each session has its own number.
    pub(crate) sessions: AtomicU64,
    /// Messages arrive, so no pooler is in between that gives each transaction another connection.
    pub(crate) is_direct: watch::Sender<bool>,
    /// Notifies callers that a link was connected or lost.
    pub(crate) changes: watch::Sender<()>,
    /// The number of links that are connected.
    pub(crate) connected: AtomicUsize,
    /// The host of the last good connection.
    pub(crate) preferred_host: AtomicUsize,
    /// The number of connections when all of them are open.
    pub(crate) connections: usize,
    /// One permit for each connection that may be open at the server.
    permits: Arc<Semaphore>,
    /// The longest time that a command may wait for a lock of the server.
    pub(crate) lock_timeout: Duration,
    pub(crate) handle: Handle,
}

/// The permit of one connection, counted against the maximum.
pub(crate) type ConnectionPermit = OwnedSemaphorePermit;

impl Database {
    pub(crate) fn new(
        url: PostgresUrl,
        tls: Option<PostgresTls>,
        connect_timeout: Duration,
        command_timeout: Duration,
        command_links: usize,
        handle: &Handle,
    ) -> Self {
        let preferred_host = AtomicUsize::new(url.first_host());
        // The server must answer before its caller stops waiting.
        let lock_timeout = (command_timeout * 3 / 4).min(LONGEST_LOCK_TIMEOUT);
        Self {
            url,
            tls,
            connect_timeout,
            fences: FenceSequence::new(),
            sessions: AtomicU64::new(0),
            is_direct: watch::Sender::new(false),
            changes: watch::Sender::new(()),
            connected: AtomicUsize::new(0),
            preferred_host,
            // One more connection renews leases, and one more listens.
            connections: command_links + 2,
            // This is less than two for each connection, because the one for renewals is often not open.
            permits: Arc::new(Semaphore::new(2 * (command_links + 1))),
            lock_timeout,
            handle: handle.clone(),
        }
    }

    /// Returns the TLS configuration if connections use TLS.
    pub(crate) fn tls(&self) -> Option<PostgresTls> {
        // Without the feature `tls` the type is `Copy`, and a method call would be a lint.
        Option::clone(&self.tls)
    }

    /// Waits for a permit to open one more connection. An abandoned connection keeps its permit until it has
    /// ended.
    pub(crate) async fn permit(&self) -> Result<ConnectionPermit, PostgresError> {
        let permit = self.permits.clone().acquire_owned();
        match timeout(self.connect_timeout, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(PostgresError::unreachable(
                "the server has not ended connections that were left because it did not answer",
            )),
        }
    }

    /// Returns how long a session may be silent while it owes an answer.
    pub(crate) fn longest_silence(&self) -> Duration {
        SILENCE.max(self.lock_timeout + SILENCE / 2)
    }

    /// Makes the next attempt begin with the host after this one, because this one did not answer. Several
    /// connections to it may fall silent together: only the first of them changes the order.
    pub(crate) fn avoid_host(&self, host: usize) {
        let next =
            |preferred: usize| (preferred == host).then(|| (host + 1) % self.url.hosts.len());
        let _ = self.preferred_host.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }
}

/// The sequence of fencing tokens and the server's clock, as far as this process knows them.
#[derive(Debug)]
pub(crate) struct FenceSequence {
    /// The highest value that this process has seen.
    highest: AtomicU64,
    /// The start time of the server on which this process raised the sequence last; 0 if there is none.
    server_started: AtomicI64,
    /// The lead of the server's clock over `origin`, in µs; `i64::MIN` while it is unknown.
    clock_lead: AtomicI64,
    origin: Instant,
}

impl FenceSequence {
    fn new() -> Self {
        Self {
            highest: AtomicU64::new(0),
            server_started: AtomicI64::new(0),
            clock_lead: AtomicI64::new(i64::MIN),
            origin: Instant::now(),
        }
    }

    /// Returns the highest value that this process has seen. Read it before asking for a new one.
    pub(crate) fn seen(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }

    /// Returns whether a value is above `seen`, which was read before the value was asked for.
    pub(crate) fn is_new(&self, value: u64, seen: u64) -> bool {
        self.highest.fetch_max(value, Ordering::AcqRel);
        value > seen
    }

    /// Records that the server started at `started` has raised its sequence to `floor`.
    pub(crate) fn set_raised(&self, floor: i64, now: i64, started: i64) {
        self.highest.fetch_max(u64::try_from(floor).unwrap_or(0), Ordering::AcqRel);
        self.set_server_time(now);
        self.server_started.store(started, Ordering::Release);
    }

    /// Records the server's current time, in µs since 1970.
    pub(crate) fn set_server_time(&self, now: i64) {
        let since = i64::try_from(self.origin.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.clock_lead.store(now.saturating_sub(since), Ordering::Release);
    }

    pub(crate) fn server_started(&self) -> i64 {
        self.server_started.load(Ordering::Acquire)
    }

    /// Returns the server's time after `delay` from now; 0 if the server's clock is unknown.
    pub(crate) fn server_time_after(&self, delay: Duration) -> i64 {
        match self.clock_lead.load(Ordering::Acquire) {
            i64::MIN => 0,
            lead => {
                let micros = self.origin.elapsed().saturating_add(delay).as_micros();
                lead.saturating_add(i64::try_from(micros).unwrap_or(i64::MAX))
            }
        }
    }
}
