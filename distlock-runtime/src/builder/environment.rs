//! Settings from environment variables.

use std::time::Duration;

use super::LockManagerBuilder;
use crate::error::LockError;

impl LockManagerBuilder {
    /// The settings that the environment names, see [`LockManager::from_env`](crate::LockManager::from_env).
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
