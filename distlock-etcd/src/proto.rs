//! The subset of etcd's protocol buffers that this crate uses.
//!
//! Names and field numbers are those of etcd's `rpc.proto` and `kv.proto`. Fields that nothing here reads are left
//! out, and the decoder skips them. A `oneof` is written as several optional fields, of which one is present: the
//! bytes are the same. A `required` field that is missing from an answer has its default value.

use prost::{DecodeError, Message};

use crate::fault::EtcdFault;

/// Decodes a message, or fails if the bytes are no such message.
pub(crate) fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, EtcdFault> {
    Ok(M::decode(bytes)?)
}

impl From<DecodeError> for EtcdFault {
    fn from(_: DecodeError) -> Self {
        Self::unexpected()
    }
}

/// The state of the cluster when it answered.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    /// The number of writes up to this answer.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    /// The number of elections.
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// A key with its value, as it is or was stored.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The revision that created the key.
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    /// The revision that wrote the key last.
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
    #[prost(bool, tag = "8")]
    keys_only: bool,
    #[prost(bool, tag = "9")]
    count_only: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
    #[prost(int64, tag = "4")]
    count: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
    #[prost(bool, tag = "5")]
    ignore_value: bool,
    #[prost(bool, tag = "6")]
    ignore_lease: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct DeleteRangeResponse {
    #[prost(int64, tag = "2")]
    deleted: i64,
}

/// One condition of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    mod_revision: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    value: Option<Vec<u8>>,
    #[prost(bytes = "vec", tag = "64")]
    range_end: Vec<u8>,
}

impl Compare {
    const LESS: i32 = 2;
    const CREATE: i32 = 1;
    const MOD: i32 = 2;
    const VALUE: i32 = 3;

    /// Holds if the key does not exist.
    pub(crate) fn absent(key: Vec<u8>) -> Self {
        Self::created(key, 0)
    }

    /// Holds if no key exists from `start` to before `end`.
    pub(crate) fn empty(start: Vec<u8>, end: Vec<u8>) -> Self {
        Self { range_end: end, ..Self::absent(start) }
    }

    /// Holds if this revision created the key.
    pub(crate) fn created(key: Vec<u8>, revision: i64) -> Self {
        let create_revision = Some(revision);
        Self { target: Self::CREATE, key, create_revision, ..Self::default() }
    }

    /// Holds if the key has this value.
    pub(crate) fn has_value(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { target: Self::VALUE, key, value: Some(value), ..Self::default() }
    }

    /// Holds if no key from `key` to before `range_end` was written after this revision.
    pub(crate) fn unchanged(key: Vec<u8>, range_end: Vec<u8>, revision: i64) -> Self {
        let (result, target, mod_revision) = (Self::LESS, Self::MOD, Some(revision + 1));
        Self { result, target, key, mod_revision, range_end, ..Self::default() }
    }
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    delete_range: Option<DeleteRangeRequest>,
}

impl RequestOp {
    fn of_range(request: RangeRequest) -> Self {
        Self { range: Some(request), ..Self::default() }
    }

    fn of_put(request: PutRequest) -> Self {
        Self { put: Some(request), ..Self::default() }
    }

    /// Reads one key.
    pub(crate) fn get(key: Vec<u8>) -> Self {
        Self::range(key, Vec::new())
    }

    /// Reads all keys from `key` to before `range_end`.
    pub(crate) fn range(key: Vec<u8>, range_end: Vec<u8>) -> Self {
        Self::of_range(RangeRequest { key, range_end, ..RangeRequest::default() })
    }

    /// Reads the first `limit` keys from `key` to before `range_end`, without their values.
    pub(crate) fn page(key: Vec<u8>, range_end: Vec<u8>, limit: i64) -> Self {
        let keys_only = true;
        Self::of_range(RangeRequest { key, range_end, limit, keys_only, count_only: false })
    }

    /// Counts the keys from `key` to before `range_end`.
    pub(crate) fn count(key: Vec<u8>, range_end: Vec<u8>) -> Self {
        let count_only = true;
        Self::of_range(RangeRequest { key, range_end, count_only, ..RangeRequest::default() })
    }

    /// Writes a key.
    pub(crate) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> Self {
        Self::of_put(PutRequest { key, value, lease, ..PutRequest::default() })
    }

    /// Writes a key's value and lease again, so that it has a new revision.
    pub(crate) fn touch(key: Vec<u8>) -> Self {
        let (ignore_value, ignore_lease) = (true, true);
        Self::of_put(PutRequest { key, ignore_value, ignore_lease, ..PutRequest::default() })
    }

    /// Writes a key's value again, with another lease.
    pub(crate) fn attach_lease(key: Vec<u8>, lease: i64) -> Self {
        Self::of_put(PutRequest { key, lease, ignore_value: true, ..PutRequest::default() })
    }

    /// Deletes a key.
    pub(crate) fn delete(key: Vec<u8>) -> Self {
        Self { delete_range: Some(DeleteRangeRequest { key }), ..Self::default() }
    }
}

/// A transaction: if all of `compare` hold, `success` is carried out, and otherwise `failure`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

impl TxnRequest {
    /// Returns a transaction without conditions.
    pub(crate) fn unconditional(success: Vec<RequestOp>) -> Self {
        Self { success, ..Self::default() }
    }
}

/// The result of one operation of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    range: Option<RangeResponse>,
    #[prost(message, optional, tag = "2")]
    put: Option<()>,
    #[prost(message, optional, tag = "3")]
    delete_range: Option<DeleteRangeResponse>,
}

impl ResponseOp {
    /// Returns the keys that a read found.
    pub(crate) fn keys(&self) -> &[KeyValue] {
        self.range.as_ref().map_or(&[], |found| &found.kvs)
    }

    /// Returns how many keys were counted or deleted.
    pub(crate) fn count(&self) -> i64 {
        let counted = self.range.as_ref().map(|found| found.count);
        counted.or(self.delete_range.map(|done| done.deleted)).unwrap_or(0)
    }

    fn is_known(&self) -> bool {
        self.range.is_some() || self.put.is_some() || self.delete_range.is_some()
    }
}

/// The answer to a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, required, tag = "1")]
    pub(crate) header: ResponseHeader,
    /// All conditions held.
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

impl TxnResponse {
    /// Fails if an operation has a result of a kind that is not known here.
    pub(crate) fn checked(self) -> Result<Self, EtcdFault> {
        match self.responses.iter().all(ResponseOp::is_known) {
            true => Ok(self),
            false => Err(EtcdFault::unexpected()),
        }
    }

    /// Returns the keys that the first operation found.
    pub(crate) fn first_keys(&self) -> &[KeyValue] {
        self.responses.first().map_or(&[], ResponseOp::keys)
    }

    /// Returns the keys that the last operation found.
    pub(crate) fn last_keys(&self) -> &[KeyValue] {
        self.responses.last().map_or(&[], ResponseOp::keys)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseGrantRequest {
    /// The time to live in seconds.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// A request to keep a lease alive, to revoke it, or to read its time to live.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The answer to a keep-alive, or to a question for a time to live.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// The rest of the lease in seconds; not positive if the lease does not exist.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create_request: Option<WatchCreateRequest>,
    #[prost(message, optional, tag = "2")]
    cancel_request: Option<WatchCancelRequest>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// The first revision to watch; 0 for the present one.
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    /// The kinds of events to leave out.
    #[prost(int32, repeated, packed = "false", tag = "5")]
    pub(crate) filters: Vec<i32>,
    #[prost(int64, tag = "7")]
    pub(crate) watch_id: i64,
}

impl WatchCreateRequest {
    /// Leaves out events of keys that are written.
    pub(crate) const NO_PUT: i32 = 0;
    /// Leaves out events of keys that are deleted.
    pub(crate) const NO_DELETE: i32 = 1;
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct WatchCancelRequest {
    #[prost(int64, tag = "1")]
    watch_id: i64,
}

impl WatchRequest {
    pub(crate) fn create(request: WatchCreateRequest) -> Self {
        Self { create_request: Some(request), cancel_request: None }
    }

    pub(crate) fn cancel(watch_id: i64) -> Self {
        let cancel_request = Some(WatchCancelRequest { watch_id });
        Self { create_request: None, cancel_request }
    }
}

/// A message about one watch.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, required, tag = "1")]
    pub(crate) header: ResponseHeader,
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    /// The watch begins after the header's revision.
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    /// The watch has ended.
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// The watch ended because the revisions before this one were compacted; 0 if it ended for another reason.
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    /// The server's reason. Kept as bytes, because invalid UTF-8 in it must not fail the watch.
    #[prost(bytes = "vec", tag = "6")]
    cancel_reason: Vec<u8>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<WatchEvent>,
}

/// One change that a watch saw.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchEvent {
    #[prost(int32, tag = "1")]
    r#type: i32,
    #[prost(message, required, tag = "2")]
    pub(crate) kv: KeyValue,
}

impl WatchEvent {
    /// Returns whether the key was deleted, and not written.
    pub(crate) fn is_delete(&self) -> bool {
        self.r#type != 0
    }
}

impl WatchResponse {
    /// Returns whether the watch ended for this reason.
    pub(crate) fn has_reason(&self, reason: &str) -> bool {
        String::from_utf8_lossy(&self.cancel_reason).contains(reason)
    }

    /// Returns whether the token that the stream was opened with has expired.
    pub(crate) fn is_signed_out(&self) -> bool {
        ["invalid auth token", "auth store is old", "user name is empty"]
            .iter()
            .any(|reason| self.has_reason(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(message: &impl Message) -> String {
        message.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn requests_have_the_bytes_that_etcd_expects() {
        let b = |text: &str| text.as_bytes().to_vec();
        let txn = TxnRequest {
            compare: vec![
                Compare::absent(b("k")),
                Compare::empty(b("a"), b("b")),
                Compare::created(b("k"), 77),
                Compare::has_value(b("f"), b("v")),
                Compare::unchanged(b("a"), b("b"), 300),
            ],
            success: vec![
                RequestOp::range(b("a"), b("b")),
                RequestOp::page(b("a"), b("b"), 500),
                RequestOp::count(b("a"), b("b")),
                RequestOp::put(b("k"), b("v"), 9),
                RequestOp::touch(b("k")),
                RequestOp::attach_lease(b("k"), 5),
                RequestOp::delete(b("k")),
            ],
            failure: vec![RequestOp::get(b("g"))],
        };
        let compare = "0a0710011a016b2800 0a0b10011a01612800820401620a0710011a016b284d \
            0a0810031a01663a0176 0a0e080210021a016130ad02820401 62";
        let success = "12080a060a0161120162 120d0a0b0a016112016218f403400112 0a0a080a0161120162 \
            4801 120a12080a016b120176180912 0912070a016b28013001 120912070a016b1805280112 051a030a016b";
        let bytes = [compare, success, "1a050a030a0167"].concat().replace(' ', "");
        assert_eq!(hex(&txn), bytes);
        assert_eq!(hex(&LeaseGrantRequest { ttl: 30, id: 77 }), "081e104d");
        assert_eq!(hex(&LeaseRequest { id: 77 }), "084d");
        let watch = WatchCreateRequest {
            key: b("k"),
            start_revision: 7,
            filters: vec![WatchCreateRequest::NO_PUT],
            watch_id: 3,
            ..WatchCreateRequest::default()
        };
        assert_eq!(hex(&WatchRequest::create(watch)), "0a090a016b180728003803");
        assert_eq!(hex(&WatchRequest::cancel(3)), "12020803");
    }

    #[test]
    fn unknown_fields_are_skipped() {
        // Field 9 is a number, field 15 a text, field 2 is known: true.
        let answer: TxnResponse = decode(b"\x48\x07\x7a\x02hi\x10\x01").expect("an answer");
        assert_eq!(answer, TxnResponse { succeeded: true, ..TxnResponse::default() });
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let malformed =
            [&[8][..], &[0xff; 11], &[0x12, 5, 1], &[0x0b], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]];
        for bytes in malformed {
            assert_eq!(decode::<TxnResponse>(bytes), Err(EtcdFault::unexpected()), "{bytes:?}");
            assert!(decode::<WatchResponse>(bytes).is_err(), "{bytes:?}");
        }
        // The first field is a message, and not a number.
        assert!(decode::<TxnResponse>(&[8, 1]).is_err());
        // An operation with a result that no request of this crate asks for.
        let nested: TxnResponse = decode(&[0x1a, 2, 0x22, 0]).expect("a message");
        assert_eq!(nested.checked(), Err(EtcdFault::unexpected()));
    }

    #[test]
    fn a_reason_need_not_be_text() {
        let ended: WatchResponse =
            decode(b"\x32\x17\xffinvalid auth token bla").expect("a message");
        assert!(ended.is_signed_out() && !ended.has_reason("permission denied"));
    }
}
