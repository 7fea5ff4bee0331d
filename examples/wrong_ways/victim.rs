//! A process that takes a lock and is killed with it. It is this program again, with other arguments.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use distlock::LockManager;
use distlock_testkit::data_at;

use crate::stage::Error;

/// Makes this program a victim.
pub(crate) const ARGUMENT: &str = "--victim";
pub(crate) const SETNX: &str = "setnx";
pub(crate) const DISTLOCK: &str = "distlock";
/// The ttl of its lock.
pub(crate) const EXPIRE: Duration = Duration::from_secs(1);

/// What it says.
const HAS_IT: &str = "It has the lock.";

pub(crate) struct Victim(Child);

impl Victim {
    /// Returns once it has the lock.
    pub(crate) fn start(way: &str, url: &str, key: &str) -> Result<Self, Error> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ARGUMENT, way, url, key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let victim = Self(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.trim() != HAS_IT {
            Err("the process that was to be killed has no lock".into())
        } else {
            Ok(victim)
        }
    }

    pub(crate) fn kill(mut self) -> Result<(), Error> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes the lock, says so, and waits to be killed.
pub(crate) async fn run(way: &str, url: &str, key: &str) -> Result<ExitCode, Error> {
    let _guard;
    if way == SETNX {
        let mut redis = data_at(url).await;
        redis::cmd("SETNX").arg(key).arg("A").query_async::<()>(&mut redis).await?;
    } else {
        let locks = LockManager::connect(url).await?;
        _guard = locks.lock(key).ttl(EXPIRE).acquire().await?;
    }
    println!("{HAS_IT}");
    std::io::stdout().flush()?;
    // The end of the parent would be the end of this input.
    std::io::stdin().read_line(&mut String::new())?;
    Ok(ExitCode::SUCCESS)
}
