//! Redirections by nodes of a cluster, and other refusals to run a command.
//!
//! Each of these replies means that the command was not executed. It may be sent again, elsewhere or later. A lost
//! connection or a missing reply is no such refusal: those commands are never sent again.

use std::time::Duration;

use distlock_core::back_off::jittered;
use redis::{RedisError, Value};

use crate::addr::Addr;
use crate::slots::Slot;

/// The most redirections in a row that are followed.
const MOST_HOPS: u32 = 5;
/// How long to wait before retrying while a slot is being migrated (`TRYAGAIN`).
const MIGRATION_PAUSE: Duration = Duration::from_millis(20);
/// How long to wait for a node that cannot serve now, or for its successor.
const UNAVAILABLE_PAUSE: Duration = Duration::from_millis(50);

/// Part of the error that a script gets midway when it touches a key that is missing or was already migrated.
const NOT_LOCAL: &str = "non local key";

/// A refusal of a node to run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot belongs to another node.
    Moved { slot: Slot, to: Addr },
    /// The keys were migrated to another node before their slot.
    Ask { to: Addr },
    /// Some of the keys were migrated already, others were not.
    TryAgain,
    /// The node does not serve the slot now, and does not know which node does.
    Unavailable,
}

impl Redirect {
    /// Reads a refusal from an error of the node at `by`; `None` if the error has another meaning.
    pub(crate) fn of(error: &RedisError, by: &Addr) -> Option<Self> {
        let to = || error.redirect_node();
        match error.code()? {
            "MOVED" => {
                let (to, slot) = to()?;
                Some(Self::Moved { slot: Slot::numbered(slot)?, to: Addr::parse(to, by)? })
            }
            "ASK" => Some(Self::Ask { to: Addr::parse(to()?.0, by)? }),
            "TRYAGAIN" => Some(Self::TryAgain),
            // No script of this crate gets this error after it has changed anything.
            "ERR" if error.to_string().contains(NOT_LOCAL) => Some(Self::TryAgain),
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" => Some(Self::Unavailable),
            _ => None,
        }
    }

    /// Reads a refusal from the replies to several commands. If keys of one command were migrated, keys of others may
    /// not have been.
    pub(crate) fn of_answers(answers: &[Value], by: &Addr) -> Option<Self> {
        let redirect = answers.iter().find_map(|answer| Self::of_answer(answer, by))?;
        Some(if let Self::Ask { .. } = redirect { Self::TryAgain } else { redirect })
    }

    /// Reads a refusal from one reply of several.
    pub(crate) fn of_answer(answer: &Value, by: &Addr) -> Option<Self> {
        match answer {
            Value::ServerError(error) => Self::of(&RedisError::from(error.clone()), by),
            _ => None,
        }
    }
}

/// The next node for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RedirectTarget {
    /// The node that has the slot after a pause.
    Owner(Duration),
    /// This node, now, although the slot is not yet its own.
    Asking(Addr),
    /// No node, because the command was redirected too often.
    GiveUp,
}

/// The redirections of one command so far.
#[derive(Debug, Default)]
pub(crate) struct RedirectHistory {
    hops: u32,
    last: Option<Redirect>,
}

impl RedirectHistory {
    /// Returns where to send the command after this refusal.
    pub(crate) fn next(&mut self, redirect: Redirect) -> RedirectTarget {
        let again = self.last.as_ref() == Some(&redirect);
        self.last = Some(redirect.clone());
        match redirect {
            Redirect::TryAgain => self.rest(MIGRATION_PAUSE),
            Redirect::Unavailable => self.rest(UNAVAILABLE_PAUSE),
            Redirect::Moved { .. } | Redirect::Ask { .. } if self.hops == MOST_HOPS => {
                RedirectTarget::GiveUp
            }
            // If nodes redirect to each other, one of them does not know the migration yet.
            Redirect::Moved { .. } if again || self.hops > 0 => {
                self.hop(RedirectTarget::Owner(jittered(MIGRATION_PAUSE)))
            }
            Redirect::Moved { .. } => self.hop(RedirectTarget::Owner(Duration::ZERO)),
            Redirect::Ask { to } => self.hop(RedirectTarget::Asking(to)),
        }
    }

    /// Whether the last refusal means that the slot is being migrated.
    pub(crate) fn is_migrating(&self) -> bool {
        matches!(self.last, Some(Redirect::TryAgain | Redirect::Ask { .. }))
    }

    fn hop(&mut self, step: RedirectTarget) -> RedirectTarget {
        self.hops += 1;
        step
    }

    /// Waits before the next attempt. This ends a row of redirections.
    fn rest(&mut self, pause: Duration) -> RedirectTarget {
        self.hops = 0;
        RedirectTarget::Owner(jittered(pause))
    }
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, parse_redis_value};

    use super::*;

    fn error(line: &str) -> RedisError {
        let answer: Value = parse_redis_value(line.as_bytes()).expect("an answer");
        answer.extract_error().expect_err("an error")
    }

    fn redirect(line: &str) -> Option<Redirect> {
        Redirect::of(&error(&format!("-{line}\r\n")), &seed())
    }

    fn seed() -> Addr {
        Addr { host: "seed".into(), port: 7000 }
    }

    fn at(host: &str) -> Addr {
        Addr { host: host.into(), port: 7001 }
    }

    /// Fault: D7.
    #[test]
    fn what_each_answer_says() {
        let slot = Slot::numbered(3999).expect("a slot");
        for (line, says) in [
            ("MOVED 3999 10.0.0.1:7001", Some(Redirect::Moved { slot, to: at("10.0.0.1") })),
            ("MOVED 3999 :7001", Some(Redirect::Moved { slot, to: at("seed") })),
            ("MOVED 3999 ?:7001", None),
            ("MOVED 99999 10.0.0.1:7001", None),
            ("MOVED", None),
            ("ASK 3999 10.0.0.1:7001", Some(Redirect::Ask { to: at("10.0.0.1") })),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Some(Redirect::TryAgain)),
            // 6.2, and from 7.0 on.
            (
                "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: Lua script attempted to \
                 access a non local key in a cluster node",
                Some(Redirect::TryAgain),
            ),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 1, on @user_script:11.",
                Some(Redirect::TryAgain),
            ),
            ("CLUSTERDOWN The cluster is down", Some(Redirect::Unavailable)),
            ("LOADING Redis is loading the dataset in memory", Some(Redirect::Unavailable)),
            ("MASTERDOWN Link with MASTER is down", Some(Redirect::Unavailable)),
            ("READONLY You can't write against a read only replica.", Some(Redirect::Unavailable)),
            ("CROSSSLOT Keys in request don't hash to the same slot", None),
            ("ERR unknown command", None),
            ("NOPERM this user has no permissions", None),
            ("OOM command not allowed when used memory > 'maxmemory'.", None),
        ] {
            assert_eq!(redirect(line), says, "{line}");
        }
    }

    /// A lost connection or a missing reply does not mean that nothing was executed.
    /// Fault: D7.
    #[test]
    fn what_was_not_answered_is_not_sent_again() {
        let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        for error in [
            RedisError::from(timed_out),
            RedisError::from(broken),
            RedisError::from((ErrorKind::Parse, "half an answer")),
        ] {
            assert_eq!(Redirect::of(&error, &seed()), None, "{error}");
        }
    }

    #[test]
    fn redirects_are_followed_and_what_is_migrating_is_waited_for() {
        let slot = Slot::numbered(1).expect("a slot");
        let moved = |to| Redirect::Moved { slot, to: at(to) };
        let mut way = RedirectHistory::default();
        assert_eq!(way.next(moved("a")), RedirectTarget::Owner(Duration::ZERO));
        assert!(
            matches!(way.next(moved("a")), RedirectTarget::Owner(pause) if !pause.is_zero()),
            "twice"
        );
        assert_eq!(way.next(Redirect::Ask { to: at("b") }), RedirectTarget::Asking(at("b")));
        assert!(
            matches!(way.next(Redirect::TryAgain), RedirectTarget::Owner(pause) if !pause.is_zero())
        );
        assert!(
            matches!(way.next(Redirect::Unavailable), RedirectTarget::Owner(pause) if !pause.is_zero())
        );
        for hop in 0..MOST_HOPS {
            assert_ne!(
                way.next(moved(["a", "b"][hop as usize % 2])),
                RedirectTarget::GiveUp,
                "{hop}"
            );
        }
        assert_eq!(way.next(moved("b")), RedirectTarget::GiveUp);
    }
}
