//! The stores that a storm goes over.

use std::time::Duration;

use distlock_testkit::conformance::Remote;
use distlock_testkit::{EtcdServer, PostgresServer, RedisServer, ZooKeeperServer};

use super::witness::Kind;

/// A store that a storm goes over. Where a store keeps all promises and takes any time for a `ttl`, there is
/// nothing to say.
pub trait Exposed: Remote {
    /// Of the locks.
    const TTL: Duration = Duration::from_millis(800);
    /// What can be asked for; anything else is refused as an invalid option.
    const KINDS: &[Kind] =
        &[Kind::Write, Kind::Read, Kind::Permits(2), Kind::Permits(3), Kind::Permits(5)];
    /// Fencing tokens grow although all data was lost.
    const FENCES_OUTLIVE_DATA: bool = true;

    /// Starts one that has its data again after a crash.
    fn lasting() -> Self {
        Self::start()
    }

    /// What is stored of locks and not over.
    fn live(&self) -> Vec<String> {
        self.left()
    }

    /// What is stored of locks and would never go away by itself.
    fn endless(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Answers every key that lives for ever.
const ENDLESS: &str = "
local endless = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    if redis.call('PTTL', key) == -1 then endless[#endless + 1] = key end
end
return endless";

impl Exposed for RedisServer {
    fn lasting() -> Self {
        Self::builder().durable().start()
    }

    fn endless(&self) -> Vec<String> {
        let mut endless: Vec<String> = self.cli(&["EVAL", ENDLESS, "0"]);
        endless.retain(|key| key.contains(":lock:") || key.contains(":queue:"));
        endless
    }
}

impl Exposed for PostgresServer {
    /// Connected processes sweep rows that are over. After a storm there are no processes.
    fn live(&self) -> Vec<String> {
        let live = "SELECT 'lease ' || name || ' ' || token FROM distlock.lease WHERE until > distlock.now()
            UNION ALL SELECT 'waiter ' || name || ' ' || token FROM distlock.waiter WHERE until > distlock.now()";
        self.sql(live).lines().map(str::to_owned).collect()
    }
}

impl Exposed for EtcdServer {
    /// Its leases have whole seconds, two at least.
    const TTL: Duration = Duration::from_secs(3);
}

/// Its sessions may be as short as these leases need; places in a queue outlive a process by four seconds.
impl Exposed for ZooKeeperServer {}
