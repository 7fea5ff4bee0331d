//! Questions of this process to others, and the answers that are awaited.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::Account;
use crate::clock::Moment;
use crate::engine::alarm::{Alarm, Alarms};
use crate::select::until;
use crate::shield::shield;
use crate::shrink::shrink;
use crate::store::{Letter, Store};

/// What a process has said is good for so long, for the leases that it named.
const GOOD: Duration = Duration::from_secs(1);
/// A process answers once a second: how long an answer is awaited.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// The same for one that has not answered just before.
const SHORT_TIMEOUT: Duration = Duration::from_millis(100);
/// For so long it is remembered that it has not.
const REMEMBERED: Duration = Duration::from_secs(10);

/// What is wanted of one process: what it says of these leases.
#[derive(Debug)]
pub(crate) struct Want {
    pub(crate) process: String,
    /// The numbers in its tokens.
    pub(crate) leases: Vec<String>,
}

/// The questions of one manager.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By their nonces.
    open: HashMap<String, oneshot::Sender<String>>,
    /// What processes have said last, by prefix and name.
    heard: HashMap<String, Heard>,
}

#[derive(Debug)]
struct Heard {
    at: Moment,
    /// `None`: nothing.
    account: Option<Arc<Account>>,
}

impl Heard {
    fn is_remembered(&self, now: Moment) -> bool {
        now.since(self.at) < if self.account.is_some() { GOOD } else { REMEMBERED }
    }
}

/// How a question is sent and waited for.
pub(crate) struct Way<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) alarms: &'a Alarms,
    /// The prefix under which is asked, with its separator.
    pub(crate) prefix: &'a str,
    /// The process that asks.
    pub(crate) own: &'a str,
    /// The store has to take the questions by then.
    pub(crate) limit: Moment,
}

impl Questions {
    /// What these processes say of a lock; those that say nothing in time are missing.
    pub(crate) async fn ask(
        &self,
        wants: Vec<Want>,
        lock: &str,
        way: Way<'_>,
    ) -> HashMap<String, Arc<Account>> {
        let now = way.store.clock().now();
        let (mut said, mut open) = (HashMap::new(), Vec::new());
        for want in wants {
            match self.known(&want, lock, &way, now) {
                Known::Good(account) => drop(said.insert(want.process, account)),
                Known::Nothing { timeout } => open.push(self.open(want.process, timeout)),
            }
        }
        said.extend(self.put(open, Some(lock), &way, now).await);
        said
    }

    /// What these processes hold, wait for and count, asked anew; those that say nothing in time are missing.
    pub(crate) async fn watch(
        &self,
        processes: Vec<String>,
        way: Way<'_>,
    ) -> HashMap<String, Arc<Account>> {
        let now = way.store.clock().now();
        let open =
            processes.into_iter().map(|process| self.open(process, ANSWER_TIMEOUT)).collect();
        self.put(open, None, &way, now).await
    }

    async fn put(
        &self,
        open: Vec<Open<'_>>,
        lock: Option<&str>,
        way: &Way<'_>,
        now: Moment,
    ) -> HashMap<String, Arc<Account>> {
        let mut said = HashMap::new();
        if open.is_empty() {
            return said;
        }
        let about = lock.map(|lock| format!(" {lock}")).unwrap_or_default();
        let letter = |open: &Open<'_>| Letter {
            prefix: way.prefix.to_owned(),
            to: open.process.clone(),
            text: format!("q {}wake:{} {}{about}", way.prefix, way.own, open.nonce),
        };
        let letters = open.iter().map(letter).collect();
        // Where messages cannot be sent no process is asked.
        let heard = way.store.clone().tell(letters, way.limit).await.unwrap_or_default();
        for (mut open, heard) in open.into_iter().zip(heard) {
            // That channel has no subscriber: the process is gone, or cannot subscribe.
            if !heard {
                continue;
            }
            let alarm = Alarm::at(way.alarms, way.store.clock(), now.after(open.timeout));
            let text = until(&mut open.answer, alarm).await;
            let account = text.and_then(Result::ok).map(|text| Account::parse(&text));
            let now = way.store.clock().now();
            match account {
                Some(account) => {
                    let account = account.filter(|account| account.process.id == open.process);
                    if let Some(account) = account.map(Arc::new) {
                        self.note(way.prefix, &open.process, Some(account.clone()), now);
                        said.insert(open.process.clone(), account);
                    }
                }
                None => self.note(way.prefix, &open.process, None, now),
            }
        }
        said
    }

    /// An answer has come: `<nonce>[,<nonce>…] <account>`. Nothing unless it was asked for.
    pub(crate) fn answered(&self, answer: &str) {
        let Some((nonces, account)) = answer.split_once(' ') else { return };
        let senders: Vec<_> = {
            let mut state = self.state();
            nonces.split(',').filter_map(|nonce| state.open.remove(nonce)).collect()
        };
        for sender in senders {
            // Wakes the tasks that asked, under no mutex.
            shield(|| drop(sender.send(account.to_owned())));
        }
    }

    fn known(&self, want: &Want, lock: &str, way: &Way<'_>, now: Moment) -> Known {
        let state = self.state();
        let heard = state.heard.get(&name(way.prefix, &want.process));
        match heard.filter(|heard| heard.is_remembered(now)) {
            Some(Heard { account: Some(account), .. }) => {
                let is_told = |lease: &String| {
                    account.holds(lock, lease).is_some() || account.waits(lock, lease).is_some()
                };
                match want.leases.iter().all(is_told) {
                    true => Known::Good(account.clone()),
                    false => Known::Nothing { timeout: ANSWER_TIMEOUT },
                }
            }
            Some(Heard { account: None, .. }) => Known::Nothing { timeout: SHORT_TIMEOUT },
            None => Known::Nothing { timeout: ANSWER_TIMEOUT },
        }
    }

    fn note(&self, prefix: &str, process: &str, account: Option<Arc<Account>>, now: Moment) {
        let mut state = self.state();
        state.heard.retain(|_, heard| heard.is_remembered(now));
        shrink(&mut state.heard);
        state.heard.insert(name(prefix, process), Heard { at: now, account });
    }

    fn open(&self, process: String, timeout: Duration) -> Open<'_> {
        let nonce = Uuid::new_v4().simple().to_string();
        let (sender, answer) = oneshot::channel();
        self.state().open.insert(nonce.clone(), sender);
        Open { questions: self, process, nonce, answer, timeout }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Known {
    Good(Arc<Account>),
    /// It has to be asked, and waited for so long.
    Nothing {
        timeout: Duration,
    },
}

/// A question under way; forgotten when it is dropped.
struct Open<'a> {
    questions: &'a Questions,
    process: String,
    nonce: String,
    answer: oneshot::Receiver<String>,
    timeout: Duration,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.questions.state();
        state.open.remove(&self.nonce);
        shrink(&mut state.open);
    }
}

fn name(prefix: &str, process: &str) -> String {
    [prefix, process].concat()
}
