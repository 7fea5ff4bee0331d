//! Watches on keys. They tell a token that a key ahead of it left, that a waiter came after it, or that its own key is
//! gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use distlock_core::store::{Message, Notification, Owner};
use h2::SendStream;

use crate::fault::EtcdFault;
use crate::grpc::{self, GrpcChannel, ResponseStream};
use crate::proto::{
    KeyValue, RequestOp, TxnRequest, WatchCreateRequest, WatchEvent, WatchRequest, WatchResponse,
};
use crate::queue::is_reader;

/// A token of this process, with its key.
#[derive(Debug, Clone)]
pub(crate) struct TokenKey {
    pub(crate) owner: Arc<Owner>,
    pub(crate) key: Arc<[u8]>,
}

impl TokenKey {
    fn message(&self) -> Message<'_> {
        Message { stored: self.owner.lock.stored(), token: &self.owner.token }
    }

    /// Returns the notification that the token's turn may have come.
    pub(crate) fn turn(&self) -> Notification<'_> {
        Notification::Reserved(self.message())
    }
}

/// The change that a watch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchGoal {
    /// This many keys leave.
    Turn(usize),
    /// Another token joined the queue. Readers do not wait for each other.
    Waiter { is_reader: bool },
    /// The token's own key leaves.
    Loss,
}

/// The watches of one connection.
pub(crate) struct Watches {
    table: Mutex<WatchTable>,
}

struct WatchTable {
    requests: SendStream<Bytes>,
    /// The last number that was given to a watch, by the caller or by the server.
    last: i64,
    /// The open watches, by the numbers that their callers know.
    open: HashMap<i64, OpenWatch>,
    /// The callers' numbers, by the numbers that the server knows. No number is used twice.
    by_server_id: HashMap<i64, i64>,
}

struct OpenWatch {
    token: TokenKey,
    /// The part of the goal that is left.
    remaining: WatchGoal,
    /// The goal as the caller requested it.
    goal: WatchGoal,
    key: Vec<u8>,
    /// The end of the range; empty for a single key.
    end: Vec<u8>,
    /// The first revision that the caller has not seen yet.
    from: i64,
    server_id: i64,
    /// The server refused it, and it was requested again over a stream with a newer token.
    was_refused: bool,
}

impl OpenWatch {
    /// Returns whether it watches one key from the present on.
    fn begins_at_present(&self) -> bool {
        self.goal == WatchGoal::Turn(1) && self.end.is_empty()
    }

    /// Returns whether the server refused it because the stream's token has expired.
    fn is_refused(&self, response: &WatchResponse) -> bool {
        // Older servers report an expired token as a lack of permission.
        let is_denied = response.created && response.has_reason("permission denied");
        response.canceled && (response.is_signed_out() || is_denied && !self.was_refused)
    }
}

/// The step that follows a response.
enum AfterResponse {
    Nothing,
    /// The stream's token has expired.
    Reopen,
    /// The revisions that this watch needs are compacted: read the keys instead.
    CatchUp(i64),
}

/// The stream is reopened at most this often in a row; then the connection is dropped.
const MOST_REOPENED: u32 = 3;

impl Watches {
    pub(crate) fn new(requests: SendStream<Bytes>) -> Self {
        let (open, by_server_id) = (HashMap::new(), HashMap::new());
        Self { table: Mutex::new(WatchTable { requests, last: 0, open, by_server_id }) }
    }

    /// Watches a key, or all keys from it to before `end`, from a revision on. Returns the number of the watch.
    ///
    /// A watch that begins in the past hears nothing for up to 100 ms, until etcd has searched its history. On a
    /// lock that changes hands quickly, this would be most of the wait. So a watch for a single key to leave begins
    /// at present. If something was written between the caller's look and the watch, the caller is told to look again.
    pub(crate) fn add(
        &self,
        token: &TokenKey,
        goal: WatchGoal,
        key: &[u8],
        end: &[u8],
        from: i64,
    ) -> i64 {
        let mut table = self.table();
        table.last += 1;
        let id = table.last;
        let watch = OpenWatch {
            token: token.clone(),
            remaining: goal,
            goal,
            key: key.to_vec(),
            end: end.to_vec(),
            from,
            server_id: 0,
            was_refused: false,
        };
        table.open.insert(id, watch);
        table.request(id);
        id
    }

    /// Ends watches.
    pub(crate) fn remove(&self, ids: impl IntoIterator<Item = i64>) {
        let mut table = self.table();
        for id in ids {
            table.cancel(id);
        }
    }

    /// Returns whether a watch is open. It ends when it reaches its goal.
    pub(crate) fn has(&self, id: i64) -> bool {
        self.table().open.contains_key(&id)
    }

    /// Passes on the notifications of all watches, until the connection ends.
    pub(crate) async fn run(
        &self,
        channel: &GrpcChannel,
        responses: &mut ResponseStream,
        notify: impl Fn(Notification<'_>),
    ) -> EtcdFault {
        let (mut auth_token, mut reopened) = (channel.token_number(), 0);
        loop {
            let next = match responses.next::<WatchResponse>().await {
                Ok(Some(response)) => {
                    reopened = if response.created && !response.canceled { 0 } else { reopened };
                    self.on_response(&response, channel.user.is_some(), &notify)
                }
                Ok(None) => return EtcdFault::unreachable("the server ended its watches"),
                Err(fault) if fault.signed_out && reopened < MOST_REOPENED => AfterResponse::Reopen,
                Err(fault) => return fault,
            };
            let done = match next {
                AfterResponse::Nothing => Ok(()),
                AfterResponse::CatchUp(id) => self.catch_up(channel, id, &notify).await,
                AfterResponse::Reopen if reopened == MOST_REOPENED => {
                    return EtcdFault::unreachable("the server refuses its watches");
                }
                AfterResponse::Reopen => {
                    reopened += 1;
                    let opened = self.reopen(channel, auth_token).await;
                    auth_token = channel.token_number();
                    opened.map(|opened| *responses = opened)
                }
            };
            if let Err(fault) = done {
                return fault;
            }
        }
    }

    /// Requests all watches again over a stream with a newer token, because a stream keeps the token that it
    /// was opened with.
    async fn reopen(
        &self,
        channel: &GrpcChannel,
        expired: u64,
    ) -> Result<ResponseStream, EtcdFault> {
        channel.sign_in_again(expired).await?;
        let (requests, responses) = channel.ready().await?.open(grpc::WATCH)?;
        let mut table = self.table();
        table.requests = requests;
        table.by_server_id.clear();
        let ids: Vec<_> = table.open.keys().copied().collect();
        ids.into_iter().for_each(|id| table.request(id));
        Ok(responses)
    }

    /// Reads the changes that a watch missed through a compaction, and requests the watch again from there.
    async fn catch_up(
        &self,
        channel: &GrpcChannel,
        id: i64,
        notify: &impl Fn(Notification<'_>),
    ) -> Result<(), EtcdFault> {
        let read = |watch: &OpenWatch| match watch.end.is_empty() {
            true => RequestOp::get(watch.key.clone()),
            false => RequestOp::range(watch.key.clone(), watch.end.clone()),
        };
        let Some(op) = self.table().open.get(&id).map(read) else { return Ok(()) };
        let found = channel.txn(&TxnRequest::unconditional(vec![op])).await?;
        let (reached, token) = {
            let mut table = self.table();
            let Some(watch) = table.open.get_mut(&id) else { return Ok(()) };
            let OpenWatch { token, goal, from, .. } = watch;
            let reached = goal.is_reached(&token.key, *from, found.last_keys()).then_some(*goal);
            *from = found.header.revision + 1;
            let token = token.clone();
            match reached {
                Some(_) => drop(table.open.remove(&id)),
                None => table.request(id),
            }
            (reached, token)
        };
        reached.into_iter().for_each(|goal| notify(goal.notification(&token)));
        Ok(())
    }

    fn on_response(
        &self,
        response: &WatchResponse,
        has_user: bool,
        notify: &impl Fn(Notification<'_>),
    ) -> AfterResponse {
        let message = {
            let mut table = self.table();
            let id = table.by_server_id.get(&response.watch_id).copied();
            let known = id.and_then(|id| Some((id, table.open.get_mut(&id)?)));
            let Some((id, watch)) = known else {
                // Newer servers do not say which watch they refuse.
                let is_refused = has_user && response.canceled && response.is_signed_out();
                return if is_refused { AfterResponse::Reopen } else { AfterResponse::Nothing };
            };
            if has_user && watch.is_refused(response) {
                watch.was_refused = true;
                return AfterResponse::Reopen;
            }
            watch.was_refused &= !response.created;
            let is_late = response.created
                && watch.begins_at_present()
                && response.header.revision >= watch.from;
            let OpenWatch { token, remaining, goal, .. } = watch;
            let is_for_turn = matches!(goal, WatchGoal::Turn(_));
            let mut is_reached =
                response.events.iter().any(|event| remaining.reach(&token.key, event));
            if response.compact_revision > 0 && !is_reached && !is_for_turn {
                table.by_server_id.remove(&response.watch_id);
                return AfterResponse::CatchUp(id);
            }
            // The events that it missed are compacted, so the waiter must look at the queue.
            is_reached |= response.canceled && is_for_turn;
            let message = (token.clone(), *goal);
            if response.canceled {
                table.open.remove(&id);
                table.by_server_id.remove(&response.watch_id);
            } else if is_reached {
                table.cancel(id);
            }
            // A late watch stays open: the look may find that nothing has happened.
            (is_reached || is_late).then_some(message)
        };
        // Notify without holding the mutex, because the listener may call back into this.
        message.into_iter().for_each(|(token, goal)| notify(goal.notification(&token)));
        AfterResponse::Nothing
    }

    fn table(&self) -> MutexGuard<'_, WatchTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchTable {
    fn send(&mut self, request: &WatchRequest) {
        // If this fails, the connection is lost with all watches, and their owners are notified of that.
        let _ = self.requests.send_data(grpc::frame(request).into(), false);
    }

    /// Requests a watch from the server, possibly again.
    fn request(&mut self, id: i64) {
        self.last += 1;
        let server_id = self.last;
        let Some(watch) = self.open.get_mut(&id) else { return };
        (watch.remaining, watch.server_id) = (watch.goal, server_id);
        let filter = match watch.goal {
            WatchGoal::Waiter { .. } => WatchCreateRequest::NO_DELETE,
            WatchGoal::Turn(_) | WatchGoal::Loss => WatchCreateRequest::NO_PUT,
        };
        let request = WatchCreateRequest {
            key: watch.key.clone(),
            range_end: watch.end.clone(),
            start_revision: if watch.begins_at_present() { 0 } else { watch.from },
            filters: vec![filter],
            watch_id: server_id,
        };
        self.by_server_id.insert(server_id, id);
        self.send(&WatchRequest::create(request));
    }

    fn cancel(&mut self, id: i64) {
        if let Some(watch) = self.open.remove(&id) {
            self.by_server_id.remove(&watch.server_id);
            self.send(&WatchRequest::cancel(watch.server_id));
        }
    }
}

impl WatchGoal {
    /// Returns the notification that it is reached.
    fn notification(self, token: &TokenKey) -> Notification<'_> {
        match self {
            Self::Turn(_) => token.turn(),
            Self::Waiter { .. } => Notification::WaiterBehind(token.message()),
            Self::Loss => Notification::TakenAway(token.message()),
        }
    }

    /// Returns whether it was reached since a revision for the token with this key, judging by the keys that exist now.
    fn is_reached(self, own: &[u8], from: i64, keys: &[KeyValue]) -> bool {
        let is_own = |kv: &KeyValue| *kv.key == *own;
        match self {
            Self::Turn(_) => true,
            Self::Waiter { is_reader: beside_readers } => {
                let is_waiter = |kv: &KeyValue| {
                    kv.create_revision >= from && !(beside_readers && is_reader(kv))
                };
                keys.iter().any(|kv| !is_own(kv) && is_waiter(kv))
            }
            // A key that was created again since is another key.
            Self::Loss => !keys.iter().any(|kv| is_own(kv) && kv.create_revision < from),
        }
    }

    /// Applies an event, and returns whether it reaches the goal of the token with this key.
    fn reach(&mut self, own: &[u8], event: &WatchEvent) -> bool {
        let (kv, is_delete) = (&event.kv, event.is_delete());
        let is_own = *kv.key == *own;
        match self {
            Self::Turn(left) if is_delete && !is_own => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            Self::Waiter { is_reader: beside_readers } if !is_delete && !is_own => {
                // A key that is written again existed before.
                let is_new = kv.create_revision == kv.mod_revision;
                is_new && !(*beside_readers && is_reader(kv))
            }
            Self::Loss => is_delete && is_own,
            Self::Turn(_) | Self::Waiter { .. } => false,
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
    fn reading_the_keys_replaces_the_missed_events() {
        let keys = |more: &[KeyValue]| [&[key("own", "1", 5)], more].concat();
        let finds = |goal: WatchGoal, keys: &[KeyValue]| goal.is_reached(b"own", 8, keys);
        assert!(finds(WatchGoal::Loss, &[]) && !finds(WatchGoal::Loss, &keys(&[])));
        assert!(finds(WatchGoal::Loss, &[key("own", "1", 9)]), "it is another key");
        let waiter = |is_reader| WatchGoal::Waiter { is_reader };
        assert!(!finds(waiter(false), &keys(&[key("before", "1", 7)])));
        assert!(finds(waiter(false), &keys(&[key("after", "1", 8)])));
        assert!(finds(waiter(false), &keys(&[key("reader", "r", 8)])));
        assert!(!finds(waiter(true), &keys(&[key("reader", "r", 8)])));
        assert!(finds(waiter(true), &keys(&[key("writer", "1", 8)])));
    }
}
