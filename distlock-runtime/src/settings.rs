//! The settings of a manager.

use std::time::Duration;

use crate::error::LockError;
use crate::name::Advice;
use crate::namespace::Namespace;
use crate::options::{Options, Resolved};
use crate::ranges::{check_busy_status, check_timeout};
use distlock_core::credentials::Credentials;
use distlock_core::tls::TlsOptions;

/// What the builder is given, with its defaults.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Of the locks whose request does not say otherwise.
    pub(crate) options: Options,
    pub(crate) advice: Advice,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) outage_grace: Duration,
    /// `None`: as many as are best for the store.
    pub(crate) connections: Option<usize>,
    pub(crate) io_on_caller_runtime: bool,
    /// How long a server of a quorum does not count once it has restarted; `None`: the `ttl`.
    pub(crate) restart_guard: Option<Duration>,
    /// Other processes may learn which process this is.
    pub(crate) identify: bool,
    /// What the manager's tokens begin with, where a test says so; else it is drawn at random.
    pub(crate) identity: Option<String>,
    /// How many replicas confirm grants and renewals, and how long that may take.
    pub(crate) replicas: Option<u32>,
    pub(crate) replica_timeout: Option<Duration>,
    /// To sign in with at sentinels.
    pub(crate) sentinel: Option<Credentials>,
    pub(crate) tls: Option<TlsOptions>,
    /// What the store does not have.
    pub(crate) lacks: Lacks,
}

/// What a store does not have that others do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lacks {
    /// Why there are no permits.
    pub(crate) permits: Option<&'static str>,
    /// It keeps no lock for longer than this without a renewal.
    pub(crate) longest: Option<Duration>,
}

impl Lacks {
    /// What is asked for and cannot be had, if anything is.
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
            options: Options::default(),
            advice: Advice::DEFAULT,
            command_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            // Most restarts and failovers are over by then.
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
    /// What is wrong with them, if anything is.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.options.resolve(&Options::default())?;
        check_timeout("command_timeout", self.command_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        if self.connections.is_some_and(|connections| !(1..=64).contains(&connections)) {
            return Err(LockError::invalid_option("connections: give 1 to 64; 1 is fastest"));
        }
        check_busy_status(self.advice.busy_status)
    }

    /// Which part of the store is the manager's.
    pub(crate) fn namespace(&self) -> Result<Namespace, LockError> {
        Namespace::new(self.options.prefix.as_deref().unwrap_or("distlock"))
    }
}
