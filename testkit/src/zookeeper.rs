//! A ZooKeeper server of the test's own.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock_runtime::LockManager;

use crate::conformance::{Remote, Subject};
use crate::connect;
use crate::ensemble::Member;
use crate::own_server::{Ports, Program, Server};

/// How long it may take to answer one question.
const WORD: Duration = Duration::from_secs(10);
/// What a session may ask for: from less than a second to more than a test takes.
const SESSIONS: [&str; 3] = ["tickTime=100", "minSessionTimeout=400", "maxSessionTimeout=600000"];
/// Where locks are.
const ROOT: &str = "/distlock";

/// A real ZooKeeper server, alone in its ensemble.
pub type ZooKeeperServer = Server<ZooKeeper>;

/// What is special about it.
#[derive(Debug)]
pub struct ZooKeeper {
    settings: Vec<String>,
    /// Its number, where it is not alone.
    number: Option<usize>,
}

impl Default for ZooKeeper {
    fn default() -> Self {
        Self::of(&SESSIONS)
    }
}

impl ZooKeeper {
    fn of(settings: &[&str]) -> Self {
        Self { settings: settings.iter().map(|&line| line.to_owned()).collect(), number: None }
    }
}

impl Program for ZooKeeper {
    const NAME: &'static str = "zookeeper";

    fn command(server: &ZooKeeperServer) -> Command {
        let config = server.dir.join("zoo.cfg");
        let mut text = format!(
            "dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             maxClientCnxns=0\n4lw.commands.whitelist=*\n",
            server.dir.display(),
            server.ports.clients
        );
        for line in &server.program.settings {
            text.push_str(line);
            text.push('\n');
        }
        fs::write(&config, text).expect("write a configuration");
        let number = server.program.number;
        if let Some(number) = number {
            fs::write(server.dir.join("myid"), number.to_string()).expect("write its number");
        }
        let mut command = Command::new("java");
        // Small, quick to start, and on a disk that it need not trust: what is killed here is the server, not the
        // machine.
        command.args(["-Xms16m", "-Xmx128m", "-Xshare:auto", "-XX:TieredStopAtLevel=1"]);
        command.args(["-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"]);
        command.args(["-Dzookeeper.log.dir=/nonexistent", "-Dzookeeper.jmx.log4j.disable=true"]);
        command.arg("-cp").arg(class_path());
        command.arg(match number {
            None => "org.apache.zookeeper.server.ZooKeeperServerMain",
            Some(_) => "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        });
        command.arg(&config);
        command.current_dir(&server.dir);
        command
    }

    /// It answers before it takes sessions.
    fn answers(server: &ZooKeeperServer) -> bool {
        server.word("srvr").contains("Mode:")
    }

    fn url_at(addr: SocketAddr) -> String {
        format!("zookeeper://{addr}")
    }

    fn left(server: &ZooKeeperServer) -> Vec<String> {
        of_locks(server, &format!("{ROOT}/"))
    }
}

impl Member for ZooKeeper {
    fn of(number: usize, ports: &[Ports]) -> Self {
        let mut one = Self::default();
        // In ticks: a follower that is silent for so long is gone.
        one.settings.extend(["initLimit=100".to_owned(), "syncLimit=10".to_owned()]);
        let line = |(n, ports): (usize, &Ports)| {
            format!("server.{n}=127.0.0.1:{}:{}", ports.members, ports.votes)
        };
        one.settings.extend(ports.iter().enumerate().map(line));
        Self { number: Some(number), ..one }
    }

    fn leads(server: &ZooKeeperServer) -> bool {
        server.word("srvr").contains("Mode: leader")
    }
}

impl ZooKeeperServer {
    /// Starts one with these lines in its configuration, in place of those about sessions.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_program(ZooKeeper::of(settings))
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
}

/// A path of its own on a server that the tests of a process share: for those that leave the server alone.
pub struct ZooKeeperPath {
    server: &'static ZooKeeperServer,
    path: String,
}

impl ZooKeeperPath {
    /// What the server answers about the nodes and watches of all clients.
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
        of_locks(self.server, &self.root())
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

/// The ephemeral nodes in a root that are no records of processes.
fn of_locks(server: &ZooKeeperServer, root: &str) -> Vec<String> {
    let is_of_lock = |node: &String| node.starts_with(root) && !node.contains(":process:");
    server.ephemerals().into_iter().filter(is_of_lock).collect()
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
