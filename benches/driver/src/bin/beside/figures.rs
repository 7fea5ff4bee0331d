//! What is measured of one way in one round, and how it is said.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::peer;
use crate::server::Server;
use crate::shape::{Shape, WHILE};
use crate::way::{Locker, Way};

/// After which a server has counted what was done on connections that are closed.
const SETTLED: Duration = Duration::from_millis(300);
/// For how long they go on before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// What the tasks have had.
pub(crate) struct Tasks {
    /// Locks of each task.
    pub(crate) locks: Vec<u64>,
    pub(crate) worst: Duration,
    pub(crate) took: Duration,
}

pub(crate) struct Figures {
    tasks: Tasks,
    warm_up: u64,
    connections: u64,
    counts: Counts,
}

/// What a server has counted while the tasks had theirs.
pub(crate) struct Counts {
    writes: u64,
    /// Transactions, with those that only read. Sessions that only listen say them when they are closed: those of the
    /// warm-up are among them.
    statements: u64,
    worked: Duration,
}

impl Counts {
    /// What it has counted so far.
    pub(crate) fn of(server: &Server) -> Self {
        let statements = server.statements();
        Self { writes: server.writes(), statements, worked: server.worked() }
    }

    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            statements: self.statements - before.statements,
            worked: self.worked - before.worked,
        }
    }
}

impl Figures {
    pub(crate) async fn of(way: &Way, shape: &Shape, server: &Server) -> Self {
        match way {
            Way::Peer { command, .. } => {
                let (tasks, connections, counts) = peer::run(command, shape, server);
                Self { tasks, warm_up: 0, connections, counts }
            }
            _ => run(way, shape, server).await,
        }
    }

    fn locks(&self) -> u64 {
        self.tasks.locks.iter().sum()
    }

    fn rate(&self) -> f64 {
        self.locks() as f64 / self.tasks.took.as_secs_f64()
    }

    /// The round of the median rate, with the worst wait of all.
    pub(crate) fn median(mut rounds: Vec<Self>) -> Self {
        let worst = rounds.iter().map(|round| round.tasks.worst).max().unwrap_or_default();
        rounds.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        let mut median = rounds.swap_remove(rounds.len() / 2);
        median.tasks.worst = worst;
        median
    }

    pub(crate) fn beside(&self, first: &Self) -> String {
        let most = self.tasks.locks.iter().max().unwrap_or(&0);
        let least = self.tasks.locks.iter().min().unwrap_or(&0);
        format!(
            "{:6.0} locks/s ({:4.2})  {:>3} connections  {:4.1} writes, {:4.1} transactions and {:.0} µs of the server's per lock  \
             most/least per task {most}/{least}  worst wait {:.0?}",
            self.rate(),
            self.rate() / first.rate(),
            self.connections,
            self.counts.writes as f64 / self.locks() as f64,
            self.counts.statements as f64 / (self.warm_up + self.locks()) as f64,
            self.counts.worked.as_micros() as f64 / self.locks() as f64,
            self.tasks.worst,
        )
    }
}

/// The tasks, for so long: the locks of each, and its longest wait.
fn spawn(lockers: &[Locker], shape: &Shape, long: Duration) -> JoinSet<(u64, Duration)> {
    let (mut tasks, start) = (JoinSet::new(), Instant::now());
    for n in 0..shape.clients * shape.tasks {
        let locker = lockers[n % lockers.len()].clone();
        let (keys, body) = (shape.keys, shape.body);
        tasks.spawn(async move {
            let (mut done, mut worst) = (0, Duration::ZERO);
            while start.elapsed() < long {
                let asked = Instant::now();
                locker.lock(done as usize % keys, body).await;
                worst = worst.max(asked.elapsed());
                done += 1;
            }
            (done, worst)
        });
    }
    tasks
}

/// The tasks in this process; how many connections there were, and what was written.
async fn run(way: &Way, shape: &Shape, server: &Server) -> Figures {
    // A manager is shared, a connection is not.
    let count = match way {
        Way::Distlock => shape.clients,
        _ => shape.clients * shape.tasks,
    };
    let mut lockers = Vec::new();
    for _ in 0..count {
        let locker = Locker::new(way, server).await;
        for key in 0..shape.keys.min(4) {
            locker.lock(key, Duration::ZERO).await;
        }
        lockers.push(locker);
    }
    // A session of Postgres compiles and plans functions when it first calls them.
    let statements = server.statements();
    let warm_up =
        spawn(&lockers, shape, WARM_UP).join_all().await.iter().map(|(done, _)| done).sum();
    let (before, start) = (Counts::of(server), Instant::now());
    let tasks = spawn(&lockers, shape, WHILE);
    tokio::time::sleep(WHILE / 2).await;
    let connections = server.connections();
    let done = tasks.join_all().await;
    let took = start.elapsed();
    let mut counts = Counts::of(server).since(&before);
    let (locks, waits): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let worst = waits.into_iter().max().unwrap_or_default();
    for locker in lockers {
        if let Locker::Manager(manager) = locker {
            manager.close(WHILE).await;
        }
    }
    tokio::time::sleep(SETTLED).await;
    counts.statements = server.statements() - statements;
    Figures { tasks: Tasks { locks, worst, took }, warm_up, connections, counts }
}
