//! A ZooKeeper server of the test's own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use distlock_runtime::LockManager;

use crate::conformance::{Remote, Subject};
use crate::connect;
use crate::process::{self, Guardian};
use crate::server::free_port;

/// How long a server may take to start.
const ANSWER: Duration = Duration::from_secs(60);
/// How long it may take to answer one question.
const WORD: Duration = Duration::from_secs(10);
/// What a session may ask for: from less than a second to more than a test takes.
const SESSIONS: [&str; 3] = ["tickTime=100", "minSessionTimeout=400", "maxSessionTimeout=600000"];
/// Where locks are.
const ROOT: &str = "/distlock";

/// A real ZooKeeper server on 127.0.0.1 with a port and a directory of its own, alone in its ensemble.
///
/// It is killed and its directory removed when this is dropped, and also when the test process ends without
/// dropping it.
pub struct ZooKeeperServer {
    port: u16,
    dir: PathBuf,
    settings: Vec<String>,
    running: Option<Running>,
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

impl ZooKeeperServer {
    /// Starts one; returns when it answers.
    pub fn start() -> Self {
        Self::start_with(&SESSIONS)
    }

    /// Starts one with these lines in its configuration, in place of those about sessions.
    pub fn start_with(settings: &[&str]) -> Self {
        let dir = process::temp_path("zookeeper");
        fs::create_dir(&dir).expect("create a data directory");
        let settings = settings.iter().map(|&line| line.to_owned()).collect();
        let mut server = Self { port: 0, dir, settings, running: None };
        let start = Instant::now();
        // Another process may take the port between the look and the server's bind.
        loop {
            server.port = free_port();
            match server.launch() {
                Ok(()) => return server,
                Err(log) => assert!(start.elapsed() < ANSWER, "zookeeper does not start:\n{log}"),
            }
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// Its URL as seen through another address, for example a [`Proxy`](crate::Proxy)'s.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        format!("zookeeper://{addr}")
    }

    /// What it answers to one of its words of four letters; nothing if it cannot be asked.
    pub fn word(&self, word: &str) -> String {
        let asked = || {
            let mut stream = TcpStream::connect_timeout(&self.addr(), WORD)?;
            stream.set_read_timeout(Some(WORD))?;
            stream.write_all(word.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        asked().unwrap_or_default()
    }

    /// The ephemeral nodes there are, of all sessions.
    pub fn ephemerals(&self) -> Vec<String> {
        let dump = self.word("dump");
        let nodes = dump.lines().map(str::trim).filter(|line| line.starts_with('/'));
        nodes.map(str::to_owned).collect()
    }

    /// SIGKILL.
    pub fn kill9(&mut self) {
        self.running = None;
    }

    /// SIGSTOP: connections stay open, and nothing is answered.
    pub fn stop(&self) {
        process::stop(&self.running().child);
    }

    /// SIGCONT after [`stop`](Self::stop).
    pub fn cont(&self) {
        process::cont(&self.running().child);
    }

    /// Starts it again at the same port with its data, after killing it if it runs.
    pub fn restart(&mut self) {
        self.kill9();
        let start = Instant::now();
        while let Err(log) = self.launch() {
            assert!(start.elapsed() < ANSWER, "zookeeper does not start again:\n{log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// As [`restart`](Self::restart), without any data.
    pub fn restart_empty(&mut self) {
        self.kill9();
        let _ = fs::remove_dir_all(self.dir.join("version-2"));
        self.restart();
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server was killed")
    }

    /// Starts the process and waits for its answer. `Err` is the server's log.
    fn launch(&mut self) -> Result<(), String> {
        let (config, log) = (self.dir.join("zoo.cfg"), self.dir.join("log"));
        let mut text = format!(
            "dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             maxClientCnxns=0\n4lw.commands.whitelist=*\n",
            self.dir.display(),
            self.port
        );
        for line in &self.settings {
            text.push_str(line);
            text.push('\n');
        }
        fs::write(&config, text).expect("write a configuration");
        let output = File::create(&log).expect("create a log");
        let mut command = Command::new("java");
        // Small, quick to start, and on a disk that it need not trust: what is killed here is the server, not the
        // machine.
        command.args(["-Xms16m", "-Xmx128m", "-Xshare:auto", "-XX:TieredStopAtLevel=1"]);
        command.args(["-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"]);
        command.args(["-Dzookeeper.log.dir=/nonexistent", "-Dzookeeper.jmx.log4j.disable=true"]);
        command.arg("-cp").arg(class_path());
        command.arg("org.apache.zookeeper.server.ZooKeeperServerMain").arg(&config);
        let errors = output.try_clone().expect("clone a file handle");
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command.spawn().expect("start java");
        let mut running = Running { _guardian: Guardian::of(&child, &self.dir), child };
        let start = Instant::now();
        // It answers before it takes sessions.
        while !self.word("srvr").contains("Mode:") {
            let ended = running.child.try_wait().expect("look at zookeeper").is_some();
            if ended || start.elapsed() > ANSWER {
                return Err(fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.running = Some(running);
        Ok(())
    }
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        self.kill9();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Subject for ZooKeeperServer {
    fn start() -> Self {
        Self::start()
    }

    async fn manager(&self) -> LockManager {
        connect(&self.url()).await
    }

    fn left(&self) -> Vec<String> {
        let root = format!("{ROOT}/");
        self.ephemerals().into_iter().filter(|node| node.starts_with(&root)).collect()
    }
}

/// A path of its own on a server that the tests of a process share: for those that leave the server alone.
pub struct ZooKeeperPath {
    server: &'static ZooKeeperServer,
    path: String,
}

impl ZooKeeperPath {
    /// What the server answers about everybody's nodes and watches.
    pub fn word(&self, word: &str) -> String {
        self.server.word(word)
    }

    /// The node of all locks.
    pub fn root(&self) -> String {
        format!("/{}{ROOT}/", self.path)
    }
}

impl Subject for ZooKeeperPath {
    fn start() -> Self {
        static SERVER: OnceLock<ZooKeeperServer> = OnceLock::new();
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let server = SERVER.get_or_init(ZooKeeperServer::start);
        Self { server, path: format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed)) }
    }

    async fn manager(&self) -> LockManager {
        connect(&self.url()).await
    }

    fn left(&self) -> Vec<String> {
        let root = self.root();
        self.server.ephemerals().into_iter().filter(|node| node.starts_with(&root)).collect()
    }
}

impl Remote for ZooKeeperPath {
    fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        format!("{}/{}", self.server.url_at(addr), self.path)
    }

    fn crash(&mut self) {
        panic!("others use the server: start one");
    }

    fn crash_empty(&mut self) {
        panic!("others use the server: start one");
    }

    fn freeze(&self) {
        panic!("others use the server: start one");
    }

    fn thaw(&self) {
        panic!("others use the server: start one");
    }
}

impl Remote for ZooKeeperServer {
    fn addr(&self) -> SocketAddr {
        self.addr()
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        self.url_at(addr)
    }

    /// It has its data again.
    fn crash(&mut self) {
        self.restart();
    }

    fn crash_empty(&mut self) {
        self.restart_empty();
    }

    fn freeze(&self) {
        self.stop();
    }

    fn thaw(&self) {
        self.cont();
    }
}

/// Where Debian has the classes; this one names those it needs.
fn class_path() -> &'static str {
    const CLASSES: &str = "/usr/share/java/zookeeper.jar";
    assert!(
        Path::new(CLASSES).exists(),
        "zookeeper must be installed (scripts/test does it with apt-get)"
    );
    CLASSES
}
