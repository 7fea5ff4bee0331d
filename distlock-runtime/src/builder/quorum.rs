//! What a URL of a quorum comes to.

use std::time::Duration;

use super::redis::{not_supported, redis_config};
use crate::error::LockError;
use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::options::Options;
use crate::settings::{Lacks, Settings};
use distlock_redis::RedisConfig;
use distlock_redis::url::{Deployment, RedisUrl};

const NO_PERMITS: &str = "they cannot be had over redlock://, where majorities of servers could let in more; use \
    one server, Sentinel or Cluster for this lock";

/// Servers of which a majority decides.
pub(super) struct Quorum {
    pub(super) servers: Vec<RedisConfig>,
    /// For how long one that has restarted does not count.
    pub(super) guard: Duration,
    pub(super) lacks: Lacks,
    /// The options of locks whose request does not say otherwise.
    pub(super) options: Options,
}

impl Quorum {
    pub(super) fn new(
        url: RedisUrl,
        settings: &Settings,
        namespace: &Namespace,
        observers: &Observers,
    ) -> Result<Self, LockError> {
        let Deployment::Redlock { nodes, guard } = url.deployment else {
            return Err(not_supported("a quorum of this kind"));
        };
        let guard =
            guard.or(settings.restart_guard).or(settings.options.ttl).unwrap_or(Options::TTL);
        let longest = (!guard.is_zero()).then_some(guard);
        let lacks = Lacks { permits: Some(NO_PERMITS), longest };
        // A guard that is shorter than the default `ttl` was chosen for shorter leases.
        let ttl = settings.options.ttl.or(longest.map(|longest| longest.min(Options::TTL)));
        let options = Options { ttl, ..settings.options.clone() };
        lacks.check(&options.resolve(&Options::default())?)?;
        let server = |url| {
            let server = redis_config(url, settings, namespace, observers)?;
            // A node is known by the connection on which it has identified itself.
            Ok(RedisConfig { connections: 1, ..server })
        };
        let servers = nodes.into_iter().map(server).collect::<Result<_, LockError>>()?;
        Ok(Self { servers, guard, lacks, options })
    }
}
