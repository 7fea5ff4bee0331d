//! The store that the command line or the environment names.
//!
//! The system shows the arguments of a process to every user of the machine, and its environment only to its own user.
//! So a URL with a password does not stay in the command line: this program executes itself again, as the same process,
//! with the whole URL in the environment and without the password among its arguments. The password is visible for a
//! moment; a URL in `DISTLOCK_URL` avoids that as well.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use distlock::{LockManager, LockManagerBuilder};

use crate::exit::Failure;

/// The usual ttl of locks.
const USUAL_TTL: Duration = Duration::from_secs(30);
/// The environment variable with the whole URL, whose password the command line lacks. The command of a `run` does not
/// inherit it.
pub(crate) const HIDDEN_URL: &str = "DISTLOCK_GIVEN_URL";

/// The options of the command line that name the store.
pub(crate) struct StoreOptions {
    pub(crate) url: Option<String>,
    pub(crate) prefix: Option<String>,
}

/// The URL of a store, and the prefix of its locks.
pub(crate) struct StoreConfig {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl StoreConfig {
    /// Completes the options with the environment and the defaults.
    pub(crate) fn resolve(options: &StoreOptions) -> Result<Self, Failure> {
        let url = match &options.url {
            // Does not fall back to the environment: most probably a variable of a script is empty.
            Some(url) if url.is_empty() => {
                return Err(Failure::usage("--url is empty; give one such as redis://HOST"));
            }
            Some(url) => Some(with_hidden_password(url)),
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

    /// Starts a manager for locks with at most this ttl.
    pub(crate) fn builder(&self, longest_ttl: Duration) -> LockManagerBuilder {
        // A restarted server of a quorum does not count for this long. If the URL does not set the time, other
        // processes may have locks with the usual ttl.
        let has_guard = self.url.contains("guard=");
        let longest_ttl = if has_guard { longest_ttl } else { longest_ttl.max(USUAL_TTL) };
        LockManager::builder().url(&self.url).prefix(&self.prefix).ttl(longest_ttl)
    }

    /// Connects for a command that only reads. Fails at once if the store cannot be reached.
    pub(crate) async fn connect(&self) -> Result<LockManager, Failure> {
        let builder = self.builder(Duration::from_millis(10));
        match self.url.contains("-cluster://") || self.is_quorum() {
            // Show the locks of the other nodes while one is down, and do not wait for the restart guard of a
            // quorum.
            true => Ok(builder.build()?),
            false => Ok(builder.connect().await?),
        }
    }

    /// Returns the prefix with its separator, as names in the store begin with it.
    pub(crate) fn name_prefix(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}:", self.prefix) }
    }

    /// Returns the URL without user, password and options.
    pub(crate) fn public_url(&self) -> String {
        public_url(&self.url)
    }

    /// Whether other processes see the locks.
    pub(crate) fn is_shared(&self) -> bool {
        !self.has_scheme("memory:")
    }

    /// Whether a majority of servers keeps the locks.
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

/// Executes this program again without the password of the URL among its arguments. Returns if there is no password,
/// or if that is not possible.
pub(crate) fn hide_password(url: &str) {
    let public = public_url(url);
    let Ok(program) = std::env::current_exe() else { return };
    if public == url {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    command.arg0(arguments.next().unwrap_or_default()).env(HIDDEN_URL, url);
    let mut is_ours = true;
    for argument in arguments {
        is_ours &= argument != "--";
        match argument.to_str().filter(|_| is_ours) {
            Some(text) => command.arg(text.replace(url, &public)),
            None => command.arg(argument),
        };
    }
    let _ = command.exec();
}

/// Returns the whole URL of a URL whose password was hidden, and any other URL unchanged.
fn with_hidden_password(given: &str) -> String {
    let hidden = std::env::var(HIDDEN_URL).ok();
    hidden.filter(|url| public_url(url) == given).unwrap_or_else(|| given.to_owned())
}

/// Removes user, password and options from a URL.
fn public_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // A password that is not percent-encoded may contain anything.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{authority}{slash}{path}")
}

#[cfg(test)]
mod tests {
    use super::public_url;

    #[test]
    fn a_public_url_has_no_password() {
        for (url, expected) in [
            ("redis://user:p@ss@host:1/2", "redis://host:1/2"),
            ("redis://user:p/ss@host:1/2", "redis://host:1/2"),
            ("redis+unix:///a/b?pass=se@cret", "redis+unix:///a/b"),
            ("redis-sentinel://:pw@a,b/main?sentinel_pass=x@y", "redis-sentinel://a,b/main"),
            ("redis://host", "redis://host"),
        ] {
            assert_eq!(public_url(url), expected);
        }
    }
}
