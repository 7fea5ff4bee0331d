//! A nightly job: every replica of a service wakes up at the same time, and one of them does it.
//!
//! ```sh
//! cargo run --example nightly_job
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example nightly_job
//! ```
//!
//! Without `DISTLOCK_URL` the replicas are tasks of this process; with it they are processes that
//! know nothing of each other but the lock in Redis. Option: `--replicas 5`.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::io::{IsTerminal, Write};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use distlock::{LockError, LockManager, redis_lock};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::{JoinHandle, JoinSet};

type Error = Box<dyn std::error::Error + Send + Sync>;

const STEPS: u32 = 20;
const STEP: Duration = Duration::from_millis(75);

/// Marks a process as one of the replicas and says which.
const REPLICA: &str = "NIGHTLY_JOB_REPLICA";
/// Tells it which night it is.
const NIGHT: &str = "NIGHTLY_JOB_NIGHT";

/// No `wait`: an instance that comes second has nothing to wait for. The lease is renewed while the job runs,
/// so that `ttl` only says how soon another may take over from a replica that died.
#[redis_lock(key = "nightly-report:{night}", ttl = "10s")]
async fn report(night: u64, replica: u64) -> Result<(), LockError> {
    for step in 1..=STEPS {
        tokio::time::sleep(STEP).await;
        progress(replica, step);
    }
    Ok(())
}

/// What every replica does when its clock strikes; true if it was the one.
async fn strike(night: u64, replica: u64) -> Result<bool, LockError> {
    match report(night, replica).await {
        Ok(()) => {
            println!("  replica {replica}: wrote the report");
            Ok(true)
        }
        Err(e) if e.is_busy() => {
            println!("  replica {replica}: skipped, another replica is at it");
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let url = std::env::var("DISTLOCK_URL").ok().filter(|url| url != "memory://");
    distlock::init(match &url {
        Some(url) => LockManager::connect(url).await?,
        None => LockManager::in_memory(),
    })?;
    if let (Ok(replica), Ok(night)) = (std::env::var(REPLICA), std::env::var(NIGHT)) {
        println!("ready");
        // All replicas strike together: when the parent closes this pipe.
        std::io::stdin().read_line(&mut String::new())?;
        let ran = strike(night.parse()?, replica.parse()?).await?;
        return Ok(if ran { RAN.into() } else { ExitCode::SUCCESS });
    }

    let replicas = replicas()?;
    // A key of its own for every run of the example: two nights do not exclude each other.
    let night = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
    let kind = if url.is_some() { "processes on Redis" } else { "tasks in memory" };
    println!("Nightly report: {replicas} replicas ({kind}) wake up at the same time\n");
    let ran = match url {
        Some(_) => in_processes(night, replicas).await?,
        None => in_tasks(night, replicas).await?,
    };
    println!("\n{ran} of {replicas} replicas ran the job, {} skipped it.", replicas - ran);
    Ok(if ran == 1 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The exit code by which a replica says that it ran the job.
const RAN: u8 = 10;

fn replicas() -> Result<u64, Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(5),
        ["--replicas", n] => Ok(n.parse()?),
        _ => Err("option: --replicas N".into()),
    }
}

async fn in_tasks(night: u64, replicas: u64) -> Result<u64, Error> {
    let mut tasks: JoinSet<_> = (1..=replicas).map(|replica| strike(night, replica)).collect();
    let mut ran = 0;
    while let Some(task) = tasks.join_next().await {
        ran += u64::from(task??);
    }
    Ok(ran)
}

async fn in_processes(night: u64, replicas: u64) -> Result<u64, Error> {
    let mut processes = Vec::new();
    for replica in 1..=replicas {
        processes.push(start_replica(night, replica).await?);
    }
    for (process, _) in &mut processes {
        drop(process.stdin.take());
    }
    let mut ran = 0;
    for (mut process, output) in processes {
        output.await?;
        match process.wait().await?.code() {
            Some(code) if code == i32::from(RAN) => ran += 1,
            Some(0) => {}
            _ => return Err("a replica failed".into()),
        }
    }
    Ok(ran)
}

/// This program once more; returns when it is ready to strike. What it says is handed on by a task.
async fn start_replica(night: u64, replica: u64) -> Result<(Child, JoinHandle<()>), Error> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(REPLICA, replica.to_string())
        .env(NIGHT, night.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no output of a child process")?;
    let mut lines = BufReader::new(stdout).lines();
    if lines.next_line().await?.as_deref() != Some("ready") {
        return Err("a replica could not start".into());
    }
    let output = tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            println!("{line}");
        }
    });
    Ok((child, output))
}

/// A line that is written over on a terminal; in a log, only its end.
fn progress(replica: u64, step: u32) {
    let bar = "█".repeat(step as usize) + &"░".repeat((STEPS - step) as usize);
    let line = format!("  replica {replica}: working {bar}");
    if std::io::stdout().is_terminal() {
        let end = if step == STEPS { "\n" } else { "" };
        print!("\r{line}{end}");
        // A terminal that went away is no reason to stop the job.
        let _ = std::io::stdout().flush();
    } else if step == STEPS {
        println!("{line}");
    }
}
