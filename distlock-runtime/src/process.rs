//! Which process it is: what a process answers when another one asks for the holder of a lock.

use std::fmt;
use std::time::Duration;

/// A process that uses locks, as it says of itself: what [`LockManager::processes`](crate::LockManager::processes)
/// lists and [`LockManager::inspect`](crate::LockManager::inspect) names. More exactly one manager of it:
/// a program with two managers is two of these.
///
/// ```
/// # use distlock_runtime as distlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let processes = locks.processes().await?;
/// assert_eq!(processes[0].pid, std::process::id());
/// println!("{}", processes[0]); // orders@web-3:4711
/// # Ok(())
/// # }
/// ```
///
/// The process says so itself, without proof: any client that may write to the store can say anything. For operators and
/// dashboards, not for decisions.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number among all managers: random, and what its owner tokens in the store begin with.
    pub id: String,
    /// The application: the environment variable `DISTLOCK_APP`, or else the name of the executable.
    pub app: String,
    /// The name of the machine, or of the container.
    pub host: String,
    /// The process number on that machine, as it is seen in the process's own namespace.
    pub pid: u32,
    /// The version of distlock.
    pub version: String,
    /// How long ago its manager was made.
    pub since: Duration,
}

/// `app@host:pid`.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.app, self.host, self.pid)
    }
}
