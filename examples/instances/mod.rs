//! What examples with several instances of a service have in common: numbers from the command line, a
//! manager for each instance, and how the program ends.

use std::process::ExitCode;
use std::time::Duration;

use distlock::{LockError, LockManager};

/// The options `--name N` of the command line, each at least 1: what is not given is as it is here.
pub(crate) fn options<const N: usize>(mut known: [(&str, u32); N]) -> Result<[u32; N], String> {
    let names = known.map(|(name, _)| format!("--{name} N")).join(", ");
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|value| value.parse().ok()).filter(|&n| n > 0);
        let option = known.iter_mut().find(|(name, _)| arg.strip_prefix("--") == Some(name));
        match (option, value) {
            (Some(option), Some(value)) => option.1 = value,
            _ => return Err(format!("options: {names}")),
        }
    }
    Ok(known.map(|(_, value)| value))
}

/// Each has a manager of its own, as a process has. Without `DISTLOCK_URL` they have one together.
pub(crate) struct Instances {
    pub(crate) managers: Vec<LockManager>,
    /// Where the locks are kept.
    pub(crate) kept: &'static str,
}

impl Instances {
    pub(crate) async fn start(count: u32) -> Result<Self, LockError> {
        let url = std::env::var("DISTLOCK_URL").ok().filter(|url| url != "memory://");
        let in_memory = LockManager::in_memory();
        let mut managers = Vec::new();
        for _ in 0..count {
            managers.push(match &url {
                Some(url) => LockManager::connect(url).await?,
                None => in_memory.clone(),
            });
        }
        Ok(Self { managers, kept: if url.is_some() { "on Redis" } else { "in memory" } })
    }

    /// Ends the program with what it has shown.
    pub(crate) async fn end(self, shown: &str, is_so: bool) -> ExitCode {
        for manager in self.managers {
            manager.close(Duration::from_secs(5)).await;
        }
        println!("\n{shown}");
        if !is_so {
            println!("That is not so above: please report this.");
        }
        if is_so { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
