//! The command line.

use std::time::Duration;

/// What the services can be told.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    /// Where to listen, on this machine only; 0 is any free port.
    pub port: u16,
    /// How long it takes to look at an order or an account before it is written.
    pub work: Duration,
    /// How long a request waits for a lock.
    pub wait: Duration,
}

pub(crate) const USAGE: &str = "\
A small shop under locks, with a page that shows them.

Options:
  --port 3000      where to listen, on this machine only; 0 is any free port
  --work-ms 500    how long a payment, a cancellation or a transfer takes
  --wait-ms 3000   how long a request waits for a lock
  --help           this text

With DISTLOCK_URL=redis://127.0.0.1:6379 several instances are one shop; without it all is kept in memory.";

impl Arguments {
    /// From the command line: `None` if it asks for help, or what is wrong with it.
    pub(crate) fn parse() -> Result<Option<Self>, String> {
        let (port, work, wait) = (3000, Duration::from_millis(500), Duration::from_secs(3));
        let mut parsed = Self { port, work, wait };
        let mut arguments = std::env::args().skip(1);
        while let Some(option) = arguments.next() {
            if ["-h", "--help"].contains(&option.as_str()) {
                return Ok(None);
            }
            let value = arguments.next().and_then(|value| value.parse::<u16>().ok());
            match (option.as_str(), value) {
                ("--port", Some(port)) => parsed.port = port,
                ("--work-ms", Some(ms)) => parsed.work = Duration::from_millis(ms.into()),
                ("--wait-ms", Some(ms)) => parsed.wait = Duration::from_millis(ms.into()),
                ("--port" | "--work-ms" | "--wait-ms", None) => {
                    return Err(format!("{option} takes a number from 0 to {}", u16::MAX));
                }
                _ => return Err(format!("there is no option {option}\n\n{USAGE}")),
            }
        }
        Ok(Some(parsed))
    }
}
