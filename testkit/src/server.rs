//! A redis-server of the test's own.

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use redis::FromRedisValue;

use crate::certificates::Certificate;
use crate::process::{self, Guardian};
use crate::wall_clock::WallClock;

/// How long a server may take to answer for the first time, and one command of a test later.
const ANSWER: Duration = Duration::from_secs(60);

/// A real redis-server on 127.0.0.1 with a port, a unix socket and a directory of its own.
///
/// It is killed and its directory removed when this is dropped, and also when the test process
/// ends without dropping it (a `static`, a SIGKILL).
pub struct RedisServer {
    settings: RedisServerBuilder,
    port: u16,
    /// Where the nodes of a cluster talk to each other. As `port`, it stays the same over restarts.
    bus_port: u16,
    dir: PathBuf,
    running: Option<Running>,
}

/// What the server is started with; see [`RedisServer::builder`].
#[derive(Debug, Clone, Default)]
pub struct RedisServerBuilder {
    args: Vec<String>,
    password: Option<String>,
    durable: bool,
    tls: Option<Certificate>,
    sentinel: Option<String>,
    cluster: bool,
    clock: Option<WallClock>,
}

/// The process, killed when dropped.
struct Running {
    child: Child,
    _guardian: Guardian,
}

impl Drop for Running {
    fn drop(&mut self) {
        process::kill(&mut self.child);
    }
}

impl RedisServerBuilder {
    /// More arguments for `redis-server`, for example `["--maxmemory", "1mb"]`.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Asks every client for this password; [`RedisServer::url`] contains it.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Writes every change to disk at once, so that data survives [`RedisServer::kill9`]. Without
    /// it nothing does.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Speaks TLS at its port, and nothing else; by this certificate, with whose authority clients may show
    /// one of theirs. To demand that, `args(["--tls-auth-clients", "yes"])`.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.tls = Some(certificate.clone());
        self
    }

    /// Goes by this wall clock.
    pub fn clock(mut self, clock: &WallClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// A sentinel with this configuration, and not a server that keeps data.
    pub(crate) fn sentinel(mut self, config: String) -> Self {
        self.sentinel = Some(config);
        self
    }

    /// A node of a cluster.
    pub(crate) fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// Starts the server; returns when it answers.
    pub fn start(self) -> RedisServer {
        let dir = process::temp_path("redis");
        fs::create_dir(&dir).expect("create a directory for redis-server");
        let mut server = RedisServer { settings: self, port: 0, bus_port: 0, dir, running: None };
        let start = Instant::now();
        // Another process may take a port between the look and the server's bind.
        loop {
            (server.port, server.bus_port) = (free_port(), free_port());
            match server.launch() {
                Ok(()) => return server,
                Err(log) => {
                    assert!(start.elapsed() < ANSWER, "redis-server does not start:\n{log}")
                }
            }
        }
    }
}

impl RedisServer {
    /// A server without persistence and without a password.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with other settings.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its URL, with the password if it has one.
    pub fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// The URL of one of its databases. Tests keep their own data in another database than the
    /// locks, so that [`lock_keys`](Self::lock_keys) shows locks only.
    pub fn url_of_db(&self, db: u8) -> String {
        format!("{}/{db}", self.url())
    }

    /// Its URL as seen through another address, for example a [`Proxy`](crate::Proxy)'s.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        match &self.settings.password {
            Some(password) => format!("redis://:{password}@{addr}"),
            None => format!("redis://{addr}"),
        }
    }

    /// The URL of one that speaks TLS, at this host's name, which its certificate must have; the authority is in
    /// it.
    pub fn tls_url(&self, host: &str) -> String {
        let ca = self.settings.tls.as_ref().expect("it speaks TLS").ca.display();
        let password = self.settings.password.iter().map(|p| format!(":{p}@")).collect::<String>();
        format!("rediss://{password}{host}:{}?ca={ca}", self.port)
    }

    /// The URL of its unix socket, with the password if it has one.
    pub fn unix_url(&self) -> String {
        let query = self.settings.password.iter().map(|p| format!("?pass={p}")).collect::<String>();
        format!("redis+unix://{}{query}", self.socket().display())
    }

    /// SIGKILL: no goodbye to clients, nothing written to disk.
    pub fn kill9(&mut self) {
        self.running = None;
    }

    /// SIGSTOP: connections stay open, nothing is answered, the kernel takes bytes in.
    pub fn stop(&self) {
        process::stop(self.child());
    }

    /// SIGCONT after [`stop`](Self::stop): what was sent meanwhile is carried out now.
    pub fn cont(&self) {
        process::cont(self.child());
    }

    /// Starts it again at the same port and in the same directory, after killing it if it runs. It
    /// has its data again if it is [`durable`](RedisServerBuilder::durable).
    pub fn restart(&mut self) {
        self.kill9();
        let start = Instant::now();
        while let Err(log) = self.launch() {
            assert!(start.elapsed() < ANSWER, "redis-server does not start again:\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// As [`restart`](Self::restart), but with all data lost.
    pub fn restart_empty(&mut self) {
        self.kill9();
        fs::remove_dir_all(&self.dir).expect("remove the server's directory");
        fs::create_dir(&self.dir).expect("create the server's directory");
        self.restart();
    }

    /// Sends one command on a connection of its own, past every proxy: the test's own eye and hand.
    #[track_caller]
    pub fn cli<T: FromRedisValue>(&self, args: &[&str]) -> T {
        self.try_cli(args).unwrap_or_else(|e| panic!("{}: {e}", args.join(" ")))
    }

    /// All keys of database 0, sorted.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.cli(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    /// The locks of database 0 that are held.
    #[track_caller]
    pub fn held_locks(&self) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| key.contains(":lock:"));
        keys
    }

    /// All keys of database 0 but the fence counters, which outlive every lock: empty means that no
    /// lock is held, there is no waiter, and nothing is left of earlier ones.
    #[track_caller]
    pub fn lock_keys(&self) -> Vec<String> {
        let mut keys = self.keys();
        let is_ours = |key: &String, name: &str| key == name || key.ends_with(&format!(":{name}"));
        let is_record = |key: &String| key.starts_with("process:") || key.contains(":process:");
        // In a cluster, of each slot.
        let is_counter = |key: &String| is_ours(key, "fence") || key.contains("fence:{");
        keys.retain(|key| {
            let is_list = is_ours(key, "processes") || is_ours(key, "{processes}");
            // What the servers of a quorum keep beside it.
            let is_rule = is_ours(key, "quorum")
                || ["fence:quorum", "quorum:id", "quorum:watched"]
                    .iter()
                    .any(|name| key.ends_with(name));
            let is_kept = is_counter(key) || is_list || is_record(key) || is_rule;
            key.contains(":lock:") || !is_kept
        });
        keys
    }

    /// A connection of the test's own, past every proxy, for what may be answered with an error.
    #[track_caller]
    pub fn eye(&self) -> redis::Connection {
        let client = redis::Client::open(self.unix_url()).expect("a URL");
        client.get_connection_with_timeout(ANSWER).expect("connect")
    }

    /// Has it started, ended or stopped from within a runtime, which goes on meanwhile.
    pub async fn blocking(mut self, act: impl FnOnce(&mut Self) + Send + 'static) -> Self {
        let act = move || {
            act(&mut self);
            self
        };
        tokio::task::spawn_blocking(act).await.expect("no panic")
    }

    pub(crate) fn try_cli<T: FromRedisValue>(&self, args: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.unix_url())?;
        let ask = || {
            let mut connection = client.get_connection_with_timeout(ANSWER)?;
            connection.set_read_timeout(Some(ANSWER))?;
            redis::cmd(args[0]).arg(&args[1..]).query(&mut connection)
        };
        loop {
            match ask() {
                // By a signal: the end of a process that another test started.
                Err(fault) if is_interrupted(&fault) => {}
                answer => return answer,
            }
        }
    }

    /// Whether it was not killed.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    fn child(&self) -> &Child {
        &self.running.as_ref().expect("the server was killed").child
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("redis.sock")
    }

    fn command(&self) -> Command {
        // Another one than the installed: see `scripts/matrix`.
        let mut command = Command::new(program());
        if let Some(config) = &self.settings.sentinel {
            // It writes what it learns there.
            let path = self.dir.join("sentinel.conf");
            if !path.exists() {
                fs::write(&path, config).expect("write the sentinel's configuration");
            }
            command.arg(path).arg("--sentinel");
        }
        let port = self.port.to_string();
        match &self.settings.tls {
            None => command.args(["--port", &port]),
            Some(Certificate { cert, key, ca }) => command
                .args(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "optional"])
                .arg("--tls-cert-file")
                .arg(cert)
                .arg("--tls-key-file")
                .arg(key)
                .arg("--tls-ca-cert-file")
                .arg(ca),
        };
        command
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", if self.settings.durable { "yes" } else { "no" }])
            .args(["--appendfsync", "always"])
            .arg("--dir")
            .arg(&self.dir)
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--logfile")
            .arg(self.dir.join("log"));
        if let Some(password) = &self.settings.password {
            command.args(["--requirepass", password]);
        }
        if self.settings.cluster {
            command.args(["--cluster-enabled", "yes"]);
            if takes_cluster_port() {
                command.args(["--cluster-port", &self.bus_port.to_string()]);
            }
        }
        if let Some(clock) = &self.settings.clock {
            clock.set_for(&mut command);
        }
        command.args(&self.settings.args).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts the process and waits for its answer on the unix socket, which no other process can have:
    /// the TCP port is bound before it. `Err` is the server's log.
    fn launch(&mut self) -> Result<(), String> {
        let _ = fs::remove_file(self.socket());
        let child = self
            .command()
            .spawn()
            .expect("redis-server must be installed (scripts/test does it with apt-get)");
        let mut running = Running { _guardian: Guardian::of(&child, &self.dir), child };
        let start = Instant::now();
        while self.try_cli::<String>(&["PING"]).is_err() {
            let ended = running.child.try_wait().expect("look at redis-server").is_some();
            if ended || start.elapsed() > ANSWER {
                return Err(fs::read_to_string(self.dir.join("log")).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.running = Some(running);
        Ok(())
    }
}

impl std::fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisServer").field("port", &self.port).field("dir", &self.dir).finish()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill9();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn is_interrupted(fault: &redis::RedisError) -> bool {
    fault.is_io_error() && fault.to_string().contains("Interrupted")
}

fn program() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// Before 7.0 the port of a cluster's bus is 10,000 above that of clients.
pub(crate) fn takes_cluster_port() -> bool {
    major_version() >= 7
}

/// Which server it is that tests start: 6 of `Redis server v=6.2.14`.
pub fn major_version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(ask_for_version)
}

fn ask_for_version() -> u32 {
    let said = Command::new(program()).arg("--version").output().expect("it says its version");
    let said = String::from_utf8_lossy(&said.stdout);
    let version = said.split_once("v=").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
    version.expect("a version")
}

/// A free port below those the kernel gives to outgoing connections. From that range, a client that
/// keeps knocking at a killed server's port would sooner or later be connected to itself.
pub(crate) fn free_port() -> u16 {
    loop {
        let random = RandomState::new().build_hasher().finish();
        let port = 15_000 + (random % 15_000) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
