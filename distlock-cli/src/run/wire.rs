//! What the tool and its guardian say to each other: lines over a socket.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, clock_gettime};

/// An instant that both processes read from one clock, in ns. It counts while the machine is
/// suspended, as leases do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Instant(u64);

impl Instant {
    pub(super) const NEVER: Self = Self(u64::MAX);

    pub(super) fn now() -> Self {
        #[cfg(target_os = "linux")]
        const CLOCK: ClockId = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        const CLOCK: ClockId = ClockId::Monotonic;
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

    /// From now on; zero if it is past.
    pub(super) fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }

    pub(super) fn is_past(self) -> bool {
        Self::now() >= self
    }
}

/// From the tool to its guardian.
#[derive(Debug, PartialEq)]
pub(super) enum Order {
    /// Start the command; the lease ends then.
    Start(Instant),
    /// The lease ends then, and no longer when was said before.
    Until(Instant),
    /// Pass this signal on.
    Signal(Signal),
    /// The lock is lost: end the command.
    End,
}

impl Order {
    pub(super) fn line(&self) -> String {
        match self {
            Self::Start(Instant(at)) => format!("start {at}\n"),
            Self::Until(Instant(at)) => format!("until {at}\n"),
            Self::Signal(signal) => format!("signal {}\n", signal.as_raw()),
            Self::End => "end\n".to_owned(),
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "start" => Some(Self::Start(Instant(number.parse().ok()?))),
            "until" => Some(Self::Until(Instant(number.parse().ok()?))),
            "signal" => Signal::from_named_raw(number.parse().ok()?).map(Self::Signal),
            "end" => Some(Self::End),
            _ => None,
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Code(u8),
    Signal(i32),
}

/// From the guardian to the tool.
#[derive(Debug, PartialEq)]
pub(super) enum Report {
    /// The command runs as this process.
    Started(Pid),
    /// It could not be started: the exit code that says so, and why.
    NotStarted(u8, String),
    /// The command, or one of its processes, runs as another user and cannot be signalled.
    Denied,
    /// It has ended; whether the guardian ended it because of the lease.
    Ended(Ending, bool),
}

impl Report {
    pub(super) fn line(&self) -> String {
        match self {
            Self::Started(pid) => format!("started {}\n", pid.as_raw_pid()),
            Self::NotStarted(code, why) => format!("not-started {code} {why}\n"),
            Self::Denied => "denied\n".to_owned(),
            Self::Ended(Ending::Code(code), lost) => format!("ended {lost} code {code}\n"),
            Self::Ended(Ending::Signal(signal), lost) => format!("ended {lost} signal {signal}\n"),
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
                    ("code", code) => Ending::Code(code.parse().ok()?),
                    (_, signal) => Ending::Signal(signal.parse().ok()?),
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
    fn what_is_written_is_read() {
        for order in [
            Order::Start(Instant(5)),
            Order::Until(Instant::NEVER),
            Order::Signal(Signal::TERM),
            Order::End,
        ] {
            assert_eq!(Order::parse(order.line().trim_end()), Some(order));
        }
        for report in [
            Report::Started(Pid::INIT),
            Report::Denied,
            Report::NotStarted(127, "no such thing".to_owned()),
            Report::Ended(Ending::Code(7), false),
            Report::Ended(Ending::Signal(9), true),
        ] {
            assert_eq!(Report::parse(report.line().trim_end()), Some(report));
        }
    }
}
