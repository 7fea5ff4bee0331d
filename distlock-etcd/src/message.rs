//! The messages of etcd that are used here.

use crate::wire::{Malformed, Value, Writer, read};

/// What every answer begins with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) cluster: u64,
    /// How many writes there were, by this answer.
    pub(crate) revision: i64,
    /// How many elections.
    pub(crate) term: u64,
}

impl Header {
    fn read(text: &[u8]) -> Result<Self, Malformed> {
        let mut header = Self::default();
        read(text, |field, value| {
            match field {
                1 => header.cluster = value.unsigned(),
                3 => header.revision = value.number(),
                4 => header.term = value.unsigned(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(header)
    }
}

/// A key that is there, or that was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub(crate) key: Vec<u8>,
    /// The revision in which it came to be.
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) value: Vec<u8>,
    pub(crate) lease: i64,
}

impl KeyValue {
    fn read(text: &[u8]) -> Result<Self, Malformed> {
        let mut kv = Self::default();
        read(text, |field, value| {
            match field {
                1 => kv.key = value.bytes().to_vec(),
                2 => kv.created = value.number(),
                3 => kv.modified = value.number(),
                5 => kv.value = value.bytes().to_vec(),
                6 => kv.lease = value.number(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(kv)
    }
}

/// What has to hold for a transaction to be carried out.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    /// There is no such key.
    Absent(Vec<u8>),
    /// There is no key between the two.
    Empty(Vec<u8>, Vec<u8>),
    /// The key came to be in this revision.
    Created(Vec<u8>, i64),
    /// The key has this value.
    Value(Vec<u8>, Vec<u8>),
    /// No key between the two was written after this revision.
    Unchanged(Vec<u8>, Vec<u8>, i64),
}

impl Test {
    fn write(&self, w: &mut Writer) {
        const LESS: i64 = 2;
        const CREATE: i64 = 1;
        const MODIFIED: i64 = 2;
        const VALUE: i64 = 3;
        match self {
            Self::Absent(key) => {
                w.number(2, CREATE);
                w.bytes(3, key);
                w.exact(5, 0);
            }
            Self::Empty(key, end) => {
                w.number(2, CREATE);
                w.bytes(3, key);
                w.exact(5, 0);
                w.bytes(64, end);
            }
            Self::Created(key, revision) => {
                w.number(2, CREATE);
                w.bytes(3, key);
                w.exact(5, *revision);
            }
            Self::Value(key, value) => {
                w.number(2, VALUE);
                w.bytes(3, key);
                w.bytes(7, value);
            }
            Self::Unchanged(key, end, revision) => {
                w.number(1, LESS);
                w.number(2, MODIFIED);
                w.bytes(3, key);
                w.exact(6, revision + 1);
                w.bytes(64, end);
            }
        }
    }
}

/// One operation of a transaction.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Get(Vec<u8>),
    /// All keys between the two.
    Range(Vec<u8>, Vec<u8>),
    /// The first so many keys between the two, without their values.
    Page(Vec<u8>, Vec<u8>, i64),
    /// How many there are between the two.
    Count(Vec<u8>, Vec<u8>),
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        lease: i64,
    },
    /// Writes the value that it has, with the lease that it has.
    Touch(Vec<u8>),
    /// Writes the value that it has, with this lease.
    Lend(Vec<u8>, i64),
    Delete(Vec<u8>),
}

impl Op {
    fn write(&self, w: &mut Writer) {
        match self {
            Self::Get(key) => w.message(1, |w| w.bytes(1, key)),
            Self::Range(key, end) => w.message(1, |w| {
                w.bytes(1, key);
                w.bytes(2, end);
            }),
            Self::Page(key, end, most) => w.message(1, |w| {
                w.bytes(1, key);
                w.bytes(2, end);
                w.number(3, *most);
                w.flag(8, true);
            }),
            Self::Count(key, end) => w.message(1, |w| {
                w.bytes(1, key);
                w.bytes(2, end);
                w.flag(9, true);
            }),
            Self::Put { key, value, lease } => w.message(2, |w| {
                w.bytes(1, key);
                w.bytes(2, value);
                w.number(3, *lease);
            }),
            Self::Touch(key) => w.message(2, |w| {
                w.bytes(1, key);
                w.flag(5, true);
                w.flag(6, true);
            }),
            Self::Lend(key, lease) => w.message(2, |w| {
                w.bytes(1, key);
                w.number(3, *lease);
                w.flag(5, true);
            }),
            Self::Delete(key) => w.message(3, |w| w.bytes(1, key)),
        }
    }
}

/// All or nothing, and nothing in between.
#[derive(Debug, Clone, Default)]
pub(crate) struct Txn {
    pub(crate) tests: Vec<Test>,
    pub(crate) then: Vec<Op>,
    pub(crate) otherwise: Vec<Op>,
}

impl Txn {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        self.tests.iter().for_each(|test| w.message(1, |w| test.write(w)));
        self.then.iter().for_each(|op| w.message(2, |w| op.write(w)));
        self.otherwise.iter().for_each(|op| w.message(3, |w| op.write(w)));
        w.finish()
    }
}

/// What an operation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Done {
    Found { keys: Vec<KeyValue>, count: i64 },
    Put,
    Deleted(i64),
}

impl Done {
    pub(crate) fn keys(&self) -> &[KeyValue] {
        match self {
            Self::Found { keys, .. } => keys,
            _ => &[],
        }
    }

    pub(crate) fn count(&self) -> i64 {
        match self {
            Self::Found { count, .. } | Self::Deleted(count) => *count,
            Self::Put => 0,
        }
    }

    fn read(text: &[u8]) -> Result<Self, Malformed> {
        let mut done = Err(Malformed);
        read(text, |field, value| {
            done = Ok(match field {
                1 => Self::found(value.bytes())?,
                2 => Self::Put,
                3 => Self::Deleted(field_of(value.bytes(), 2)?),
                _ => return Err(Malformed),
            });
            Ok(())
        })?;
        done
    }

    fn found(text: &[u8]) -> Result<Self, Malformed> {
        let (mut keys, mut count) = (Vec::new(), 0);
        read(text, |field, value| {
            match field {
                2 => keys.push(KeyValue::read(value.bytes())?),
                4 => count = value.number(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(Self::Found { keys, count })
    }
}

/// The answer to a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TxnDone {
    pub(crate) header: Header,
    /// All tests held.
    pub(crate) held: bool,
    pub(crate) done: Vec<Done>,
}

impl TxnDone {
    pub(crate) fn decode(text: &[u8]) -> Result<Self, Malformed> {
        let mut answer = Self::default();
        read(text, |field, value| {
            match field {
                1 => answer.header = Header::read(value.bytes())?,
                2 => answer.held = value.flag(),
                3 => answer.done.push(Done::read(value.bytes())?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(answer)
    }

    /// What the last operation found.
    pub(crate) fn last_keys(&self) -> &[KeyValue] {
        self.done.last().map_or(&[], Done::keys)
    }
}

fn field_of(text: &[u8], wanted: u32) -> Result<i64, Malformed> {
    let mut number = 0;
    read(text, |field, value: Value<'_>| {
        if field == wanted {
            number = value.number();
        }
        Ok(())
    })?;
    Ok(number)
}

pub(crate) fn lease_grant(id: i64, seconds: i64) -> Vec<u8> {
    let mut w = Writer::default();
    w.number(1, seconds);
    w.number(2, id);
    w.finish()
}

/// Names a lease: to be kept alive, revoked, or looked at.
pub(crate) fn lease(id: i64) -> Vec<u8> {
    let mut w = Writer::default();
    w.number(1, id);
    w.finish()
}

/// The lease and its seconds, in the answer to [`lease_grant`] and to two of the others.
pub(crate) fn lease_seconds(text: &[u8]) -> Result<(i64, i64), Malformed> {
    Ok((field_of(text, 2)?, field_of(text, 3)?))
}

pub(crate) fn authenticate(name: &str, password: &str) -> Vec<u8> {
    let mut w = Writer::default();
    w.bytes(1, name.as_bytes());
    w.bytes(2, password.as_bytes());
    w.finish()
}

pub(crate) fn auth_token(text: &[u8]) -> Result<String, Malformed> {
    let mut token = String::new();
    read(text, |field, value| {
        if field == 2 {
            token = String::from_utf8(value.bytes().to_vec()).map_err(|_| Malformed)?;
        }
        Ok(())
    })?;
    Ok(token)
}

/// What a watch is to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Without {
    Puts = 0,
    Deletes = 1,
}

pub(crate) fn watch(id: i64, key: &[u8], end: &[u8], from: i64, without: Without) -> Vec<u8> {
    let mut w = Writer::default();
    w.message(1, |w| {
        w.bytes(1, key);
        w.bytes(2, end);
        w.number(3, from);
        w.exact(5, without as i64);
        w.number(7, id);
    });
    w.finish()
}

pub(crate) fn unwatch(id: i64) -> Vec<u8> {
    let mut w = Writer::default();
    w.message(2, |w| w.number(1, id));
    w.finish()
}

/// What a watch has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: i64,
    pub(crate) header: Header,
    /// It begins behind the header's revision.
    pub(crate) begins: bool,
    /// It sees nothing any more.
    pub(crate) ended: bool,
    /// The watch ended because revisions before this one were compacted; 0 if it ended for another reason.
    pub(crate) compacted: i64,
    /// The server's reason.
    pub(crate) reason: String,
    /// What was deleted, and what was put.
    pub(crate) events: Vec<(bool, KeyValue)>,
}

impl Seen {
    /// The token that the stream was opened with has expired.
    pub(crate) fn is_signed_out(&self) -> bool {
        ["invalid auth token", "auth store is old", "user name is empty"]
            .iter()
            .any(|why| self.reason.contains(why))
    }

    pub(crate) fn decode(text: &[u8]) -> Result<Self, Malformed> {
        let mut seen = Self::default();
        read(text, |field, value| {
            match field {
                1 => seen.header = Header::read(value.bytes())?,
                2 => seen.id = value.number(),
                3 => seen.begins = value.flag(),
                4 => seen.ended = value.flag(),
                5 => seen.compacted = value.number(),
                6 => seen.reason = String::from_utf8_lossy(value.bytes()).into_owned(),
                11 => seen.events.push(event(value.bytes())?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(seen)
    }
}

fn event(text: &[u8]) -> Result<(bool, KeyValue), Malformed> {
    let (mut deleted, mut kv) = (false, KeyValue::default());
    read(text, |field, value| {
        match field {
            1 => deleted = value.flag(),
            2 => kv = KeyValue::read(value.bytes())?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((deleted, kv))
}
