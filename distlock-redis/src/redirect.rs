//! What a node of a cluster says when it does not carry a command out, and what is done then.
//!
//! Each of these answers is a definite no: the command was not executed, and may be sent again, elsewhere or later.
//! A connection that ends and an answer that does not come are not among them: those are never sent again.

use std::time::Duration;

use distlock_core::jitter::jittered;
use redis::{RedisError, Value};

use crate::addr::Addr;
use crate::slots::Slot;

/// So many redirects in a row are followed.
const HOPS: u32 = 5;
/// Until keys that are apart may be together again.
const APART: Duration = Duration::from_millis(20);
/// Until a node that cannot serve now may, or another has taken its place.
const DOWN: Duration = Duration::from_millis(50);

/// The error that a script gets midway when it touches a key that has gone ahead, or is not there.
const GONE_AHEAD: &str = "non local key";

/// What a node said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot is that node's.
    Moved { slot: Slot, to: Addr },
    /// The keys have gone to that node ahead of their slot.
    Ask { to: Addr },
    /// Some of the keys have gone ahead, others have not.
    TryAgain,
    /// It does not serve the slot now, and does not know which node does.
    Unavailable,
}

impl Redirect {
    /// What the node at `by` said; `None` if it is about something else.
    pub(crate) fn of(error: &RedisError, by: &Addr) -> Option<Self> {
        let to = || error.redirect_node();
        match error.code()? {
            "MOVED" => {
                let (to, slot) = to()?;
                Some(Self::Moved { slot: Slot::numbered(slot)?, to: Addr::parse(to, by)? })
            }
            "ASK" => Some(Self::Ask { to: Addr::parse(to()?.0, by)? }),
            "TRYAGAIN" => Some(Self::TryAgain),
            // No script of ours gets this error after it has changed anything.
            "ERR" if error.to_string().contains(GONE_AHEAD) => Some(Self::TryAgain),
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" => Some(Self::Unavailable),
            _ => None,
        }
    }

    /// The same for what it said to several commands. If keys of some of them have gone ahead, those of others may
    /// have not.
    pub(crate) fn of_answers(answers: &[Value], by: &Addr) -> Option<Self> {
        let said = answers.iter().find_map(|answer| Self::of_answer(answer, by))?;
        Some(if let Self::Ask { .. } = said { Self::TryAgain } else { said })
    }

    /// The same for one of several answers.
    pub(crate) fn of_answer(answer: &Value, by: &Addr) -> Option<Self> {
        match answer {
            Value::ServerError(error) => Self::of(&RedisError::from(error.clone()), by),
            _ => None,
        }
    }
}

/// Where a command goes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RedirectTarget {
    /// To the node that has the slot by then, after a pause.
    Owner(Duration),
    /// To that node, whose slot it is not yet, and now.
    Asking(Addr),
    /// Nowhere: it was sent about for too long.
    GiveUp,
}

/// The way of one command.
#[derive(Debug, Default)]
pub(crate) struct RedirectHistory {
    hops: u32,
    last: Option<Redirect>,
}

impl RedirectHistory {
    /// What to do now that a node has said this.
    pub(crate) fn next(&mut self, said: Redirect) -> RedirectTarget {
        let again = self.last.as_ref() == Some(&said);
        self.last = Some(said.clone());
        match said {
            Redirect::TryAgain => self.rest(APART),
            Redirect::Unavailable => self.rest(DOWN),
            Redirect::Moved { .. } | Redirect::Ask { .. } if self.hops == HOPS => {
                RedirectTarget::GiveUp
            }
            // Nodes that send each other's callers about: one of them does not know yet.
            Redirect::Moved { .. } if again || self.hops > 0 => {
                self.hop(RedirectTarget::Owner(jittered(APART)))
            }
            Redirect::Moved { .. } => self.hop(RedirectTarget::Owner(Duration::ZERO)),
            Redirect::Ask { to } => self.hop(RedirectTarget::Asking(to)),
        }
    }

    /// Whether the slot was on its way when it was last asked about, key by key.
    pub(crate) fn is_migrating(&self) -> bool {
        matches!(self.last, Some(Redirect::TryAgain | Redirect::Ask { .. }))
    }

    fn hop(&mut self, step: RedirectTarget) -> RedirectTarget {
        self.hops += 1;
        step
    }

    /// What was waited for is no hop in a row.
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

    fn said(line: &str) -> Option<Redirect> {
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
            assert_eq!(said(line), says, "{line}");
        }
    }

    /// A connection that has ended or was silent has not said that nothing was executed.
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
        for hop in 0..HOPS {
            assert_ne!(
                way.next(moved(["a", "b"][hop as usize % 2])),
                RedirectTarget::GiveUp,
                "{hop}"
            );
        }
        assert_eq!(way.next(moved("b")), RedirectTarget::GiveUp);
    }
}
