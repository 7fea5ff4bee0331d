//! A PostgreSQL server of the test's own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use distlock_runtime::LockManager;
use rustix::process::{Pid, Signal, kill_process};

use crate::conformance::{Remote, Subject};
use crate::process::{self, Guardian};
use crate::server::free_port;
use crate::{Certificate, connect, wait_until};

/// How long a server may take to start, recovery after a crash included.
const ANSWER: Duration = Duration::from_secs(30);
/// Its superuser.
const USER: &str = "distlock";
/// Small, and quick on a disk that it need not trust: what is killed here is the server, not the machine.
const SETTINGS: [&str; 6] = [
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "max_connections=300",
    "listen_addresses=127.0.0.1",
    "log_min_messages=warning",
];

/// A real PostgreSQL server on 127.0.0.1 with a port and a directory of its own, whose superuser needs no
/// password. It runs as another user where the tests run as root, which it refuses.
///
/// It is killed and its directory removed when this is dropped, and also when the test process ends without
/// dropping it.
pub struct PostgresServer {
    port: u16,
    dir: PathBuf,
    certificate: Option<Certificate>,
    running: Option<Running>,
}

/// The server's first process, killed when dropped, and all others with it.
struct Running {
    child: Child,
    _guardian: Guardian,
}

impl Running {
    /// A signal to all its processes, the first one first: nobody starts others then.
    fn signal(&self, signal: Signal) {
        let first = process::pid(&self.child);
        let _ = kill_process(first, signal);
        for other in children(self.child.id()) {
            let _ = kill_process(other, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let others = children(self.child.id());
        process::kill(&mut self.child);
        for other in others {
            let _ = kill_process(other, Signal::KILL);
        }
    }
}

impl PostgresServer {
    /// Starts one; returns when it answers.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts one that speaks TLS to who asks for it, by this certificate.
    pub fn encrypted(certificate: &Certificate) -> Self {
        Self::start_with(Some(certificate.clone()))
    }

    fn start_with(certificate: Option<Certificate>) -> Self {
        let dir = process::temp_path("postgres");
        new_data(&dir);
        let mut server = Self { port: 0, dir, certificate, running: None };
        let start = Instant::now();
        // Another process may take the port between the look and the server's bind.
        loop {
            server.port = free_port();
            match server.launch() {
                Ok(()) => return server,
                Err(log) => assert!(start.elapsed() < ANSWER, "postgres does not start:\n{log}"),
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
        format!("postgres://{USER}@{addr}/postgres")
    }

    /// Runs SQL past every proxy, with `psql`: its output, a line for each row and `|` between columns.
    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        self.try_sql(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// As [`sql`](Self::sql); `Err` is what the server says.
    pub fn try_sql(&self, text: &str) -> Result<String, String> {
        let (port, socket) = (self.port.to_string(), self.dir.display().to_string());
        let mut psql = Command::new(binaries().join("psql"));
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", "postgres"]);
        psql.args(["-h", &socket, "-p", &port, "-c", text]);
        let output = psql.stdin(Stdio::null()).output().expect("run psql");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// SIGKILL to all its processes.
    pub fn kill9(&mut self) {
        self.running = None;
    }

    /// SIGSTOP to all its processes: connections stay open, and nothing is answered.
    pub fn stop(&self) {
        self.running().signal(Signal::STOP);
    }

    /// SIGCONT after [`stop`](Self::stop).
    pub fn cont(&self) {
        self.running().signal(Signal::CONT);
    }

    /// Starts it again at the same port with its data, after killing it if it runs.
    pub fn restart(&mut self) {
        self.kill9();
        let start = Instant::now();
        while let Err(log) = self.launch() {
            assert!(start.elapsed() < ANSWER, "postgres does not start again:\n{log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// As [`restart`](Self::restart), but with all data lost.
    pub fn restart_empty(&mut self) {
        self.kill9();
        fs::remove_dir_all(&self.dir).expect("remove the server's directory");
        new_data(&self.dir);
        self.restart();
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server was killed")
    }

    /// Starts the process and waits for its answer. `Err` is the server's log.
    fn launch(&mut self) -> Result<(), String> {
        let log = self.dir.join("log");
        let mut command = unprivileged(&binaries().join("postgres"));
        command.arg("-D").arg(&self.dir).arg("-p").arg(self.port.to_string());
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        if let Some(Certificate { cert, key, .. }) = &self.certificate {
            let own = [("ssl_cert_file", cert), ("ssl_key_file", key)].map(|(setting, file)| {
                format!("{setting}={}", own_copy(file, &self.dir).display())
            });
            command.args(["-c", "ssl=on", "-c", &own[0], "-c", &own[1]]);
        }
        command.arg("-c").arg(format!("unix_socket_directories={}", self.dir.display()));
        let output = File::create(&log).expect("create a log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = command.spawn().expect("start postgres");
        let mut running = Running { _guardian: Guardian::of(&child, &self.dir), child };
        let start = Instant::now();
        while self.try_sql("SELECT 1").is_err() {
            let ended = running.child.try_wait().expect("look at postgres").is_some();
            if ended || start.elapsed() > ANSWER {
                return Err(fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.running = Some(running);
        Ok(())
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill9();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Subject for PostgresServer {
    fn start() -> Self {
        Self::start()
    }

    async fn manager(&self) -> LockManager {
        connect(&self.url()).await
    }

    /// Nothing either where there is no schema yet.
    fn left(&self) -> Vec<String> {
        const LEFT: &str = "SELECT 'lease ' || name || ' ' || token FROM distlock.lease
            UNION ALL SELECT 'waiter ' || name || ' ' || token FROM distlock.waiter";
        match self.try_sql(LEFT) {
            Ok(left) => left.lines().map(str::to_owned).collect(),
            Err(error) if error.contains("does not exist") => Vec::new(),
            Err(error) => panic!("{LEFT}: {error}"),
        }
    }
}

impl Remote for PostgresServer {
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

/// Where the programs are: Debian has them outside of `PATH`.
fn binaries() -> &'static Path {
    static BINARIES: OnceLock<PathBuf> = OnceLock::new();
    BINARIES.get_or_init(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let debian = versions.map(|version| version.path().join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let has_all = |place: &PathBuf| {
            ["initdb", "postgres", "psql"].iter().all(|program| place.join(program).exists())
        };
        let place = debian.chain(std::env::split_paths(&path)).find(has_all);
        place.expect("postgresql must be installed (scripts/test does it with apt-get)")
    })
}

/// Makes a data directory with nothing in it.
fn new_data(dir: &Path) {
    let copied = Command::new("cp").arg("-a").arg(template()).arg(dir).status();
    assert!(copied.is_ok_and(|status| status.success()), "copy a new data directory");
}

/// A new data directory, made once for each test process and copied for each server.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<(PathBuf, Guardian)> = OnceLock::new();
    &TEMPLATE
        .get_or_init(|| {
            let dir = process::temp_path("postgres-template");
            fs::create_dir(&dir).expect("create a data directory");
            if let Some((user, group)) = other_user() {
                chown(&dir, Some(user), Some(group)).expect("give a directory away");
            }
            let mut initdb = unprivileged(&binaries().join("initdb"));
            initdb.args([
                "-N",
                "-A",
                "trust",
                "-U",
                USER,
                "--wal-segsize=1",
                "-E",
                "UTF8",
                "--locale=C",
            ]);
            let output = initdb.arg("-D").arg(&dir).output().expect("run initdb");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "initdb: {error}");
            let guardian = Guardian::of_directory(&dir);
            (dir, guardian)
        })
        .0
}

/// A copy of a secret that the server's user may read, and nobody else.
fn own_copy(file: &Path, dir: &Path) -> PathBuf {
    let copy = dir.join(file.file_name().expect("a file"));
    fs::copy(file, &copy).expect("copy a file");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).expect("nobody else may read it");
    if let Some((user, group)) = other_user() {
        chown(&copy, Some(user), Some(group)).expect("give a file away");
    }
    copy
}

/// A program as a user that postgres does not refuse to run as.
pub(crate) fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    // Not a directory that the other user may not enter.
    command.current_dir("/");
    command
}

/// The user and group `postgres`, or else `nobody`, if this is root.
pub(crate) fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("the users of this machine");
    let ids = |name: &str| {
        let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let user = fields.find(|fields| fields[0] == name)?;
        Some((user[2].parse().ok()?, user[3].parse().ok()?))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("another user than root"))
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

/// Waits until a server has no lease and no waiter.
#[track_caller]
pub fn no_row_is_left(server: &PostgresServer) {
    wait_until("no row is left", || server.left().is_empty());
}
