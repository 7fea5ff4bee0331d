//! Watches: how a token hears of the key in front of it, of keys behind it, and of the end of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::SendStream;

use crate::fault::Fault;
use crate::grpc::{self, Answers, Channel};
use crate::proto::{
    Event, KeyValue, RequestOp, TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::queue::is_reader;

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
    /// The server's numbers for them; no number is used twice.
    called: HashMap<i64, i64>,
}

struct Watched {
    whose: Whose,
    wants: Wants,
    /// The caller's watch as it was requested.
    wanted: Wants,
    key: Vec<u8>,
    /// The end of the range; empty for a single key.
    end: Vec<u8>,
    /// The first revision that the caller has not seen yet.
    from: i64,
    /// The server's number for it.
    called: i64,
    /// The server refused it, and it was requested again over a stream with a newer token.
    again: bool,
}

impl Watched {
    /// Watches one key from the present on.
    fn begins_at_present(&self) -> bool {
        self.wanted.is_for_one(&self.end)
    }
}

/// The follow-up of an answer.
enum Next {
    Nothing,
    /// The stream's token has expired.
    Reopen,
    /// The revisions that this watch needs are compacted: read the keys instead.
    Look(i64),
}

/// The stream is reopened at most this often in a row; then the connection is dropped.
const MOST_REOPENED: u32 = 3;

impl Watches {
    pub(crate) fn new(requests: SendStream<Bytes>) -> Self {
        let (all, called) = (HashMap::new(), HashMap::new());
        Self { state: Mutex::new(State { requests, last: 0, all, called }) }
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
        let mut state = self.state();
        state.last += 1;
        let id = state.last;
        let (key, end) = (key.to_vec(), end.to_vec());
        let whose = whose.clone();
        let (wanted, called, again) = (wants, 0, false);
        state.all.insert(id, Watched { whose, wants, wanted, key, end, from, called, again });
        state.create(id);
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
        channel: &Channel,
        mut answers: Answers,
        on: impl Fn(Message<'_>),
    ) -> Fault {
        let (mut signature, mut reopened) = (channel.signature(), 0);
        loop {
            let seen = match answers.next::<WatchResponse>().await {
                Ok(Some(seen)) => Ok(seen),
                Ok(None) => Err(Fault::unreachable("the server ended its watches")),
                Err(fault) => Err(fault),
            };
            let done = match seen {
                Ok(seen) => {
                    reopened = if seen.created && !seen.canceled { 0 } else { reopened };
                    match self.seen(seen, channel.user.is_some(), &on) {
                        Next::Nothing => Ok(()),
                        Next::Look(id) => self.look(channel, id, &on).await,
                        Next::Reopen if reopened == MOST_REOPENED => {
                            Err(Fault::unreachable("the server refuses its watches"))
                        }
                        Next::Reopen => {
                            reopened += 1;
                            let opened = self.reopen(channel, signature).await;
                            signature = channel.signature();
                            opened.map(|opened| answers = opened)
                        }
                    }
                }
                Err(fault) if fault.signed_out && reopened < MOST_REOPENED => {
                    reopened += 1;
                    let opened = self.reopen(channel, signature).await;
                    signature = channel.signature();
                    opened.map(|opened| answers = opened)
                }
                Err(fault) => Err(fault),
            };
            if let Err(fault) = done {
                return fault;
            }
        }
    }

    /// Requests all watches again over a stream with a newer token, because a stream keeps the token that it
    /// was opened with.
    async fn reopen(&self, channel: &Channel, signature: u64) -> Result<Answers, Fault> {
        channel.sign_in_again(signature).await?;
        let (requests, answers) = channel.ready().await?.open(grpc::WATCH)?;
        let mut state = self.state();
        state.requests = requests;
        state.called.clear();
        let ids: Vec<_> = state.all.keys().copied().collect();
        ids.into_iter().for_each(|id| state.create(id));
        Ok(answers)
    }

    /// Reads what a watch missed through a compaction, and sets the watch again from there.
    async fn look(
        &self,
        channel: &Channel,
        id: i64,
        on: &impl Fn(Message<'_>),
    ) -> Result<(), Fault> {
        let range = |watched: &Watched| match watched.end.is_empty() {
            true => RequestOp::get(watched.key.clone()),
            false => RequestOp::range(watched.key.clone(), watched.end.clone()),
        };
        let Some(op) = self.state().all.get(&id).map(range) else { return Ok(()) };
        let look = TxnRequest::unconditional(vec![op]);
        let found = channel.txn(&look).await?;
        let (heard, whose) = {
            let mut state = self.state();
            let Some(watched) = state.all.get_mut(&id) else { return Ok(()) };
            let Watched { whose, wanted, from, .. } = watched;
            let heard = wanted.find(whose, *from, found.last_keys());
            *from = found.header.revision + 1;
            let whose = whose.clone();
            match heard {
                Some(_) => drop(state.all.remove(&id)),
                None => state.create(id),
            }
            (heard, whose)
        };
        heard.into_iter().for_each(|heard| on(heard.of(&whose)));
        Ok(())
    }

    fn seen(&self, seen: WatchResponse, has_user: bool, on: &impl Fn(Message<'_>)) -> Next {
        let mut heard = Vec::new();
        let whose = {
            let mut state = self.state();
            let id = state.called.get(&seen.watch_id).copied();
            let known = id.and_then(|id| Some((id, state.all.get_mut(&id)?)));
            let Some((id, watched)) = known else {
                // Newer servers do not say which watch they refuse.
                let refused = has_user && seen.canceled && seen.is_signed_out();
                return if refused { Next::Reopen } else { Next::Nothing };
            };
            // Older servers report an expired token as a lack of permission.
            let is_refused = seen.created && seen.has_reason("permission denied");
            if has_user && seen.canceled && (seen.is_signed_out() || is_refused && !watched.again) {
                watched.again = true;
                return Next::Reopen;
            }
            watched.again &= !seen.created;
            let begins_at_present = watched.begins_at_present();
            let Watched { whose, wants, from, .. } = watched;
            let is_late = seen.created && begins_at_present && seen.header.revision >= *from;
            for event in &seen.events {
                heard.extend(wants.hear(whose, event));
            }
            if seen.compact_revision > 0 && heard.is_empty() && !matches!(wants, Wants::Turn(_)) {
                state.called.remove(&seen.watch_id);
                return Next::Look(id);
            }
            // What it would have seen is compacted: then a look is due.
            if seen.canceled && matches!(wants, Wants::Turn(_)) && heard.is_empty() {
                heard.push(Heard::Turn);
            }
            heard.truncate(1);
            let whose = whose.clone();
            if seen.canceled {
                state.all.remove(&id);
                state.called.remove(&seen.watch_id);
            } else if !heard.is_empty() {
                state.end(id);
            } else if is_late {
                // It goes on: the look that is due may find that nothing has happened.
                heard.push(Heard::Turn);
            }
            whose
        };
        // Call it without the mutex, because it may call back into this.
        heard.into_iter().for_each(|heard| on(heard.of(&whose)));
        Next::Nothing
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn send(&mut self, request: &WatchRequest) {
        // Where the connection is lost, so are all watches, and their owners get a message.
        let _ = self.requests.send_data(grpc::frame(request).into(), false);
    }

    /// Requests a watch, possibly again.
    fn create(&mut self, id: i64) {
        self.last += 1;
        let called = self.last;
        let Some(watched) = self.all.get_mut(&id) else { return };
        (watched.wants, watched.called) = (watched.wanted, called);
        let without = match watched.wanted {
            Wants::Behind { .. } => WatchCreateRequest::NO_DELETE,
            Wants::Turn(_) | Wants::Taken => WatchCreateRequest::NO_PUT,
        };
        let request = WatchCreateRequest {
            key: watched.key.clone(),
            range_end: watched.end.clone(),
            start_revision: if watched.begins_at_present() { 0 } else { watched.from },
            filters: vec![without],
            watch_id: called,
        };
        self.called.insert(called, id);
        self.send(&WatchRequest::create(request));
    }

    fn end(&mut self, id: i64) {
        if let Some(watched) = self.all.remove(&id) {
            self.called.remove(&watched.called);
            self.send(&WatchRequest::cancel(watched.called));
        }
    }
}

enum Heard {
    Turn,
    Behind,
    Taken,
}

impl Heard {
    fn of<'a>(&self, whose: &'a Whose) -> Message<'a> {
        let (name, token) = (&*whose.name, &*whose.token);
        match self {
            Self::Turn => Message::Turn(name, token),
            Self::Behind => Message::Behind(name, token),
            Self::Taken => Message::Taken(name, token),
        }
    }
}

impl Wants {
    /// Returns the events since a revision, judging by the keys that exist now.
    fn find(self, whose: &Whose, from: i64, keys: &[KeyValue]) -> Option<Heard> {
        let is_own = |kv: &KeyValue| *kv.key == *whose.key;
        match self {
            Self::Turn(_) => Some(Heard::Turn),
            Self::Behind { reads } => {
                let is_behind =
                    |kv: &KeyValue| kv.create_revision >= from && !(reads && is_reader(kv));
                keys.iter().any(|kv| !is_own(kv) && is_behind(kv)).then_some(Heard::Behind)
            }
            // A key that was created again since is another key.
            Self::Taken => {
                let is_there = |kv: &KeyValue| is_own(kv) && kv.create_revision < from;
                (!keys.iter().any(is_there)).then_some(Heard::Taken)
            }
        }
    }

    /// One key is watched until it leaves.
    fn is_for_one(self, end: &[u8]) -> bool {
        self == Self::Turn(1) && end.is_empty()
    }

    fn hear(&mut self, whose: &Whose, event: &Event) -> Option<Heard> {
        let (kv, deleted) = (&event.kv, event.is_delete());
        let own = *kv.key == *whose.key;
        match self {
            Self::Turn(left) if deleted && !own => {
                *left = left.saturating_sub(1);
                (*left == 0).then_some(Heard::Turn)
            }
            Self::Behind { reads } if !deleted && !own => {
                // A key that is written again was there before.
                let is_new = kv.create_revision == kv.mod_revision;
                (is_new && !(*reads && is_reader(kv))).then_some(Heard::Behind)
            }
            Self::Taken if deleted && own => Some(Heard::Taken),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(token: &str, value: &str, created: i64) -> KeyValue {
        let (key, value) = (token.as_bytes().to_vec(), value.as_bytes().to_vec());
        KeyValue { key, value, create_revision: created, mod_revision: created, lease: 7 }
    }

    #[test]
    fn a_look_finds_what_a_watch_would_have_seen() {
        let whose = Whose { name: "k".into(), token: "own".into(), key: b"own"[..].into() };
        let keys = |more: &[KeyValue]| [&[key("own", "1", 5)], more].concat();
        let finds = |wants: Wants, keys: &[KeyValue]| wants.find(&whose, 8, keys).is_some();
        assert!(finds(Wants::Taken, &[]) && !finds(Wants::Taken, &keys(&[])));
        assert!(finds(Wants::Taken, &[key("own", "1", 9)]), "it is another one");
        let behind = |reads| Wants::Behind { reads };
        assert!(!finds(behind(false), &keys(&[key("before", "1", 7)])));
        assert!(finds(behind(false), &keys(&[key("after", "1", 8)])));
        assert!(finds(behind(false), &keys(&[key("reader", "r", 8)])));
        assert!(!finds(behind(true), &keys(&[key("reader", "r", 8)])));
        assert!(finds(behind(true), &keys(&[key("writer", "1", 8)])));
    }
}
