//! The settings of a manager.

use std::time::Duration;

use distlock_core::authentication::{Credentials, TlsOptions};
use distlock_core::name::Advice;

use crate::error::LockError;
use crate::namespace::Namespace;
use crate::options::{LockOptions, Resolved};
use crate::ranges::{check_busy_status, check_timeout};

/// The settings of the builder, with their defaults.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The options of locks, unless their request has its own.
    pub(crate) options: LockOptions,
    pub(crate) advice: Advice,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) outage_grace: Duration,
    /// The number of connections; `None` for the best number for the store.
    pub(crate) connections: Option<usize>,
    pub(crate) io_on_caller_runtime: bool,
    /// How long a server of a quorum does not count after a restart; `None` for the `ttl`.
    pub(crate) restart_guard: Option<Duration>,
    /// Whether other processes may learn which process this is.
    pub(crate) identify: bool,
    /// The beginning of the manager's tokens in a test. Otherwise it is drawn at random.
    pub(crate) identity: Option<String>,
    /// The number of replicas that confirm grants and renewals.
    pub(crate) replicas: Option<u32>,
    /// How long their confirmation may take.
    pub(crate) replica_timeout: Option<Duration>,
    /// The credentials for sentinels.
    pub(crate) sentinel: Option<Credentials>,
    pub(crate) tls: Option<TlsOptions>,
    /// The features that the store lacks.
    pub(crate) lacks: Lacks,
}

/// The features that a store lacks and others have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lacks {
    /// The reason why the store has no permits.
    pub(crate) permits: Option<&'static str>,
    /// The longest time for which the store keeps a lock without a renewal.
    pub(crate) longest: Option<Duration>,
}

impl Lacks {
    /// Refuses options that the store cannot fulfil.
    #[inline]
    pub(crate) fn check(&self, asked: &Resolved) -> Result<(), LockError> {
        if let (Some(why), Some(_)) = (self.permits, asked.limit.as_permits()) {
            return Err(LockError::invalid_option(format!("permits: {why}")));
        }
        match self.longest {
            Some(longest) if asked.term.stored_for() > longest => {
                Err(LockError::invalid_option(format!(
                    "ttl, min_hold: longer than the manager's restart_guard of {}, for which a server of a quorum \
                     that has restarted does not count: raise restart_guard (or `guard=` in the URL)",
                    humantime::format_duration(longest)
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            options: LockOptions::default(),
            advice: Advice::DEFAULT,
            command_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            // Most restarts and failovers take less time.
            outage_grace: Duration::from_secs(5),
            connections: None,
            io_on_caller_runtime: true,
            restart_guard: None,
            identify: true,
            identity: None,
            replicas: None,
            replica_timeout: None,
            sentinel: None,
            lacks: Lacks::default(),
            tls: None,
        }
    }
}

impl Settings {
    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.options.resolve(&LockOptions::default())?;
        check_timeout("command_timeout", self.command_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        if self.connections.is_some_and(|connections| !(1..=64).contains(&connections)) {
            return Err(LockError::invalid_option("connections: give 1 to 64; 1 is fastest"));
        }
        check_busy_status(self.advice.busy_status)
    }

    /// Returns the namespace of the manager in the store.
    pub(crate) fn namespace(&self) -> Result<Namespace, LockError> {
        Namespace::new(self.options.prefix.as_deref().unwrap_or("distlock"))
    }
}
