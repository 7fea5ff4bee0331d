//! A PostgreSQL server of the test's own.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::conformance::Subject as _;
use crate::own_server::{Program, Server};
use crate::process::{self, Guardian};
use crate::{Certificate, wait_until};

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

/// A real PostgreSQL server, whose superuser needs no password. It runs as another user where the tests run as root,
/// which it refuses.
pub type PostgresServer = Server<Postgres>;

/// What is special about it.
#[derive(Debug, Default)]
pub struct Postgres {
    certificate: Option<Certificate>,
}

impl Program for Postgres {
    const NAME: &'static str = "postgres";

    fn new_directory(dir: &Path) {
        let copied = Command::new("cp").arg("-a").arg(template()).arg(dir).status();
        assert!(copied.is_ok_and(|status| status.success()), "copy a new data directory");
    }

    fn command(server: &PostgresServer) -> Command {
        let mut command = unprivileged(&binaries().join("postgres"));
        command.arg("-D").arg(&server.dir).arg("-p").arg(server.ports.clients.to_string());
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        if let Some(Certificate { cert, key, .. }) = &server.program.certificate {
            let own = [("ssl_cert_file", cert), ("ssl_key_file", key)].map(|(setting, file)| {
                format!("{setting}={}", own_copy(file, &server.dir).display())
            });
            command.args(["-c", "ssl=on", "-c", &own[0], "-c", &own[1]]);
        }
        command.arg("-c").arg(format!("unix_socket_directories={}", server.dir.display()));
        command
    }

    fn answers(server: &PostgresServer) -> bool {
        server.try_sql("SELECT 1").is_ok()
    }

    fn url_at(addr: SocketAddr) -> String {
        format!("postgres://{USER}@{addr}/postgres")
    }

    /// Nothing either where there is no schema yet.
    fn left(server: &PostgresServer) -> Vec<String> {
        const LEFT: &str = "SELECT 'lease ' || name || ' ' || token FROM distlock.lease
            UNION ALL SELECT 'waiter ' || name || ' ' || token FROM distlock.waiter";
        match server.try_sql(LEFT) {
            Ok(left) => left.lines().map(str::to_owned).collect(),
            Err(error) if error.contains("does not exist") => Vec::new(),
            Err(error) => panic!("{LEFT}: {error}"),
        }
    }
}

impl PostgresServer {
    /// Starts one that speaks TLS to clients that ask for it, by this certificate.
    pub fn encrypted(certificate: &Certificate) -> Self {
        Self::start_program(Postgres { certificate: Some(certificate.clone()) })
    }

    /// Runs SQL past every proxy, with `psql`: its output, a line for each row and `|` between columns.
    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        self.try_sql(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// As [`sql`](Self::sql); `Err` is what the server says.
    pub fn try_sql(&self, text: &str) -> Result<String, String> {
        let (port, socket) = (self.ports.clients.to_string(), self.dir.display().to_string());
        let mut psql = Command::new(binaries().join("psql"));
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", "postgres"]);
        psql.args(["-h", &socket, "-p", &port, "-c", text]);
        let output = psql.stdin(Stdio::null()).output().expect("run psql");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
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

/// A copy of a secret that only the server's user may read.
fn own_copy(file: &Path, dir: &Path) -> PathBuf {
    let copy = dir.join(file.file_name().expect("a file"));
    fs::copy(file, &copy).expect("copy a file");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).expect("only its owner reads it");
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

/// Waits until a server has no lease and no waiter.
#[track_caller]
pub fn no_row_is_left(server: &PostgresServer) {
    wait_until("no row is left", || server.left().is_empty());
}
