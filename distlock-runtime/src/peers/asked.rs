//! Questions of other processes that wait for their answer: at most once a second, however many there are. Pure: no
//! clock, no mutex and no future in it; the model of a lock runs it as well.

// Public for the model, which is built with the feature `model`.
#![allow(unreachable_pub)]

use std::time::Duration;

use super::is_process;
use crate::clock::Moment;

/// Between two answers.
const PAUSE: Duration = Duration::from_secs(1);
/// So many processes are answered at a time. Others may ask again.
const ASKERS: usize = 16;
/// So many questions of one process are answered together.
const QUESTIONS: usize = 64;
/// No nonce of ours is longer.
const LONGEST_NONCE: usize = 32;

/// The questions that wait for their answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[allow(unreachable_pub)] // Public for the model.
pub struct Asked {
    askers: Vec<Asker>,
    /// When the last ones were answered.
    answered: Option<Moment>,
    /// A task is about to answer them.
    under_way: bool,
}

/// A process that has asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(unreachable_pub)] // Public for the model.
pub struct Asker {
    /// Under which it asked: the answer is about nothing else.
    pub prefix: String,
    /// The process that gets the answer.
    pub process: String,
    /// By which it matches the answer to its questions.
    pub nonces: Vec<String>,
    /// The locks it asked about, by their names in the store: these come first in the answer.
    pub locks: Vec<String>,
    /// It has asked about no lock in particular: calls are counted for it, and the answer has the counts.
    pub watches: bool,
}

impl Asked {
    /// A question has come under `prefix` (with its separator): `<reply channel> <nonce> [<lock>]`. Says
    /// when the caller is to [take](Self::take) and answer what has been asked by then; `None` if
    /// that is planned already, or the message is no question. Any client may have sent it: an answer goes to
    /// a channel of ours under the same prefix, or nowhere.
    pub fn asked(&mut self, prefix: &str, question: &str, now: Moment) -> Option<Duration> {
        let mut words = question.splitn(3, ' ');
        let (channel, nonce, lock) = (words.next()?, words.next()?, words.next());
        let process = channel.strip_prefix(prefix)?.strip_prefix("wake:")?;
        let is_nonce = (1..=LONGEST_NONCE).contains(&nonce.len())
            && nonce.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_process(process) || !is_nonce {
            return None;
        }
        let of_prefix = lock.filter(|lock| lock.starts_with(prefix));
        self.note(prefix, process, nonce, of_prefix, lock.is_none());
        if self.askers.is_empty() || std::mem::replace(&mut self.under_way, true) {
            return None;
        }
        let due = self.answered.map_or(now, |answered| answered.after(PAUSE));
        Some(due.since(now))
    }

    /// What is to be answered now.
    pub fn take(&mut self, now: Moment) -> Vec<Asker> {
        self.answered = Some(now);
        self.under_way = false;
        std::mem::take(&mut self.askers)
    }

    /// When it has answered last, for the model, which counts its moments from now.
    #[cfg(feature = "model")]
    pub fn answered_mut(&mut self) -> &mut Option<Moment> {
        &mut self.answered
    }

    fn note(
        &mut self,
        prefix: &str,
        process: &str,
        nonce: &str,
        lock: Option<&str>,
        watches: bool,
    ) {
        let is_it = |asker: &&mut Asker| asker.process == process && asker.prefix == prefix;
        if let Some(asker) = self.askers.iter_mut().find(is_it) {
            asker.watches |= watches;
            if asker.nonces.len() < QUESTIONS {
                asker.nonces.push(nonce.to_owned());
                asker.locks.extend(lock.map(str::to_owned));
            }
        } else if self.askers.len() < ASKERS {
            self.askers.push(Asker {
                prefix: prefix.to_owned(),
                process: process.to_owned(),
                nonces: vec![nonce.to_owned()],
                locks: lock.map(str::to_owned).into_iter().collect(),
                watches,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    fn ask(asked: &mut Asked, question: &str, millis: u64) -> Option<Duration> {
        asked.asked("p:", question, at(millis))
    }

    #[test]
    fn once_a_second_for_all_who_asked() {
        let mut answers = Asked::default();
        assert_eq!(ask(&mut answers, "p:wake:a 1 p:lock:{x}", 5000), Some(Duration::ZERO));
        assert_eq!(ask(&mut answers, "p:wake:a 2 p:lock:{y z}", 5000), None, "it is under way");
        let askers = answers.take(at(5001));
        assert_eq!(askers[0].nonces, ["1", "2"]);
        assert_eq!(askers[0].locks, ["p:lock:{x}", "p:lock:{y z}"]);
        assert!(!askers[0].watches);
        assert_eq!(ask(&mut answers, "p:wake:a 3", 5201), Some(Duration::from_millis(800)));
        assert_eq!(ask(&mut answers, "p:wake:b 4", 5300), None);
        let askers: Vec<_> = answers.take(at(6001));
        let processes: Vec<_> =
            askers.iter().map(|asker| (&*asker.process, asker.watches)).collect();
        assert_eq!(processes, [("a", true), ("b", true)]);
        assert_eq!(ask(&mut answers, "p:wake:a 5", 9000), Some(Duration::ZERO));
    }

    #[test]
    fn only_channels_of_ours_are_answered() {
        let mut answers = Asked::default();
        let long = format!("p:wake:a {}", "1".repeat(99));
        for forged in [
            "",
            "p:wake:a",
            "p:wake: 1",
            "q:wake:a 1",
            "p:wake:a:b 1",
            "p:lock:{a} 1",
            "wake:a 1",
            "p:wake:* 1",
            "p:wake:a é",
            "p:wake:a  1",
            "p:wake:a 1,2",
            &long,
        ] {
            assert_eq!(answers.asked("p:", forged, at(1)), None, "{forged}");
        }
        assert!(answers.take(at(2)).is_empty());
        // A lock of another prefix is left out.
        assert!(answers.asked("p:", "p:wake:a 1 q:lock:{x}", at(3)).is_some());
        assert!(answers.take(at(4))[0].locks.is_empty());
    }

    #[test]
    fn a_flood_is_no_more_than_many_questions() {
        let mut answers = Asked::default();
        for n in 0..100_000 {
            answers.asked("p:", &format!("p:wake:a{} {n} p:lock:{{x}}", n % 1000), at(7));
        }
        let askers = answers.take(at(8));
        assert_eq!(askers.len(), ASKERS);
        assert!(askers.iter().all(|asker| asker.nonces.len() <= QUESTIONS));
    }
}
