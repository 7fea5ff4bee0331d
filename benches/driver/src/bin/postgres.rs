//! distlock on Postgres beside what is used there instead: an advisory lock (as sqlx's `PgAdvisoryLock` takes it) and a
//! row that is locked with `SELECT … FOR UPDATE`, each on a connection of its own.
//!
//! ```sh
//! cargo run --release -p distlock-bench --bin postgres
//! ```
#![allow(clippy::print_stdout, reason = "figures are its answer")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::conformance::Subject as _;
use distlock_testkit::{LONG, PostgresServer, patient};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

const ROUNDS: usize = 3;
const WHILE: Duration = Duration::from_secs(2);
const WAITERS: usize = 200;
/// Of distlock: the waiters are tasks of so many processes.
const PROCESSES: usize = 8;
const CANCELLED: u64 = 500;

#[derive(Clone, Copy)]
enum Way {
    Distlock,
    Advisory,
    ForUpdate,
}

const WAYS: [(&str, Way); 3] = [
    ("distlock", Way::Distlock),
    ("pg_advisory_lock", Way::Advisory),
    ("SELECT … FOR UPDATE", Way::ForUpdate),
];

/// What takes locks: a manager or a connection.
#[derive(Clone)]
enum Locker {
    Manager(LockManager),
    Advisory(Arc<Client>),
    ForUpdate(Arc<Client>),
}

impl Locker {
    async fn new(way: Way, url: &str) -> Self {
        match way {
            Way::Distlock => Self::Manager(patient(url).await),
            Way::Advisory => Self::Advisory(client(url).await),
            Way::ForUpdate => Self::ForUpdate(client(url).await),
        }
    }

    /// Takes a lock, runs the body, and gives it back.
    async fn lock(&self, key: usize, body: Duration) {
        let work = async {
            if !body.is_zero() {
                tokio::time::sleep(body).await;
            }
        };
        let sql = async |client: &Client, text: String| {
            client.simple_query(&text).await.expect("it is carried out");
        };
        match self {
            Self::Manager(manager) => {
                let request = manager.lock(format!("bench-{key}")).wait(LONG);
                request.run(work).await.expect("its turn comes");
            }
            Self::Advisory(client) => {
                sql(client, format!("SELECT pg_advisory_lock({key})")).await;
                work.await;
                sql(client, format!("SELECT pg_advisory_unlock({key})")).await;
            }
            Self::ForUpdate(client) => {
                sql(client, "BEGIN".into()).await;
                sql(client, format!("SELECT id FROM bench WHERE id = {key} FOR UPDATE")).await;
                work.await;
                sql(client, "COMMIT".into()).await;
            }
        }
    }
}

async fn client(url: &str) -> Arc<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    Arc::new(client)
}

#[tokio::main]
async fn main() {
    let server = PostgresServer::start();
    server.sql("CREATE TABLE bench AS SELECT generate_series(0, 999) AS id");
    server.sql("ALTER TABLE bench ADD PRIMARY KEY (id)");
    println!("One task, a free lock after the other, locks/s:");
    let mut rates = [const { Vec::new() }; WAYS.len()];
    for round in 0..ROUNDS {
        for turn in 0..WAYS.len() {
            let at = (turn + round) % WAYS.len();
            rates[at].push(free(WAYS[at].1, &server).await);
        }
    }
    for ((name, _), mut rates) in WAYS.iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        println!("  {name:20} {:8.0}", rates[ROUNDS / 2]);
    }
    println!("{WAITERS} tasks want one lock, each for 1 ms, for {WHILE:?}:");
    for (name, way) in WAYS {
        println!("  {name:20} {}", hot(way, &server).await);
    }
    println!(
        "{CANCELLED} calls dropped at a random moment, of a lock that is held half of the time:"
    );
    for (name, way) in WAYS {
        println!("  {name:20} {}", cancelled(way, &server).await);
    }
}

async fn free(way: Way, server: &PostgresServer) -> f64 {
    let locker = Locker::new(way, &server.url()).await;
    locker.lock(0, Duration::ZERO).await;
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < WHILE {
        locker.lock(done % 64, Duration::ZERO).await;
        done += 1;
    }
    done as f64 / start.elapsed().as_secs_f64()
}

async fn hot(way: Way, server: &PostgresServer) -> String {
    // A connection for each task; of distlock a few for each process.
    let count = if matches!(way, Way::Distlock) { PROCESSES } else { WAITERS };
    let mut lockers = Vec::new();
    for _ in 0..count {
        lockers.push(Locker::new(way, &server.url()).await);
    }
    let (commits, start) = (transactions(server), Instant::now());
    let mut tasks = JoinSet::new();
    for n in 0..WAITERS {
        let locker = lockers[n % count].clone();
        tasks.spawn(async move {
            let (mut done, mut worst) = (0_u64, Duration::ZERO);
            while start.elapsed() < WHILE {
                let asked = Instant::now();
                locker.lock(7, Duration::from_millis(1)).await;
                worst = worst.max(asked.elapsed());
                done += 1;
            }
            (done, worst)
        });
    }
    tokio::time::sleep(WHILE / 2).await;
    let connections =
        server.sql("SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = 'postgres'");
    let done = tasks.join_all().await;
    let took = start.elapsed().as_secs_f64();
    let locks: u64 = done.iter().map(|(done, _)| done).sum();
    let (most, least) = (done.iter().map(|(n, _)| n).max(), done.iter().map(|(n, _)| n).min());
    let worst = done.iter().map(|(_, worst)| *worst).max().unwrap_or_default();
    let calls = (transactions(server) - commits) as f64 / locks as f64;
    format!(
        "{:6.0} locks/s  {connections:>3} connections  {calls:.1} transactions per lock  most/least per task \
         {}/{}  worst wait {worst:.0?}",
        locks as f64 / took,
        most.unwrap_or(&0),
        least.unwrap_or(&0),
    )
}

/// Transactions that the server has counted.
fn transactions(server: &PostgresServer) -> u64 {
    // What sessions have counted is added up a moment later.
    std::thread::sleep(Duration::from_millis(1500));
    let counted = server.sql("SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'");
    counted.parse().expect("a number")
}

/// Calls that are dropped, as by a timeout around them; the connection goes back to its pool, as it does.
async fn cancelled(way: Way, server: &PostgresServer) -> String {
    let (one, other) =
        (Locker::new(way, &server.url()).await, Locker::new(way, &server.url()).await);
    let busy = tokio::spawn(async move {
        loop {
            other.lock(9, Duration::from_millis(2)).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let mut random = 1_u64;
    let mut stuck = 0;
    for _ in 0..CANCELLED {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let limit = Duration::from_micros((random >> 33) % 4000);
        let _ = tokio::time::timeout(limit, one.lock(9, Duration::from_millis(1))).await;
    }
    // Whoever has it holds it for some milliseconds.
    busy.abort();
    let _ = busy.await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    const HELD: &str =
        "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid IN (9))
        + (SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction')";
    stuck += server.sql(HELD).parse::<usize>().expect("a number");
    stuck += server.left().len();
    // A third one gets it, or not.
    let third = Locker::new(way, &server.url()).await;
    let next = tokio::time::timeout(Duration::from_secs(5), third.lock(9, Duration::ZERO)).await;
    let next = if next.is_ok() { "the next one has it" } else { "the next one waits for ever" };
    format!("left behind: {stuck}; {next}")
}
