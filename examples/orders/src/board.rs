//! What the requests of this instance are about, and how they ended. Who holds which lock the manager knows:
//! see `held`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

/// How many answers are remembered.
const REMEMBERED: usize = 14;

/// What goes on in one instance.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    instance: Arc<str>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    turns: BTreeMap<u64, Doing>,
    answers: VecDeque<Answer>,
}

/// A request that is being worked on.
#[derive(Debug)]
struct Doing {
    who: String,
    what: String,
    holds: Vec<String>,
    /// In the order in which they are taken.
    wants: Vec<String>,
    /// When it began.
    since: Instant,
    /// When it got or wanted something last.
    changed: Instant,
}

/// An instance as its page shows it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Seen {
    pub(crate) instance: String,
    turns: Vec<SeenTurn>,
    answers: Vec<Answer>,
}

#[derive(Debug, Clone, Serialize)]
struct SeenTurn {
    who: String,
    what: String,
    holds: Vec<String>,
    wants: Vec<String>,
    ms: u64,
}

#[derive(Debug, Clone, Serialize)]
struct Answer {
    /// Of its request, among those of its instance.
    number: u64,
    at: u64,
    who: String,
    what: String,
    /// `None`: the client did not wait for it.
    status: Option<u16>,
    ms: u64,
}

/// One request, from its beginning to its answer; dropped before that, its client is gone.
#[derive(Debug, Clone)]
pub struct Turn(Arc<Ticket>);

#[derive(Debug)]
struct Ticket {
    board: Board,
    number: u64,
    wait: Duration,
}

impl Board {
    /// The board of one instance, for example `axum:3000`.
    pub(crate) fn new(instance: &str) -> Self {
        Self { instance: instance.into(), inner: Arc::default() }
    }

    /// A request begins, and will wait for so long. If its path tells what it will lock, it waits
    /// for that.
    pub(crate) fn begin(&self, who: Option<&str>, path: &str, wait: Duration) -> Turn {
        let (what, wants) = match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["orders", id, action] => match id.parse::<u64>() {
                Ok(id) => (format!("{action} order {id}"), vec![format!("order:{id}")]),
                Err(_) => (format!("{action} an order"), Vec::new()),
            },
            ["orders"] => ("place an order".to_owned(), Vec::new()),
            _ => ("transfer".to_owned(), Vec::new()),
        };
        let who = who.unwrap_or("somebody").chars().take(40).collect();
        let mut inner = self.lock();
        inner.next += 1;
        let number = inner.next;
        let (holds, now) = (Vec::new(), Instant::now());
        let doing = Doing { who, what, holds, wants, since: now, changed: now };
        inner.turns.insert(number, doing);
        Turn(Arc::new(Ticket { board: self.clone(), number, wait }))
    }

    pub(crate) fn seen(&self) -> Seen {
        let inner = self.lock();
        let turn = |doing: &Doing| SeenTurn {
            who: doing.who.clone(),
            what: doing.what.clone(),
            holds: doing.holds.clone(),
            wants: doing.wants.clone(),
            ms: millis(doing.changed.elapsed()),
        };
        Seen {
            instance: self.instance.to_string(),
            turns: inner.turns.values().map(turn).collect(),
            answers: inner.answers.iter().cloned().collect(),
        }
    }

    /// The locks that requests of this instance have or want.
    pub(crate) fn keys(&self) -> Vec<String> {
        let inner = self.lock();
        let keys = inner.turns.values().flat_map(|doing| doing.holds.iter().chain(&doing.wants));
        keys.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, number: u64, status: Option<u16>) {
        let mut inner = self.lock();
        let Some(doing) = inner.turns.remove(&number) else { return };
        let ms = millis(doing.since.elapsed());
        let answer = Answer { number, at: now(), who: doing.who, what: doing.what, status, ms };
        inner.answers.push_front(answer);
        inner.answers.truncate(REMEMBERED);
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Doing)) {
        if let Some(doing) = self.lock().turns.get_mut(&number) {
            change(doing);
            doing.changed = Instant::now();
        }
    }
}

impl Turn {
    /// How long it waits for a lock.
    pub fn wait(&self) -> Duration {
        self.0.wait
    }

    /// It is about to ask for these locks.
    pub(crate) fn wants<const N: usize>(&self, mut keys: [String; N]) {
        keys.sort();
        self.0.board.change(self.0.number, |doing| doing.wants = keys.into());
    }

    /// It has these locks.
    pub(crate) fn has<const N: usize>(&self, keys: [String; N]) {
        self.0.board.change(self.0.number, |doing| {
            doing.wants.clear();
            doing.holds.extend(keys);
        });
    }

    /// It is answered.
    pub fn end(&self, status: u16) {
        self.0.board.end(self.0.number, Some(status));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.board.end(self.number, None);
    }
}

fn now() -> u64 {
    millis(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
