//! Pending questions of other processes about the holders of locks (R15). All of them are answered together, at most once a
//! second. The model of a lock runs this code, too.

use std::time::Duration;

use crate::clock::Moment;

/// The pause between two answers.
const PAUSE: Duration = Duration::from_secs(1);
/// The most processes that are answered at a time. Others may ask again.
const ASKERS: usize = 16;
/// The most questions of one process that are answered together.
const QUESTIONS: usize = 64;
/// The longest nonce that is accepted.
const LONGEST_NONCE: usize = 32;

/// The questions that wait for their answer. An answer is planned exactly while there are askers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PendingQuestions {
    askers: Vec<Asker>,
    /// When the last questions were answered.
    answered: Option<Moment>,
}

/// A process that has asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asker {
    /// The prefix of the question. The answer tells only of locks under it.
    pub prefix: String,
    /// The process that gets the answer.
    pub process: String,
    /// The numbers by which it matches the answer to its questions.
    pub nonces: Vec<String>,
    /// The subject of its questions.
    pub subject: Subject,
}

/// The subject of the questions of one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// These locks, by their names in the store. They come first in the answer.
    Locks(Vec<String>),
    /// No lock in particular: the process watches. Calls are counted for it, and the answer has the counts. Locks that
    /// it also asked about come first.
    Watch(Vec<String>),
}

impl Subject {
    /// Returns the locks that come first in the answer.
    pub fn locks(&self) -> &[String] {
        match self {
            Self::Locks(locks) | Self::Watch(locks) => locks,
        }
    }

    fn add(&mut self, lock: &str) {
        match self {
            Self::Locks(locks) | Self::Watch(locks) => locks.push(lock.to_owned()),
        }
    }

    fn watch(&mut self) {
        if let Self::Locks(locks) = self {
            *self = Self::Watch(std::mem::take(locks));
        }
    }
}

impl PendingQuestions {
    /// Reads a question that has arrived under `prefix` (with its separator): `<reply channel> <nonce> [<lock>]`.
    ///
    /// Returns after how long the caller has to [take](Self::take) and answer all pending questions. Returns `None` if
    /// that is planned already, or if the message is no question. Any client may have sent the message, so the reply
    /// channel must be one of distlock under the same prefix.
    pub fn asked(&mut self, prefix: &str, question: &str, now: Moment) -> Option<Duration> {
        let mut words = question.splitn(3, ' ');
        let (channel, nonce, lock) = (words.next()?, words.next()?, words.next());
        let process = channel.strip_prefix(prefix)?.strip_prefix("wake:")?;
        let is_nonce = (1..=LONGEST_NONCE).contains(&nonce.len())
            && nonce.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_process(process) || !is_nonce {
            return None;
        }
        let is_planned = !self.askers.is_empty();
        self.note(prefix, process, nonce, lock);
        if is_planned {
            return None;
        }
        let due = self.answered.map_or(now, |answered| answered.after(PAUSE));
        Some(due.since(now))
    }

    /// Takes all questions, to answer them now.
    pub fn take(&mut self, now: Moment) -> Vec<Asker> {
        self.answered = Some(now);
        std::mem::take(&mut self.askers)
    }

    /// Returns the time of the last answer. The model shifts it, because it counts its moments from the present.
    pub fn answered_mut(&mut self) -> &mut Option<Moment> {
        &mut self.answered
    }

    fn note(&mut self, prefix: &str, process: &str, nonce: &str, lock: Option<&str>) {
        let is_it = |asker: &Asker| asker.process == process && asker.prefix == prefix;
        let at = self.askers.iter().position(is_it).unwrap_or(self.askers.len());
        if at == ASKERS {
            return;
        }
        if at == self.askers.len() {
            self.askers.push(Asker {
                prefix: prefix.to_owned(),
                process: process.to_owned(),
                nonces: Vec::new(),
                subject: Subject::Locks(Vec::new()),
            });
        }
        let asker = &mut self.askers[at];
        if lock.is_none() {
            asker.subject.watch();
        }
        if asker.nonces.len() < QUESTIONS {
            asker.nonces.push(nonce.to_owned());
            // A lock of another prefix is ignored.
            if let Some(lock) = lock.filter(|lock| lock.starts_with(prefix)) {
                asker.subject.add(lock);
            }
        }
    }
}

/// Returns whether a text may be the name of a process. It is checked because any client may have sent it.
fn is_process(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    fn ask(asked: &mut PendingQuestions, question: &str, millis: u64) -> Option<Duration> {
        asked.asked("p:", question, at(millis))
    }

    #[test]
    fn once_a_second_for_all_who_asked() {
        let mut answers = PendingQuestions::default();
        assert_eq!(ask(&mut answers, "p:wake:a 1 p:lock:{x}", 5000), Some(Duration::ZERO));
        assert_eq!(ask(&mut answers, "p:wake:a 2 p:lock:{y z}", 5000), None, "it is under way");
        let askers = answers.take(at(5001));
        assert_eq!(askers[0].nonces, ["1", "2"]);
        let both = vec!["p:lock:{x}".to_owned(), "p:lock:{y z}".to_owned()];
        assert_eq!(askers[0].subject, Subject::Locks(both));
        assert_eq!(ask(&mut answers, "p:wake:a 3", 5201), Some(Duration::from_millis(800)));
        assert_eq!(ask(&mut answers, "p:wake:b 4", 5300), None);
        let askers: Vec<_> = answers.take(at(6001));
        let processes: Vec<_> =
            askers.iter().map(|asker| (&*asker.process, &asker.subject)).collect();
        let watches = Subject::Watch(Vec::new());
        assert_eq!(processes, [("a", &watches), ("b", &watches)]);
        assert_eq!(ask(&mut answers, "p:wake:a 5", 9000), Some(Duration::ZERO));
    }

    #[test]
    fn only_channels_of_ours_are_answered() {
        let mut answers = PendingQuestions::default();
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
        // A lock of another prefix is ignored.
        assert!(answers.asked("p:", "p:wake:a 1 q:lock:{x}", at(3)).is_some());
        assert_eq!(answers.take(at(4))[0].subject, Subject::Locks(Vec::new()));
    }

    #[test]
    fn a_flood_is_no_more_than_many_questions() {
        let mut answers = PendingQuestions::default();
        for n in 0..100_000 {
            answers.asked("p:", &format!("p:wake:a{} {n} p:lock:{{x}}", n % 1000), at(7));
        }
        let askers = answers.take(at(8));
        assert_eq!(askers.len(), ASKERS);
        assert!(askers.iter().all(|asker| asker.nonces.len() <= QUESTIONS));
    }

    #[test]
    fn one_that_watches_may_ask_about_locks_as_well() {
        let mut answers = PendingQuestions::default();
        for (question, n) in
            [("p:wake:a 1 p:lock:{x}", 1), ("p:wake:a 2", 2), ("p:wake:a 3 p:lock:{y}", 3)]
        {
            ask(&mut answers, question, n);
        }
        let both = vec!["p:lock:{x}".to_owned(), "p:lock:{y}".to_owned()];
        assert_eq!(answers.take(at(4))[0].subject, Subject::Watch(both));
    }
}
