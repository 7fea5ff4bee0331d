//! The locks that tutorials teach, each driven through the interleaving that breaks it, and distlock
//! on the same interleaving. Every process is paused at the exact command where the flaw is, so that
//! nothing depends on luck.
//!
//! ```sh
//! cargo run --example wrong_ways
//! cargo run --example wrong_ways -- --times 20
//! ```
//!
//! It starts a redis-server, a PostgreSQL server and a PgBouncer of its own, on free ports of this machine. With `--times` it prints how
//! many of so many runs went wrong instead of the stories. `docs/guide/wrong_ways.md` is what this
//! program prints.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to a person")]

mod advisory;
mod bit;
mod body;
mod clocks;
mod del;
mod expire;
mod finally;
mod for_update;
mod row;
mod spin;
mod stage;
mod value;
mod victim;
mod watch;

use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};

use stage::{Error, Stage, Story};

type Told<'a> = Pin<Box<dyn Future<Output = Result<Story, Error>> + 'a>>;

/// A lock that tutorials teach.
struct Way {
    title: &'static str,
    /// What is wrong with it.
    flaw: &'static str,
    wrong: fn(&Stage) -> Told<'_>,
    distlock: fn(&Stage) -> Told<'_>,
}

macro_rules! ways {
    ($($module:ident),*) => {
        [$(Way {
            title: $module::TITLE,
            flaw: $module::FLAW,
            wrong: |stage| Box::pin($module::wrong(stage)),
            distlock: |stage| Box::pin($module::distlock(stage)),
        }),*]
    };
}

const WAYS: [Way; 12] =
    ways!(bit, expire, clocks, del, value, watch, spin, body, finally, row, for_update, advisory);

const NO_SERVER: &str = "\
This example starts a redis-server of its own, and there is none on this machine. Install one:

    Debian, Ubuntu    sudo apt-get install redis-server
    Fedora            sudo dnf install redis
    macOS             brew install redis

The other examples need no server: cargo run --example hello";

const USAGE: &str = "usage: wrong_ways [--times N]";

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let times = match arguments[..] {
        [] => None,
        ["--times", times] => Some(times.parse()?),
        [victim::ARGUMENT, way, url, key] => return victim::run(way, url, key).await,
        _ => {
            eprintln!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    };
    let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        eprintln!("{NO_SERVER}");
        return Ok(ExitCode::from(2));
    }
    match times {
        None => tell().await,
        Some(times) => count(times).await,
    }
}

/// Tells every story once.
async fn tell() -> Result<ExitCode, Error> {
    let stage = Stage::new(0);
    let (mut wrong, mut ours) = (0, 0);
    for (n, way) in WAYS.iter().enumerate() {
        println!("{}. {}\n", n + 1, way.title);
        println!("{}\n", way.flaw);
        println!("  As taught:\n");
        wrong += usize::from((way.wrong)(&stage).await?.print());
        println!("  With distlock:\n");
        ours += usize::from((way.distlock)(&stage).await?.print());
    }
    println!(
        "Went wrong: {wrong} of {} as taught, {ours} of {} with distlock.",
        WAYS.len(),
        WAYS.len()
    );
    Ok(verdict(wrong == WAYS.len() && ours == 0))
}

/// Tells every story so many times, and only counts.
async fn count(times: usize) -> Result<ExitCode, Error> {
    let mut as_expected = true;
    println!("Went wrong, of {times} runs:                    as taught   with distlock");
    for (n, way) in WAYS.iter().enumerate() {
        let (mut wrong, mut ours) = (0, 0);
        for run in 0..times {
            let stage = Stage::new(run);
            // Names in distlock's store have a prefix: the two stories do not meet.
            let (taught, with_distlock) =
                tokio::try_join!((way.wrong)(&stage), (way.distlock)(&stage))?;
            wrong += usize::from(taught.went_wrong());
            ours += usize::from(with_distlock.went_wrong());
        }
        println!("  {}. {:42} {wrong:9} {ours:15}", n + 1, way.title);
        as_expected &= wrong == times && ours == 0;
    }
    Ok(verdict(as_expected))
}

fn verdict(as_expected: bool) -> ExitCode {
    if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
