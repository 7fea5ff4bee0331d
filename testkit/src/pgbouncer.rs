//! A PgBouncer of the test's own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::postgres::{PostgresServer, other_user, unprivileged};
use crate::process::{self, Guardian};
use crate::server::free_port;
use crate::wait_until;

/// PgBouncer in transaction mode: each transaction may get another connection to the server.
///
/// It is killed when this is dropped, and also when the test process ends without dropping it.
pub struct PgBouncer {
    port: u16,
    dir: PathBuf,
    child: Child,
    _guardian: Guardian,
}

impl PgBouncer {
    /// Starts one in front of a server, with so many connections to it; returns when it listens.
    pub fn before(server: &PostgresServer, connections: usize) -> Self {
        let dir = process::temp_path("pgbouncer");
        fs::create_dir(&dir).expect("create a directory for pgbouncer");
        let (port, config, users) = (free_port(), dir.join("config"), dir.join("users"));
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=distlock\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {connections}\nignore_startup_parameters = extra_float_digits\n",
            server.addr().port(),
            users.display(),
        );
        fs::write(&config, text).expect("write a configuration");
        fs::write(&users, "\"distlock\" \"\"\n").expect("write the users");
        if let Some((user, group)) = other_user() {
            for path in [&dir, &config, &users] {
                chown(path, Some(user), Some(group)).expect("give a file away");
            }
        }
        let mut command = unprivileged(Path::new(&program()));
        let output = File::create(dir.join("log")).expect("create a log");
        command.arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = command.spawn().expect("start pgbouncer");
        let bouncer = Self { port, _guardian: Guardian::of(&child, &dir), child, dir };
        wait_until("pgbouncer listens", || TcpStream::connect(bouncer.addr()).is_ok());
        bouncer
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        process::kill(&mut self.child);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Debian has it outside of `PATH`.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let program = places.map(|place| place.join("pgbouncer")).find(|program| program.exists());
    program.expect("pgbouncer must be installed (scripts/test does it with apt-get)")
}
