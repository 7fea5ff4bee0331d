//! The server, and what it counts.

use std::fs;
use std::ops::Range;
use std::time::Duration;

use distlock_testkit::{EtcdServer, PostgresServer, ZooKeeperServer};

/// In which Linux counts the time of processors, on all machines that are common.
const TICK: Duration = Duration::from_millis(10);

pub(crate) enum Server {
    Postgres(PostgresServer),
    Etcd(EtcdServer),
    ZooKeeper(ZooKeeperServer),
}

impl Server {
    pub(crate) fn start(store: &str) -> Self {
        match store {
            "postgres" => {
                let server = PostgresServer::start();
                server.sql("CREATE TABLE bench AS SELECT generate_series(0, 999) AS id");
                server.sql("ALTER TABLE bench ADD PRIMARY KEY (id)");
                Self::Postgres(server)
            }
            "etcd" => Self::Etcd(EtcdServer::start()),
            "zookeeper" => Self::ZooKeeper(ZooKeeperServer::start()),
            _ => panic!("postgres, etcd or zookeeper, not {store}"),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::Etcd(server) => server.url(),
            Self::ZooKeeper(server) => server.url(),
        }
    }

    /// `host:port`.
    pub(crate) fn addr(&self) -> String {
        match self {
            Self::Postgres(server) => server.addr().to_string(),
            Self::Etcd(server) => server.addr().to_string(),
            Self::ZooKeeper(server) => server.addr().to_string(),
        }
    }

    pub(crate) fn postgres(&self) -> &PostgresServer {
        let Self::Postgres(server) = self else { panic!("it is no Postgres") };
        server
    }

    /// What it has written so far: transactions, entries of the log.
    pub(crate) fn writes(&self) -> u64 {
        match self {
            Self::Postgres(server) => {
                let next = server.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())");
                next.parse().expect("a number")
            }
            Self::Etcd(server) => {
                metric(&server.get("/metrics"), "etcd_server_proposals_committed_total")
            }
            Self::ZooKeeper(server) => {
                let word = server.word("srvr");
                let zxid = word.lines().find_map(|line| line.strip_prefix("Zxid: 0x"));
                let zxid = zxid.and_then(|hex| u64::from_str_radix(hex, 16).ok()).expect("a zxid");
                // Above that, which election it is.
                zxid & u64::from(u32::MAX)
            }
        }
    }

    /// The transactions of a Postgres so far, with those that only read, as far as it has counted them: each connection says it
    /// once a second, and when it is closed.
    pub(crate) fn statements(&self) -> u64 {
        let Self::Postgres(server) = self else { return 0 };
        const COMMITTED: &str =
            "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'";
        server.sql(COMMITTED).parse().expect("a number")
    }

    /// The time for which processors have worked for a Postgres; of others it is not counted.
    pub(crate) fn worked(&self) -> Duration {
        let Self::Postgres(server) = self else { return Duration::ZERO };
        let file = server.sql("SELECT pg_read_file('postmaster.pid')");
        let postmaster = file.lines().next().expect("its number").to_owned();
        let processes = fs::read_dir("/proc").expect("the processes").flatten();
        let stats =
            processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        let ticks = |stat: String| {
            // The name stands in parentheses, and may have any character.
            let (begin, rest) = stat.rsplit_once(") ")?;
            let fields: Vec<_> = rest.split(' ').collect();
            let sum = |range: Range<usize>| -> Option<u64> {
                fields.get(range)?.iter().map(|field| field.parse::<u64>().ok()).sum()
            };
            // The first process has the time of those that have ended.
            match begin.split(' ').next() == Some(&*postmaster) {
                true => sum(11..15),
                false if fields.get(1) == Some(&&*postmaster) => sum(11..13),
                false => None,
            }
        };
        TICK * u32::try_from(stats.filter_map(ticks).sum::<u64>()).expect("a short run")
    }

    /// Connections of clients.
    pub(crate) fn connections(&self) -> u64 {
        match self {
            Self::Postgres(server) => {
                const CLIENTS: &str =
                    "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = 'postgres'";
                server.sql(CLIENTS).parse().expect("a number")
            }
            // Descriptors of the process would count its files, too.
            Self::Etcd(server) => open_at(server.addr().port()),
            Self::ZooKeeper(server) => open_at(server.addr().port()),
        }
    }
}

fn metric(page: &str, name: &str) -> u64 {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse::<f64>().ok()).expect("a number") as u64
}

/// Connections that are established to a port of this machine.
fn open_at(port: u16) -> u64 {
    const ESTABLISHED: &str = "01";
    let table = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let is_client = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        let is_there = fields.nth(1) == Some(ESTABLISHED);
        is_there && local.ends_with(&format!(":{port:04X}"))
    };
    table.iter().flat_map(|table| table.lines()).filter(is_client).count() as u64
}
