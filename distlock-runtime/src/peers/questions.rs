//! The questions of this process to others, and theirs to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::catch_panic::shield;
use distlock_core::clock::Moment;
use distlock_core::collections::shrink;
use distlock_core::questions::{Asker, PendingQuestions};
use distlock_core::select::until;
use distlock_core::store::{ProcessMessage, Store};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::report::PeerReport;
use crate::engine::alarm::{Alarm, Alarms};

/// How long a report answers questions about the leases that it names.
const GOOD: Duration = Duration::from_secs(1);
/// How long to wait for an answer. A process answers once a second.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long to wait for a process that did not answer before.
const SHORT_TIMEOUT: Duration = Duration::from_millis(100);
/// How long to remember that a process did not answer.
const REMEMBERED: Duration = Duration::from_secs(10);

/// A question to one process about these leases.
#[derive(Debug)]
pub(crate) struct Want {
    pub(crate) process: String,
    /// The numbers in their owner tokens.
    pub(crate) leases: Vec<String>,
}

/// The questions of other processes to one manager.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pending: Mutex<PendingQuestions>,
}

impl Answers {
    /// As [`PendingQuestions::asked`].
    pub(crate) fn asked(&self, prefix: &str, question: &str, now: Moment) -> Option<Duration> {
        self.pending().asked(prefix, question, now)
    }

    /// As [`PendingQuestions::take`].
    pub(crate) fn take(&self, now: Moment) -> Vec<Asker> {
        self.pending().take(now)
    }

    fn pending(&self) -> MutexGuard<'_, PendingQuestions> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The questions of one manager to other processes.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    state: Mutex<QuestionState>,
}

#[derive(Debug, Default)]
struct QuestionState {
    /// The open questions, by their nonces.
    open: HashMap<String, oneshot::Sender<String>>,
    /// The last answers, by prefix and process.
    heard: HashMap<String, LastAnswer>,
}

#[derive(Debug)]
struct LastAnswer {
    at: Moment,
    /// `None` if the process did not answer.
    report: Option<Arc<PeerReport>>,
}

impl LastAnswer {
    fn is_remembered(&self, now: Moment) -> bool {
        now.since(self.at) < if self.report.is_some() { GOOD } else { REMEMBERED }
    }
}

/// The way in which a question is sent and waited for.
pub(crate) struct QuestionRoute<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) alarms: &'a Alarms,
    /// The prefix of the question, with its separator.
    pub(crate) prefix: &'a str,
    /// The process that asks.
    pub(crate) own: &'a str,
    /// The store has to accept the questions by then.
    pub(crate) limit: Moment,
}

impl Questions {
    /// Asks these processes about a lock. Those that do not answer in time are missing in the result.
    pub(crate) async fn ask(
        &self,
        wants: Vec<Want>,
        lock: &str,
        way: QuestionRoute<'_>,
    ) -> HashMap<String, Arc<PeerReport>> {
        let now = way.store.clock().now();
        let (mut said, mut open) = (HashMap::new(), Vec::new());
        for want in wants {
            match self.known(&want, lock, &way, now) {
                RecentAnswer::Report(report) => drop(said.insert(want.process, report)),
                RecentAnswer::Ask { timeout } => open.push(self.open(want.process, timeout)),
            }
        }
        said.extend(self.put(open, Some(lock), &way, now).await);
        said
    }

    /// Asks these processes what they hold, wait for and count. Those that do not answer in time are missing.
    pub(crate) async fn watch(
        &self,
        processes: Vec<String>,
        way: QuestionRoute<'_>,
    ) -> HashMap<String, Arc<PeerReport>> {
        let now = way.store.clock().now();
        let open =
            processes.into_iter().map(|process| self.open(process, ANSWER_TIMEOUT)).collect();
        self.put(open, None, &way, now).await
    }

    /// Sends the questions, and waits for the answers.
    async fn put(
        &self,
        open: Vec<OpenQuestion<'_>>,
        lock: Option<&str>,
        way: &QuestionRoute<'_>,
        now: Moment,
    ) -> HashMap<String, Arc<PeerReport>> {
        let mut said = HashMap::new();
        if open.is_empty() {
            return said;
        }
        let about = lock.map(|lock| format!(" {lock}")).unwrap_or_default();
        let message = |open: &OpenQuestion<'_>| ProcessMessage {
            prefix: way.prefix.to_owned(),
            to: open.process.clone(),
            text: format!("q {}wake:{} {}{about}", way.prefix, way.own, open.nonce),
        };
        let messages = open.iter().map(message).collect();
        // If messages cannot be sent, no process is asked.
        let heard = way.store.clone().tell(messages, way.limit).await.unwrap_or_default();
        for (mut open, heard) in open.into_iter().zip(heard) {
            // The channel has no subscriber: the process is gone, or cannot subscribe.
            if !heard {
                continue;
            }
            let alarm = Alarm::at(way.alarms, way.store.clock(), now.after(open.timeout));
            let text = until(&mut open.answer, alarm).await;
            let report = text.and_then(Result::ok).map(|text| PeerReport::parse(&text));
            let now = way.store.clock().now();
            match report {
                Some(report) => {
                    let report = report.filter(|report| report.process.id == open.process);
                    if let Some(report) = report.map(Arc::new) {
                        self.note(way.prefix, &open.process, Some(report.clone()), now);
                        said.insert(open.process.clone(), report);
                    }
                }
                None => self.note(way.prefix, &open.process, None, now),
            }
        }
        said
    }

    /// Handles an answer: `<nonce>[,<nonce>…] <report>`. An answer to no open question is ignored.
    pub(crate) fn answered(&self, answer: &str) {
        let Some((nonces, report)) = answer.split_once(' ') else { return };
        let senders: Vec<_> = {
            let mut state = self.state();
            nonces.split(',').filter_map(|nonce| state.open.remove(nonce)).collect()
        };
        for sender in senders {
            // Wakes the tasks that asked, so the mutex is free.
            shield(|| drop(sender.send(report.to_owned())));
        }
    }

    /// Looks for a recent answer of the process.
    fn known(&self, want: &Want, lock: &str, way: &QuestionRoute<'_>, now: Moment) -> RecentAnswer {
        let state = self.state();
        let heard = state.heard.get(&name(way.prefix, &want.process));
        match heard.filter(|heard| heard.is_remembered(now)) {
            Some(LastAnswer { report: Some(report), .. }) => {
                let is_told = |lease: &String| {
                    report.holds(lock, lease).is_some() || report.waits(lock, lease).is_some()
                };
                match want.leases.iter().all(is_told) {
                    true => RecentAnswer::Report(report.clone()),
                    false => RecentAnswer::Ask { timeout: ANSWER_TIMEOUT },
                }
            }
            Some(LastAnswer { report: None, .. }) => RecentAnswer::Ask { timeout: SHORT_TIMEOUT },
            None => RecentAnswer::Ask { timeout: ANSWER_TIMEOUT },
        }
    }

    fn note(&self, prefix: &str, process: &str, report: Option<Arc<PeerReport>>, now: Moment) {
        let mut state = self.state();
        state.heard.retain(|_, heard| heard.is_remembered(now));
        shrink(&mut state.heard);
        state.heard.insert(name(prefix, process), LastAnswer { at: now, report });
    }

    fn open(&self, process: String, timeout: Duration) -> OpenQuestion<'_> {
        let nonce = Uuid::new_v4().simple().to_string();
        let (sender, answer) = oneshot::channel();
        self.state().open.insert(nonce.clone(), sender);
        OpenQuestion { questions: self, process, nonce, answer, timeout }
    }

    fn state(&self) -> MutexGuard<'_, QuestionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of a process that needs no new question, if there is one.
enum RecentAnswer {
    /// A recent report that names the leases.
    Report(Arc<PeerReport>),
    /// The process has to be asked, and waited for up to this long.
    Ask { timeout: Duration },
}

/// A question that awaits its answer. It is forgotten when it is dropped.
struct OpenQuestion<'a> {
    questions: &'a Questions,
    process: String,
    nonce: String,
    answer: oneshot::Receiver<String>,
    timeout: Duration,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        let mut state = self.questions.state();
        state.open.remove(&self.nonce);
        shrink(&mut state.open);
    }
}

/// Returns the key of a process in the map of last answers.
fn name(prefix: &str, process: &str) -> String {
    [prefix, process].concat()
}
