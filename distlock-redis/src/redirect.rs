//! What a node of a cluster says when it does not carry a command out, and what is done then.
//!
//! Each of these answers is a definite no: the command was not executed, and may be sent again, elsewhere or later.
//! A connection that ends and an answer that does not come are not among them: those are never sent again.

use std::time::Duration;

use distlock_core::jitter::jittered;
use redis::{RedisError, Value};

use crate::slots::{Addr, Slot};

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
pub(crate) enum Said {
    /// The slot is that node's.
    Moved { slot: Slot, to: Addr },
    /// The keys have gone to that node ahead of their slot.
    Ask { to: Addr },
    /// Some of the keys have gone ahead, others have not.
    Apart,
    /// It does not serve the slot now, and does not know which node does.
    Down,
}

impl Said {
    /// What the node at `by` said; `None` if it is about something else.
    pub(crate) fn of(error: &RedisError, by: &Addr) -> Option<Self> {
        let to = || error.redirect_node();
        match error.code()? {
            "MOVED" => {
                let (to, slot) = to()?;
                Some(Self::Moved { slot: Slot::numbered(slot)?, to: Addr::parse(to, by)? })
            }
            "ASK" => Some(Self::Ask { to: Addr::parse(to()?.0, by)? }),
            "TRYAGAIN" => Some(Self::Apart),
            // No script of ours gets this error after it has changed anything.
            "ERR" if error.to_string().contains(GONE_AHEAD) => Some(Self::Apart),
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" => Some(Self::Down),
            _ => None,
        }
    }

    /// The same for what it said to several commands. If keys of some of them have gone ahead, those of others may
    /// have not.
    pub(crate) fn of_answers(answers: &[Value], by: &Addr) -> Option<Self> {
        let said = answers.iter().find_map(|answer| Self::of_answer(answer, by))?;
        Some(if let Self::Ask { .. } = said { Self::Apart } else { said })
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
pub(crate) enum Step {
    /// To the node that has the slot by then, after a pause.
    Owner(Duration),
    /// To that node, whose slot it is not yet, and now.
    Asking(Addr),
    /// Nowhere: it was sent about for too long.
    Nowhere,
}

/// The way of one command.
#[derive(Debug, Default)]
pub(crate) struct Way {
    hops: u32,
    last: Option<Said>,
}

impl Way {
    /// What to do now that a node has said this.
    pub(crate) fn next(&mut self, said: Said) -> Step {
        let again = self.last.as_ref() == Some(&said);
        self.last = Some(said.clone());
        match said {
            Said::Apart => self.rest(APART),
            Said::Down => self.rest(DOWN),
            Said::Moved { .. } | Said::Ask { .. } if self.hops == HOPS => Step::Nowhere,
            // Nodes that send each other's callers about: one of them does not know yet.
            Said::Moved { .. } if again || self.hops > 0 => self.hop(Step::Owner(jittered(APART))),
            Said::Moved { .. } => self.hop(Step::Owner(Duration::ZERO)),
            Said::Ask { to } => self.hop(Step::Asking(to)),
        }
    }

    /// Whether the slot was on its way when it was last asked about, key by key.
    pub(crate) fn is_apart(&self) -> bool {
        matches!(self.last, Some(Said::Apart | Said::Ask { .. }))
    }

    fn hop(&mut self, step: Step) -> Step {
        self.hops += 1;
        step
    }

    /// What was waited for is no hop in a row.
    fn rest(&mut self, pause: Duration) -> Step {
        self.hops = 0;
        Step::Owner(jittered(pause))
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

    fn said(line: &str) -> Option<Said> {
        Said::of(&error(&format!("-{line}\r\n")), &seed())
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
            ("MOVED 3999 10.0.0.1:7001", Some(Said::Moved { slot, to: at("10.0.0.1") })),
            ("MOVED 3999 :7001", Some(Said::Moved { slot, to: at("seed") })),
            ("MOVED 3999 ?:7001", None),
            ("MOVED 99999 10.0.0.1:7001", None),
            ("MOVED", None),
            ("ASK 3999 10.0.0.1:7001", Some(Said::Ask { to: at("10.0.0.1") })),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Some(Said::Apart)),
            // 6.2, and from 7.0 on.
            (
                "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: Lua script attempted to \
                 access a non local key in a cluster node",
                Some(Said::Apart),
            ),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 1, on @user_script:11.",
                Some(Said::Apart),
            ),
            ("CLUSTERDOWN The cluster is down", Some(Said::Down)),
            ("LOADING Redis is loading the dataset in memory", Some(Said::Down)),
            ("MASTERDOWN Link with MASTER is down", Some(Said::Down)),
            ("READONLY You can't write against a read only replica.", Some(Said::Down)),
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
            assert_eq!(Said::of(&error, &seed()), None, "{error}");
        }
    }

    #[test]
    fn redirects_are_followed_and_what_is_apart_is_waited_for() {
        let slot = Slot::numbered(1).expect("a slot");
        let moved = |to| Said::Moved { slot, to: at(to) };
        let mut way = Way::default();
        assert_eq!(way.next(moved("a")), Step::Owner(Duration::ZERO));
        assert!(matches!(way.next(moved("a")), Step::Owner(pause) if !pause.is_zero()), "twice");
        assert_eq!(way.next(Said::Ask { to: at("b") }), Step::Asking(at("b")));
        assert!(matches!(way.next(Said::Apart), Step::Owner(pause) if !pause.is_zero()));
        assert!(matches!(way.next(Said::Down), Step::Owner(pause) if !pause.is_zero()));
        for hop in 0..HOPS {
            assert_ne!(way.next(moved(["a", "b"][hop as usize % 2])), Step::Nowhere, "{hop}");
        }
        assert_eq!(way.next(moved("b")), Step::Nowhere);
    }
}
