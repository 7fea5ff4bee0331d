//! The command line.

use std::time::Duration;

/// What the services can be told.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    /// Where to listen, on this machine only; 0 is any free port.
    pub port: u16,
    /// How long it takes to look at an order or an account before it is written.
    pub work: Duration,
    /// How long a request waits for its locks.
    pub wait: Duration,
}

impl Arguments {
    /// From the command line, or what is wrong with it.
    pub fn parse() -> Result<Self, String> {
        let mut parsed =
            Self { port: 3000, work: Duration::from_millis(900), wait: Duration::from_secs(3) };
        let mut arguments = std::env::args().skip(1);
        while let Some(option) = arguments.next() {
            let value = arguments.next().and_then(|value| value.parse::<u16>().ok());
            match (option.as_str(), value) {
                ("--port", Some(port)) => parsed.port = port,
                ("--work-ms", Some(ms)) => parsed.work = Duration::from_millis(ms.into()),
                ("--wait-ms", Some(ms)) => parsed.wait = Duration::from_millis(ms.into()),
                _ => {
                    return Err(format!(
                        "{option}? Options: --port 3000, --work-ms 900, --wait-ms 3000"
                    ));
                }
            }
        }
        Ok(parsed)
    }
}
