//! Where the store is, and how it is reached.

use std::time::Duration;

use super::{LockManagerBuilder, StoreAt};

impl LockManagerBuilder {
    /// Where the locks are kept. Required.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | a Redis server, over TCP; port 6379 and database 0 unless given |
    /// | `rediss://…` | the same with TLS; feature `tls` |
    /// | `redis+unix:///path` | a Redis server, over a Unix socket |
    /// | `redis-sentinel://host[:port],…/primary[/db]` | the primary of that name, which these sentinels know; port 26379 unless given |
    /// | `redis-cluster://host[:port],…` | a Redis Cluster, by some of its nodes |
    /// | `redlock://host[:port],…[/db]` | three to nine independent Redis servers, of which a majority decides; see also [`urls`](Self::urls) |
    /// | `postgres://[user[:password]@]host[:port]/database` | a PostgreSQL database, with the feature `postgres` |
    /// | `etcd://[user:password@]host[:port],host[:port]` | an etcd cluster, with the feature `etcd` |
    /// | `zookeeper://[user:password@]host[:port],host[:port]/path` | ZooKeeper, with the feature `zookeeper` |
    /// | `memory://` | this manager's own memory: for tests and examples |
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::{LockError, LockManager};
    ///
    /// let socket = LockManager::builder().url("redis+unix:///run/redis.sock").build();
    /// let typo = LockManager::builder().url("redis:/127.0.0.1").build();
    /// assert!(socket.is_ok());
    /// assert!(matches!(typo, Err(LockError::InvalidOption { .. })));
    /// ```
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.store = StoreAt::Url(url.into());
        self
    }

    /// Where the locks are kept by a majority of independent Redis servers, as with `redlock://`: a URL for each, so
    /// that each may have its own user, password, database and options. Three to nine of `redis://`, `rediss://` or
    /// `redis+unix://`, the same in every process. Takes the place of [`url`](Self::url).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::{LockError, LockManager};
    ///
    /// let three = ["redis://:one@a.internal", "redis://:two@b.internal", "redis://:three@c.internal"];
    /// let locks = LockManager::builder().urls(three).build()?;
    /// let two = LockManager::builder().urls([three[0], three[1]]).build();
    /// assert!(matches!(two, Err(LockError::InvalidOption { .. })), "they cannot outvote one another");
    /// # Ok::<_, LockError>(())
    /// ```
    pub fn urls<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.store = StoreAt::Quorum(urls.into_iter().map(Into::into).collect());
        self
    }

    /// The trusted authorities and this process's certificate, for connections with TLS: the URL must be one
    /// with TLS. Default: the system's authorities, and no certificate of this process.
    ///
    /// ```no_run
    /// # use distlock_runtime as distlock;
    /// use distlock::{LockManager, TlsOptions};
    ///
    /// let ca = std::fs::read("/etc/redis/ca.pem").expect("a file");
    /// let tls = TlsOptions::new().ca_pem(ca).no_system_roots();
    /// let locks = LockManager::builder().url("rediss://locks.internal").tls(tls).build()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    ///
    /// If the URL has an IP address and the certificate a name, set the
    /// [`server_name`](crate::TlsOptions::server_name()):
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::{LockManager, TlsOptions};
    ///
    /// let tls = TlsOptions::new().server_name("locks.internal");
    /// let locks = LockManager::builder().url("rediss://10.0.0.7").tls(tls).build()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    ///
    /// Certificates are read when the manager is made. [`build`](Self::build) refuses it for a URL without TLS, and for
    /// `etcd://` and `zookeeper://`, which are reached in plain text.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, options: crate::TlsOptions) -> Self {
        self.settings.tls = Some(options);
        self
    }

    /// By how many replicas every grant and every renewal is confirmed (`WAIT`) before it counts; also
    /// `replicas=N` in the URL. Default: 0.
    ///
    /// A lock that was granted is on so many replicas then. With the number of all there are, the promotion of
    /// any of them keeps it; with fewer, that of one which had not confirmed loses it. While fewer than `replicas`
    /// are connected no lock is given, and leases end that were not confirmed in time: this buys safety in a
    /// failover with availability. A lone lock takes up to three times as long; many at once share the wait.
    ///
    /// Only `redis://`, `redis-sentinel://` and `redis-cluster://` have it: [`build`](Self::build) refuses it for every
    /// other store.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use distlock::LockManager;
    /// let locks = LockManager::builder().url("redis://127.0.0.1:6379").replicas(1).build()?;
    /// let same = LockManager::builder().url("redis://127.0.0.1:6379?replicas=1").build()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.settings.replicas = Some(replicas);
        self
    }

    /// How long replicas may take to confirm, for [`replicas`](Self::replicas). At least 1 ms, and less than
    /// `command_timeout`. Default: 100 ms.
    ///
    /// While a replica is silent, commands on the same connection wait for this long, again and again.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// let builder = LockManager::builder().url("redis://127.0.0.1:6379").replicas(1);
    /// let locks = builder.replica_timeout(Duration::from_millis(300)).build()?; // another region
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    pub fn replica_timeout(mut self, timeout: Duration) -> Self {
        self.settings.replica_timeout = Some(timeout);
        self
    }

    /// The user and password for sentinels, where those ask for a password: the ones in the URL are those
    /// of the servers. An empty user is the default one. Also `sentinel_user` and `sentinel_pass` in the URL.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// let builder = distlock::LockManager::builder().url("redis-sentinel://s1,s2,s3/orders");
    /// let locks = builder.sentinel_credentials("", "the sentinels' password").build()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    #[cfg(feature = "redis")]
    pub fn sentinel_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        let (user, password) = (user.into(), password.into());
        self.settings.sentinel =
            Some(distlock_core::authentication::Credentials { user, password });
        self
    }

    /// How long one command may take before it counts as failed. At least 1 ms. Default: 1 s.
    ///
    /// A call that does not wait for a lock is answered within this time, whatever the store does.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// // Below the timeout of the proxy in front of the service, and above the store's slowest answers:
    /// let builder = LockManager::builder().url("redis://127.0.0.1:6379");
    /// let locks = builder.command_timeout(Duration::from_millis(300)).build()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = timeout;
        self
    }

    /// How long it may take to open a connection, authentication included. At least 1 ms. Default: 5 s.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), LockError> {
    /// // A service that rather does not start than wait for its store:
    /// let builder = LockManager::builder().url("redis://127.0.0.1:1");
    /// let refused = builder.connect_timeout(Duration::from_millis(500)).connect().await;
    /// assert!(matches!(refused, Err(LockError::Backend { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How long an outage may last before new calls stop waiting for its end. Default: 5 s.
    ///
    /// A call whose `wait` is longer than `command_timeout` keeps trying while the store is unreachable.
    /// Once the outage has lasted for this time, new calls fail with [`Backend`](crate::LockError::Backend) after
    /// `command_timeout`, unless the store is back by then. Calls that were waiting before go on until
    /// their `wait` is over. With zero, no call that arrives during an outage waits for its end.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// // A web service that would rather answer with an error than wait:
    /// let locks = LockManager::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .command_timeout(Duration::from_millis(300))
    ///     .outage_grace(Duration::ZERO)
    ///     .build()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    pub fn outage_grace(mut self, grace: Duration) -> Self {
        self.settings.outage_grace = grace;
        self
    }

    /// The number of connections for commands, 1 to 64; one more is used for renewals. Default: 1,
    /// and 4 for Postgres. Redis (but not a quorum) and Postgres have it; [`build`](Self::build) refuses it for the others.
    ///
    /// One is usually fastest: commands of concurrent calls are sent together. All commands of one key use
    /// the same connection.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use distlock::LockManager;
    /// // For keys so large, or so many, that one connection is not enough:
    /// let locks = LockManager::builder().url("redis://127.0.0.1:6379").connections(4).build()?;
    /// assert!(LockManager::builder().url("memory://").connections(0).build().is_err());
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    pub fn connections(mut self, connections: usize) -> Self {
        self.settings.connections = Some(connections);
        self
    }

    /// Whether a connection that is used often may be read and written on the runtime of its callers.
    /// That makes locks on a near server cheaper: on loopback a lock of a lone task takes two thirds of
    /// the time and half the CPU; over a network it saves CPU alone. If such a runtime is blocked or ends, the
    /// manager's own thread takes the connection back within some 30 ms. A runtime without an I/O driver
    /// (`enable_io`) is found out by a panic inside of tokio, once, which is caught; a panic hook runs.
    ///
    /// `false`: the manager's thread reads and writes, and callers only write what they send.
    /// [`ManagerStatus::driven_by`](crate::ManagerStatus::driven_by) says which it is at present.
    /// Without effect on `memory://`. Default: `true`.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use distlock::{DrivenBy, LockManager};
    /// // A program whose runtimes are blocked for long, by computations for example:
    /// let builder = LockManager::builder().url("redis://127.0.0.1:6379");
    /// let locks = builder.io_on_caller_runtime(false).build()?;
    /// assert_eq!(locks.status().driven_by, DrivenBy::Manager);
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    pub fn io_on_caller_runtime(mut self, allowed: bool) -> Self {
        self.settings.io_on_caller_runtime = allowed;
        self
    }

    /// How long a server of a quorum (`redlock://`) does not count after it has started: it may have
    /// forgotten locks that it granted before. [`build`](Self::build) refuses it for every other store. At least the
    /// longest `ttl` and `min_hold` of every process that
    /// uses these servers; locks that last longer are refused as
    /// [`InvalidOption`](crate::LockError::InvalidOption).
    ///
    /// A process measures this by its own clock, from its first answer of the restarted server on, and adds a
    /// tenth. Then it leaves a note at the server, so that later processes do not wait. Nothing is granted for as long after
    /// the servers were used for the first time, or were all restarted: [`connect`](Self::connect) waits for it,
    /// beyond `connect_timeout`, and calls of a manager that was made by [`build`](Self::build) wait within their
    /// `wait`, or fail with [`Backend`](crate::LockError::Backend).
    ///
    /// Zero switches it off, for tests and development. `guard=` in a URL takes precedence. Default: the manager's
    /// `ttl`. If the guard is given and shorter than 30 s, it is also the default `ttl`.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// let locks = LockManager::builder()
    ///     .url("redlock://10.0.0.1,10.0.0.2,10.0.0.3")
    ///     .ttl(Duration::from_secs(10))
    ///     // Some locks are taken for longer.
    ///     .restart_guard(Duration::from_secs(60))
    ///     .build()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    pub fn restart_guard(mut self, guard: Duration) -> Self {
        self.settings.restart_guard = Some(guard);
        self
    }
}
