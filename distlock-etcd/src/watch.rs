//! Watches: how a token hears of the key in front of it, of keys behind it, and of the end of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::SendStream;

use crate::fault::Fault;
use crate::grpc::{self, Answers};
use crate::message::{KeyValue, Seen, Without};
use crate::order::is_reader;
use crate::{message, message::watch as create};

/// What is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// It may be the turn of this token for the lock of this name.
    Turn(&'a str, &'a str),
    /// Another one has come behind this token.
    Behind(&'a str, &'a str),
    /// The key of this token was taken away.
    Taken(&'a str, &'a str),
    /// A connection began or ended: anything may have been missed.
    Interrupted,
}

/// Whose watch it is.
#[derive(Debug, Clone)]
pub(crate) struct Whose {
    /// The name of the lock.
    pub(crate) name: Arc<str>,
    pub(crate) token: Arc<str>,
    pub(crate) key: Arc<[u8]>,
}

/// What a watch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    /// So many keys leave.
    Turn(usize),
    /// Another key comes; for a reader, one that does not read.
    Behind { reads: bool },
    /// Its own key leaves.
    Taken,
}

/// The watches of one connection.
pub(crate) struct Watches {
    state: Mutex<State>,
}

struct State {
    requests: SendStream<Bytes>,
    last: i64,
    all: HashMap<i64, Watched>,
}

struct Watched {
    whose: Whose,
    wants: Wants,
    /// Where it begins at present: the first revision that was not looked at before it was asked for.
    unseen: Option<i64>,
}

impl Watches {
    pub(crate) fn new(requests: SendStream<Bytes>) -> Self {
        Self { state: Mutex::new(State { requests, last: 0, all: HashMap::new() }) }
    }

    /// Watches a key, or all up to `end`, from a revision on.
    ///
    /// A watch that begins in the past hears nothing for up to 100 ms, until etcd has looked through its history:
    /// on a lock that is handed on quickly that is most of the wait. One for a single key to leave begins at present,
    /// and where something was written since it was looked, a look is due.
    pub(crate) fn add(
        &self,
        whose: &Whose,
        wants: Wants,
        key: &[u8],
        end: &[u8],
        from: i64,
    ) -> i64 {
        let without = match wants {
            Wants::Behind { .. } => Without::Deletes,
            Wants::Turn(_) | Wants::Taken => Without::Puts,
        };
        let unseen = wants.is_for_one(end).then_some(from);
        let start = if unseen.is_some() { 0 } else { from };
        let mut state = self.state();
        state.last += 1;
        let id = state.last;
        state.all.insert(id, Watched { whose: whose.clone(), wants, unseen });
        state.send(&create(id, key, end, start, without));
        id
    }

    /// Ends some of them.
    pub(crate) fn remove(&self, ids: impl IntoIterator<Item = i64>) {
        let mut state = self.state();
        for id in ids {
            state.end(id);
        }
    }

    /// Whether it is there still: it ends with what it was for.
    pub(crate) fn has(&self, id: i64) -> bool {
        self.state().all.contains_key(&id)
    }

    /// Hands on what is seen, until the connection ends.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut answers: Answers,
        on: impl Fn(Message<'_>),
    ) -> Fault {
        loop {
            let seen = match answers.next().await {
                Ok(Some(text)) => Seen::decode(&text).map_err(Fault::from),
                Ok(None) => Err(Fault::unreachable("the server ended its watches")),
                Err(fault) => Err(fault),
            };
            match seen {
                Ok(seen) => self.seen(&seen, &on),
                Err(fault) => return fault,
            }
        }
    }

    fn seen(&self, seen: &Seen, on: &impl Fn(Message<'_>)) {
        let mut heard = Vec::new();
        {
            let mut state = self.state();
            let Some(watched) = state.all.get_mut(&seen.id) else { return };
            let Watched { whose, wants, unseen } = watched;
            let is_late = seen.begins && unseen.is_some_and(|from| seen.header.revision >= from);
            for (deleted, kv) in &seen.events {
                heard.extend(wants.hear(whose, *deleted, kv));
            }
            // What it would have seen is compacted: then a look is due.
            if seen.ended && matches!(wants, Wants::Turn(_)) && heard.is_empty() {
                heard.push(Heard::Turn);
            }
            heard.truncate(1);
            let whose = whose.clone();
            if seen.ended {
                state.all.remove(&seen.id);
            } else if !heard.is_empty() {
                state.end(seen.id);
            } else if is_late {
                // It goes on: the look that is due may find that nothing has happened.
                heard.push(Heard::Turn);
            }
            drop(state);
            // With the mutex free: what is done then may come back here.
            for heard in heard {
                let (name, token) = (&*whose.name, &*whose.token);
                on(match heard {
                    Heard::Turn => Message::Turn(name, token),
                    Heard::Behind => Message::Behind(name, token),
                    Heard::Taken => Message::Taken(name, token),
                });
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn send(&mut self, request: &[u8]) {
        // Where the connection is lost, so are all watches, and their owners get a message.
        let _ = self.requests.send_data(grpc::frame(request).into(), false);
    }

    fn end(&mut self, id: i64) {
        if self.all.remove(&id).is_some() {
            self.send(&message::unwatch(id));
        }
    }
}

enum Heard {
    Turn,
    Behind,
    Taken,
}

impl Wants {
    /// One key is watched until it leaves.
    fn is_for_one(self, end: &[u8]) -> bool {
        self == Self::Turn(1) && end.is_empty()
    }

    fn hear(&mut self, whose: &Whose, deleted: bool, kv: &KeyValue) -> Option<Heard> {
        let own = *kv.key == *whose.key;
        match self {
            Self::Turn(left) if deleted && !own => {
                *left = left.saturating_sub(1);
                (*left == 0).then_some(Heard::Turn)
            }
            Self::Behind { reads } if !deleted && !own => {
                // A key that is written again was there before.
                let is_new = kv.created == kv.modified;
                (is_new && !(*reads && is_reader(kv))).then_some(Heard::Behind)
            }
            Self::Taken if deleted && own => Some(Heard::Taken),
            _ => None,
        }
    }
}
