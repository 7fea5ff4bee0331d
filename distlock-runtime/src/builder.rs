//! How a manager is made: the builder, the URL, the environment.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::engine::RunsOn;
use crate::engine::alarm::Alarms;
use crate::error::LockError;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::name::RETRY_AFTER;
use crate::namespace::Namespace;
use crate::options::{check_busy_status, check_hold, check_timeout, check_ttl};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::store::redis::{RedisConfig, RedisStore};
use crate::url::StoreUrl;

/// What a manager's locks have in common.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: Namespace,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: Option<u32>,
    pub(crate) busy_status: u16,
    pub(crate) retry_after: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) outage_grace: Duration,
}

/// Makes a [`LockManager`]. Every setter takes any value; [`build`](Self::build) and
/// [`connect`](Self::connect) say what is wrong with it.
#[derive(Clone)]
#[must_use = "a builder does nothing before `build` or `connect`"]
pub struct LockManagerBuilder {
    url: Option<String>,
    prefix: String,
    ttl: Duration,
    wait: Duration,
    max_hold: Option<Duration>,
    max_waiters: Option<u32>,
    command_timeout: Duration,
    connect_timeout: Duration,
    outage_grace: Duration,
    connections: usize,
    io_on_caller_runtime: bool,
    busy_status: u16,
    retry_after: Duration,
}

impl Default for LockManagerBuilder {
    fn default() -> Self {
        Self {
            url: None,
            prefix: "distlock".to_owned(),
            // Long enough for a holder to survive a failover, short enough not to wait an hour for
            // one that died.
            ttl: Duration::from_secs(30),
            wait: Duration::ZERO,
            max_hold: None,
            max_waiters: None,
            command_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            // Most restarts and failovers are over by then.
            outage_grace: Duration::from_secs(5),
            // More were slower: less is sent together.
            connections: 1,
            io_on_caller_runtime: true,
            // Locked.
            busy_status: 423,
            retry_after: RETRY_AFTER,
        }
    }
}

impl LockManagerBuilder {
    /// Where the locks are kept: `memory://`, `redis://[user:password@]host[:port][/db]` or
    /// `redis+unix:///path`. Required.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Namespace in the store; empty for none. Default: `distlock`.
    ///
    /// Every prefix, also one that only a request names, leaves one small key there for good: the
    /// counter of its fencing tokens, of some 100 bytes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a lock may outlive a holder that died, where the lock does not say. At least 10 ms.
    /// Default: 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait while others hold a lock, where the lock does not say. Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Never extend a lease past this time after its lock was taken, where the lock does not say.
    /// At least 10 ms. Default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How many calls of this process may wait for one lock at a time, where the lock does not say:
    /// see [`LockRequest::max_waiters`](crate::LockRequest::max_waiters). Each key is counted by
    /// itself. Default: no limit.
    pub fn max_waiters(mut self, waiters: u32) -> Self {
        self.max_waiters = Some(waiters);
        self
    }

    /// How long one question to the store may take. Default: 1 s.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// How long a connection may take to be made, greeting included. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// For how long an outage is ridden out: calls that come while the store has been out of reach for
    /// longer fail with [`Backend`](LockError::Backend) after `command_timeout`, even if their `wait` is
    /// longer, unless it is back by then. Those that wait already, and those that come before, go on
    /// trying until their `wait` is over. Zero: no call that comes during an outage does.
    /// Default: 5 s.
    pub fn outage_grace(mut self, grace: Duration) -> Self {
        self.outage_grace = grace;
        self
    }

    /// Connections for commands; one more is used for renewals. All commands of one lock go over
    /// the same one. Default: 1.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Whether a connection that is used often may be read and written on the runtime of its callers.
    /// That makes locks on a near server cheaper: on loopback up to 1.6 times as many for one task, for
    /// half the CPU; over a network it saves CPU alone. If such a runtime is blocked or ends, the
    /// manager's own thread takes the connection back within some 30 ms. A runtime without an I/O driver
    /// (`enable_io`) is found out by a panic inside of tokio, once, which is caught; a panic hook runs.
    ///
    /// `false`: the manager's thread reads and writes, and callers only write what they send.
    /// [`ManagerStatus::driven_by`](crate::ManagerStatus::driven_by) tells how it is at present.
    /// Without effect on `memory://`. Default: `true`.
    pub fn io_on_caller_runtime(mut self, allowed: bool) -> Self {
        self.io_on_caller_runtime = allowed;
        self
    }

    /// The HTTP status of [`LockError::Busy`]: 423 (Locked), 409 (Conflict), 429 (Too Many Requests)
    /// or 503 (Service Unavailable). Default: 423.
    pub fn busy_status(mut self, status: u16) -> Self {
        self.busy_status = status;
        self
    }

    /// What clients are told to wait before they try again: `Retry-After` of a lock that is held and
    /// of a store that cannot be used, see [`LockError::http_retry_after`]. About as long as the work
    /// under a lock takes. Default: 1 s.
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Makes the manager without any I/O; the first use connects.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](LockError::InvalidOption) names the setting and the mend.
    pub fn build(self) -> Result<LockManager, LockError> {
        self.build_over(RunsOn::Thread, |store, _, _| store)
    }

    /// [`build`](Self::build) with another store around, or instead of, the one the URL names, and
    /// an engine that `runs_on` this.
    pub(crate) fn build_over(
        self,
        runs_on: RunsOn,
        over: impl FnOnce(Arc<dyn Store>, &Handle, &Arc<Alarms>) -> Arc<dyn Store>,
    ) -> Result<LockManager, LockError> {
        let Self {
            url,
            prefix,
            ttl,
            wait,
            max_hold,
            max_waiters,
            command_timeout,
            connect_timeout,
            outage_grace,
            connections,
            io_on_caller_runtime,
            busy_status,
            retry_after,
        } = self;
        let url = url.ok_or_else(|| {
            LockError::invalid_option("url: missing; call `.url(\"redis://…\")` on the builder")
        })?;
        check_ttl(ttl)?;
        check_hold(max_hold, None)?;
        check_timeout("command_timeout", command_timeout)?;
        check_timeout("connect_timeout", connect_timeout)?;
        if !(1..=64).contains(&connections) {
            return Err(LockError::invalid_option("connections: give 1 to 64; 1 is fastest"));
        }
        check_busy_status(busy_status)?;
        let namespace = Namespace::new(&prefix)?;
        let (fence, prefix) = (namespace.fence(), namespace.prefix().to_owned());
        let settings = Settings {
            namespace,
            ttl,
            wait,
            max_hold,
            max_waiters,
            busy_status,
            retry_after,
            command_timeout,
            connect_timeout,
            outage_grace,
        };
        let locks = match StoreUrl::parse(&url)? {
            StoreUrl::Memory => Locks::start(runs_on, settings, |handle, alarms| {
                over(Arc::new(MemoryStore::new()), handle, alarms)
            })?,
            StoreUrl::Redis(info) => {
                let config = RedisConfig {
                    info,
                    command_timeout,
                    connect_timeout,
                    connections,
                    io_on_caller_runtime,
                    fence,
                    prefix,
                };
                Locks::start(runs_on, settings, |handle, alarms| {
                    let store = Arc::new(RedisStore::start(config, handle, alarms));
                    over(store, handle, alarms)
                })?
            }
        };
        Ok(LockManager::new(locks))
    }

    /// Makes the manager and returns once the store has answered.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and [`Backend`](LockError::Backend) if the store cannot be
    /// reached, does not answer within `connect_timeout`, or refuses.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is left behind.
    pub async fn connect(self) -> Result<LockManager, LockError> {
        let manager = self.build()?;
        manager.ready().await?;
        Ok(manager)
    }

    /// The settings that the environment names, see [`LockManager::from_env`].
    pub(crate) fn from_env() -> Result<Self, LockError> {
        let mut builder =
            Self::default().url(variable("DISTLOCK_URL")?.ok_or(LockError::NotConfigured)?);
        if let Some(prefix) = variable("DISTLOCK_PREFIX")? {
            builder = builder.prefix(prefix);
        }
        if let Some(ttl) = variable("DISTLOCK_TTL")? {
            builder = builder.ttl(duration("DISTLOCK_TTL", &ttl)?);
        }
        if let Some(wait) = variable("DISTLOCK_WAIT")? {
            let none = wait.trim() == "none";
            builder =
                builder.wait(if none { Duration::ZERO } else { duration("DISTLOCK_WAIT", &wait)? });
        }
        Ok(builder)
    }
}

fn variable(name: &str) -> Result<Option<String>, LockError> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(LockError::invalid_option(format!("{name}: is not valid UTF-8")))
        }
    }
}

fn duration(name: &str, text: &str) -> Result<Duration, LockError> {
    humantime::parse_duration(text).map_err(|error| {
        LockError::invalid_option(format!(
            "{name}: {error}; write a duration such as `5s` or `1m 30s`"
        ))
    })
}

impl fmt::Debug for LockManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL: it may contain a password.
        f.debug_struct("LockManagerBuilder")
            .field("prefix", &self.prefix)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("max_hold", &self.max_hold)
            .field("max_waiters", &self.max_waiters)
            .field("command_timeout", &self.command_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("outage_grace", &self.outage_grace)
            .field("connections", &self.connections)
            .field("io_on_caller_runtime", &self.io_on_caller_runtime)
            .field("busy_status", &self.busy_status)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}
