//! The messages between the tool and its guardian: lines over a socket.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::time::clock_gettime;

use super::platform::CLOCK;

/// A time on a clock that both processes read, in ns. The clock runs while the machine is suspended, as leases do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BootInstant(u64);

impl BootInstant {
    pub(super) const NEVER: Self = Self(u64::MAX);

    pub(super) fn now() -> Self {
        let time = clock_gettime(CLOCK);
        let (secs, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        Self(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    pub(super) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(super) fn before(self, time: Duration) -> Self {
        match self {
            Self::NEVER => self,
            _ => Self(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))),
        }
    }

    /// Returns the time from now on; zero if it is past.
    pub(super) fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }

    pub(super) fn is_past(self) -> bool {
        Self::now() >= self
    }
}

/// A message from the tool to its guardian.
#[derive(Debug, PartialEq)]
pub(super) enum GuardianOrder {
    /// Start the command. The lease ends at this time.
    Start(BootInstant),
    /// The lease now ends at this time.
    Until(BootInstant),
    /// Forward this signal.
    Signal(Signal),
    /// The lock is lost: end the command.
    End,
}

impl GuardianOrder {
    pub(super) fn line(&self) -> String {
        match self {
            Self::Start(BootInstant(at)) => format!("start {at}\n"),
            Self::Until(BootInstant(at)) => format!("until {at}\n"),
            Self::Signal(signal) => format!("signal {}\n", signal.as_raw()),
            Self::End => "end\n".to_owned(),
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "start" => Some(Self::Start(BootInstant(number.parse().ok()?))),
            "until" => Some(Self::Until(BootInstant(number.parse().ok()?))),
            "signal" => Signal::from_named_raw(number.parse().ok()?).map(Self::Signal),
            "end" => Some(Self::End),
            _ => None,
        }
    }
}

/// The way in which a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandExit {
    Code(u8),
    Signal(i32),
}

/// A message from the guardian to the tool.
#[derive(Debug, PartialEq)]
pub(super) enum GuardianReport {
    /// The command runs as this process.
    Started(Pid),
    /// The command could not be started: the exit code, and the reason.
    NotStarted(u8, String),
    /// The command, or one of its processes, runs as another user and cannot be signalled.
    Denied,
    /// The command has ended, and whether the guardian ended it because of the lease.
    Ended(CommandExit, bool),
}

impl GuardianReport {
    pub(super) fn line(&self) -> String {
        match self {
            Self::Started(pid) => format!("started {}\n", pid.as_raw_pid()),
            Self::NotStarted(code, why) => format!("not-started {code} {why}\n"),
            Self::Denied => "denied\n".to_owned(),
            Self::Ended(CommandExit::Code(code), lost) => format!("ended {lost} code {code}\n"),
            Self::Ended(CommandExit::Signal(signal), lost) => {
                format!("ended {lost} signal {signal}\n")
            }
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "denied" => Some(Self::Denied),
            "started" => Pid::from_raw(rest.parse().ok()?).map(Self::Started),
            "not-started" => {
                let (code, why) = rest.split_once(' ')?;
                Some(Self::NotStarted(code.parse().ok()?, why.to_owned()))
            }
            "ended" => {
                let mut words = rest.split(' ');
                let lost = words.next()?.parse().ok()?;
                let ending = match (words.next()?, words.next()?) {
                    ("code", code) => CommandExit::Code(code.parse().ok()?),
                    (_, signal) => CommandExit::Signal(signal.parse().ok()?),
                };
                Some(Self::Ended(ending, lost))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_written() {
        for order in [
            GuardianOrder::Start(BootInstant(5)),
            GuardianOrder::Until(BootInstant::NEVER),
            GuardianOrder::Signal(Signal::TERM),
            GuardianOrder::End,
        ] {
            assert_eq!(GuardianOrder::parse(order.line().trim_end()), Some(order));
        }
        for report in [
            GuardianReport::Started(Pid::INIT),
            GuardianReport::Denied,
            GuardianReport::NotStarted(127, "no such thing".to_owned()),
            GuardianReport::Ended(CommandExit::Code(7), false),
            GuardianReport::Ended(CommandExit::Signal(9), true),
        ] {
            assert_eq!(GuardianReport::parse(report.line().trim_end()), Some(report));
        }
    }
}
