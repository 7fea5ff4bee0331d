//! A server of a test's own: a program with ports and a directory, that can be killed, stopped and robbed of its data.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use distlock_runtime::LockManager;
use rustix::process::{Pid, Signal, kill_process};

use crate::conformance::{Remote, Subject};
use crate::connect;
use crate::process::{self, Guardian};
use crate::server::free_port;

/// How long it may take to start and to answer, recovery after a crash included.
const ANSWER: Duration = Duration::from_secs(60);

/// What one kind of server has to itself.
pub trait Program: Sized + Send + Sync + 'static {
    /// What it is called.
    const NAME: &'static str;

    /// Makes its directory, with no data in it.
    fn new_directory(dir: &Path) {
        fs::create_dir(dir).expect("create a directory");
    }

    /// What starts it. Its output goes to a log.
    fn command(server: &Server<Self>) -> Command;

    /// Whether it serves clients.
    fn answers(server: &Server<Self>) -> bool;

    /// Its URL at this address.
    fn url_at(addr: SocketAddr) -> String;

    /// What is stored of locks, their holders and their waiters.
    fn left(server: &Server<Self>) -> Vec<String>;
}

/// Where a server listens: for clients, for other members of a cluster, and for their votes.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    pub(crate) clients: u16,
    pub(crate) members: u16,
    pub(crate) votes: u16,
}

impl Ports {
    pub(crate) fn free() -> Self {
        Self { clients: free_port(), members: free_port(), votes: free_port() }
    }
}

/// A real server on 127.0.0.1 with ports and a directory of its own.
///
/// It is killed and its directory removed when this is dropped, and also when the test process ends without
/// dropping it.
pub struct Server<P: Program> {
    pub(crate) program: P,
    pub(crate) ports: Ports,
    pub(crate) dir: PathBuf,
    running: Option<Running>,
}

impl<P: Program + Default> Server<P> {
    /// Starts one; returns when it answers.
    pub fn start() -> Self {
        Self::start_program(P::default())
    }
}

impl<P: Program> Server<P> {
    /// Starts one of several that know each other's ports; it answers only once enough of the others are there.
    pub(crate) fn start_member(program: P, ports: Ports) -> Self {
        let dir = process::temp_path(P::NAME);
        P::new_directory(&dir);
        let mut server = Self { program, ports, dir, running: None };
        server.restart();
        server
    }

    pub(crate) fn start_program(program: P) -> Self {
        let (dir, start) = (process::temp_path(P::NAME), Instant::now());
        P::new_directory(&dir);
        let mut server = Self { program, ports: Ports::free(), dir, running: None };
        // Another process may take a port between the look and the server's bind.
        while let Err(log) = server.launch() {
            assert!(start.elapsed() < ANSWER, "{} does not start:\n{log}", P::NAME);
            server.forget();
            server.ports = Ports::free();
        }
        server
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.clients).into()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// Its URL as seen through another address, for example a [`Proxy`](crate::Proxy)'s.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        P::url_at(addr)
    }

    /// SIGKILL to all its processes.
    pub fn kill9(&mut self) {
        self.running = None;
    }

    /// SIGSTOP to all its processes: connections stay open, and nothing is answered.
    pub fn stop(&self) {
        self.running().stop();
    }

    /// SIGCONT after [`stop`](Self::stop).
    pub fn cont(&self) {
        self.running().cont();
    }

    /// Starts it again at the same port with its data, after killing it if it runs.
    pub fn restart(&mut self) {
        self.kill9();
        let start = Instant::now();
        while let Err(log) = self.launch() {
            assert!(start.elapsed() < ANSWER, "{} does not start again:\n{log}", P::NAME);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// As [`restart`](Self::restart), without any data.
    pub fn restart_empty(&mut self) {
        self.kill9();
        self.forget();
        self.restart();
    }

    fn forget(&self) {
        fs::remove_dir_all(&self.dir).expect("remove the server's directory");
        P::new_directory(&self.dir);
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server was killed")
    }

    /// Starts the process and waits for its answer. `Err` is the server's log.
    fn launch(&mut self) -> Result<(), String> {
        let output = File::create(self.log()).expect("create a log");
        let errors = output.try_clone().expect("one log for both");
        let mut command = P::command(self);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{} must be installed (scripts/test does it with apt-get): {error}", P::NAME)
        });
        let mut running = Running { _guardian: Guardian::of(&child, &self.dir), child };
        let start = Instant::now();
        while !P::answers(self) {
            let ended = running.child.try_wait().expect("look at a server").is_some();
            if ended || start.elapsed() > ANSWER {
                return Err(fs::read_to_string(self.log()).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.running = Some(running);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}

impl<P: Program> Drop for Server<P> {
    fn drop(&mut self) {
        self.kill9();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl<P: Program + Default> Subject for Server<P> {
    fn start() -> Self {
        Self::start()
    }

    async fn manager(&self) -> LockManager {
        connect(&self.url()).await
    }

    fn left(&self) -> Vec<String> {
        P::left(self)
    }
}

impl<P: Program + Default> Remote for Server<P> {
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

/// The server's first process, killed when dropped, and those that it has started with it.
struct Running {
    child: Child,
    _guardian: Guardian,
}

impl Running {
    /// The first one first: then no others are started.
    fn stop(&self) {
        process::stop(&self.child);
        signal(&children(self.child.id()), Signal::STOP);
    }

    fn cont(&self) {
        process::cont(&self.child);
        signal(&children(self.child.id()), Signal::CONT);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let others = children(self.child.id());
        process::kill(&mut self.child);
        signal(&others, Signal::KILL);
    }
}

fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        // It may have ended.
        let _ = kill_process(*process, signal);
    }
}

/// The processes that a process has started and that are there.
fn children(parent: u32) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").expect("the processes of this machine").flatten();
    let child = |process: fs::DirEntry| {
        let pid: i32 = process.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        // Behind the name, which may contain anything: the state, and the parent.
        let (_, rest) = stat.rsplit_once(')')?;
        let of: u32 = rest.split_whitespace().nth(1)?.parse().ok()?;
        (of == parent).then(|| Pid::from_raw(pid)).flatten()
    };
    processes.filter_map(child).collect()
}
