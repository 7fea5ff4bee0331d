//! A store by its URL and the prefix of its locks.

mod place;
pub(crate) mod secret;

use std::time::Duration;

use distlock::{LockManager, LockManagerBuilder};

use self::place::place;
use crate::failure::Failure;

/// The usual ttl of locks.
const USUAL: Duration = Duration::from_secs(30);

/// Where the locks are, as the command line says.
pub(crate) struct StoreOptions {
    pub(crate) url: Option<String>,
    pub(crate) prefix: Option<String>,
}

/// The store, as it was named.
pub(crate) struct Named {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl Named {
    pub(crate) fn of(options: &StoreOptions) -> Result<Self, Failure> {
        let url = match &options.url {
            // Not that of the environment: a variable of a script was empty, most probably.
            Some(url) if url.is_empty() => {
                return Err(Failure::usage("--url is empty; give one such as redis://HOST"));
            }
            Some(url) => Some(secret::whole(url)),
            None => variable("DISTLOCK_URL")?.filter(|url| !url.is_empty()),
        };
        let url = url.ok_or_else(|| {
            Failure::usage("no store: give --url redis://HOST, or set DISTLOCK_URL")
        })?;
        let prefix = match &options.prefix {
            Some(prefix) => prefix.clone(),
            None => variable("DISTLOCK_PREFIX")?.unwrap_or_else(|| "distlock".to_owned()),
        };
        Ok(Self { url, prefix })
    }

    /// For locks that are kept so long at most.
    pub(crate) fn builder(&self, longest: Duration) -> LockManagerBuilder {
        // For so long a server of a quorum that has restarted does not count. Where the URL does not say how long that
        // is, others may have locks with the usual ttl.
        let is_said = self.url.contains("guard=");
        let longest = if is_said { longest } else { longest.max(USUAL) };
        LockManager::builder().url(&self.url).prefix(&self.prefix).ttl(longest)
    }

    /// Connects, to look; fails at once if the store cannot be reached.
    pub(crate) async fn connect(&self) -> Result<LockManager, Failure> {
        let builder = self.builder(Duration::from_millis(10));
        match self.url.contains("-cluster://") || self.is_quorum() {
            // Show the locks of the other nodes while one is down, and do not wait for the restart guard of a
            // quorum.
            true => Ok(builder.build()?),
            false => Ok(builder.connect().await?),
        }
    }

    /// The prefix as it stands in names: with its separator.
    pub(crate) fn names(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}:", self.prefix) }
    }

    /// Where it is, without user, password and options.
    pub(crate) fn place(&self) -> String {
        place(&self.url)
    }

    /// Whether locks are kept where other processes see them.
    pub(crate) fn is_shared(&self) -> bool {
        !self.has_scheme("memory:")
    }

    /// Whether they are kept by a majority of servers.
    pub(crate) fn is_quorum(&self) -> bool {
        self.has_scheme("redlock:")
    }

    fn has_scheme(&self, scheme: &str) -> bool {
        self.url.trim_start().to_ascii_lowercase().starts_with(scheme)
    }
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{name} is not valid UTF-8")))
        }
    }
}
