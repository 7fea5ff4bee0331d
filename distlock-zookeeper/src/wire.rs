//! The encoding of ZooKeeper's protocol: operation codes, errors, and records of numbers and texts.

use std::fmt;

use distlock_core::store::{BackendKind, Fault};

/// An operation of a request. The numbers are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum OpCode {
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    Multi = 14,
    Create = 15,
    CreateContainer = 19,
    Auth = 100,
    CloseSession = -11,
}

/// The request number of a watch event, which answers no request.
pub(crate) const NOTIFICATION: i32 = -1;
/// The request number of a ping and of its answer.
pub(crate) const PING: i32 = -2;
/// The request number of an authentication and of its answer.
pub(crate) const AUTH: i32 = -4;

/// The lifetime of a node, and whether its name gets a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum CreateMode {
    Persistent = 0,
    /// The node is removed with its session.
    Ephemeral = 1,
    /// The node is removed with its session, and a sequence number is appended to its name.
    EphemeralSequential = 3,
    /// The node is removed some time after its last child.
    Container = 4,
}

impl CreateMode {
    /// Returns the operation that creates such a node.
    pub(crate) fn op(self) -> OpCode {
        if self == Self::Container { OpCode::CreateContainer } else { OpCode::Create }
    }
}

/// The access rights of a new node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acl {
    /// Every client has all rights.
    Anyone,
    /// Only the user that creates the node has rights.
    Creator,
}

/// The metadata of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NodeStat {
    /// The transaction that created the node.
    pub(crate) czxid: i64,
    /// The last transaction that changed the node's data.
    pub(crate) mzxid: i64,
    /// The creation time in ms since 1970, by a server's clock.
    pub(crate) ctime: i64,
    /// The number of changes of the node's data.
    pub(crate) version: i32,
    /// The session that the node is removed with; 0 for a node that is not ephemeral.
    pub(crate) ephemeral_owner: i64,
}

/// A server's error code, or the reason why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZooKeeperError {
    NoNode,
    NodeExists,
    NotEmpty,
    BadVersion,
    NoAuth,
    AuthFailed,
    QuotaExceeded,
    ConnectionLoss,
    SessionExpired,
    SessionMoved,
    ReadOnly,
    /// The answer violates the protocol.
    Malformed,
    /// The server answered with a TLS alert.
    SpeaksTls,
    /// The server closed the connection without an answer.
    Silent,
    Code(i32),
}

impl ZooKeeperError {
    /// Returns whether every other server would give the same answer.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::SessionExpired | Self::AuthFailed)
    }

    /// Returns the error of a code of the protocol.
    pub(crate) fn of(code: i32) -> Self {
        match code {
            -4 => Self::ConnectionLoss,
            -101 => Self::NoNode,
            -102 => Self::NoAuth,
            -103 => Self::BadVersion,
            -110 => Self::NodeExists,
            -111 => Self::NotEmpty,
            -112 => Self::SessionExpired,
            -115 => Self::AuthFailed,
            -118 => Self::SessionMoved,
            -119 => Self::ReadOnly,
            -125 => Self::QuotaExceeded,
            code => Self::Code(code),
        }
    }
}

impl fmt::Display for ZooKeeperError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNode => "the node does not exist",
            Self::NodeExists => "the node exists",
            Self::NotEmpty => "the node has children",
            Self::BadVersion => "the node was changed",
            Self::NoAuth => "the nodes belong to another user (ACL)",
            Self::AuthFailed => "authentication failed",
            Self::SpeaksTls => {
                "this port speaks TLS: distlock reaches ZooKeeper in plain text, so name a port without TLS, or a TLS \
                 tunnel to it"
            }
            Self::Silent => {
                "it closed the connection without an answer, as a port with TLS does, and a server that is not \
                 serving: distlock reaches ZooKeeper in plain text, so name a port without TLS, or a TLS tunnel to it"
            }
            Self::QuotaExceeded => "the quota of the path is exceeded",
            Self::ConnectionLoss => "the connection was lost",
            Self::SessionExpired => "the session has expired",
            Self::SessionMoved => "the session has moved to another server",
            Self::ReadOnly => "the server has no quorum behind it",
            Self::Malformed => "the server's answer is not one of ZooKeeper's",
            Self::Code(code) => return write!(f, "the server answers with error {code}"),
        })
    }
}

impl From<ZooKeeperError> for Fault {
    fn from(error: ZooKeeperError) -> Self {
        let words = error.to_string();
        match error {
            ZooKeeperError::NoAuth | ZooKeeperError::AuthFailed | ZooKeeperError::QuotaExceeded => {
                Self::lasting(BackendKind::Refused, words)
            }
            ZooKeeperError::ConnectionLoss
            | ZooKeeperError::SessionExpired
            | ZooKeeperError::SessionMoved
            | ZooKeeperError::SpeaksTls
            | ZooKeeperError::Silent
            | ZooKeeperError::ReadOnly => Self::passing(BackendKind::Unreachable, words),
            _ => Self::passing(BackendKind::Other, words),
        }
    }
}

/// A record under construction.
#[derive(Debug, Default)]
pub(crate) struct RecordWriter(pub(crate) Vec<u8>);

impl RecordWriter {
    pub(crate) fn int(&mut self, number: i32) -> &mut Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(crate) fn long(&mut self, number: i64) -> &mut Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(crate) fn flag(&mut self, flag: bool) -> &mut Self {
        self.0.push(u8::from(flag));
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// Appends a request to create a node.
    pub(crate) fn create(
        &mut self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        acl: Acl,
    ) -> &mut Self {
        const ALL: i32 = 31;
        let (scheme, id) = match acl {
            Acl::Anyone => ("world", "anyone"),
            Acl::Creator => ("auth", ""),
        };
        self.text(path).bytes(data).int(1).int(ALL).text(scheme).text(id).int(mode as i32)
    }
}

/// The part of a record that is still to be read.
#[derive(Debug)]
pub(crate) struct RecordReader<'a>(pub(crate) &'a [u8]);

impl<'a> RecordReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ZooKeeperError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ZooKeeperError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn int(&mut self) -> Result<i32, ZooKeeperError> {
        let bytes = self.take(4)?.try_into().map_err(|_| ZooKeeperError::Malformed)?;
        Ok(i32::from_be_bytes(bytes))
    }

    pub(crate) fn long(&mut self) -> Result<i64, ZooKeeperError> {
        let bytes = self.take(8)?.try_into().map_err(|_| ZooKeeperError::Malformed)?;
        Ok(i64::from_be_bytes(bytes))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, ZooKeeperError> {
        Ok(self.take(1)?[0] != 0)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ZooKeeperError> {
        // The protocol writes an absent value as the length -1.
        let count = self.int()?.max(0);
        self.take(usize::try_from(count).map_err(|_| ZooKeeperError::Malformed)?)
    }

    pub(crate) fn text(&mut self) -> Result<String, ZooKeeperError> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| ZooKeeperError::Malformed)
    }

    pub(crate) fn texts(&mut self) -> Result<Vec<String>, ZooKeeperError> {
        (0..self.int()?).map(|_| self.text()).collect()
    }

    pub(crate) fn stat(&mut self) -> Result<NodeStat, ZooKeeperError> {
        let (czxid, mzxid, ctime, _mtime) =
            (self.long()?, self.long()?, self.long()?, self.long()?);
        let (version, _cversion, _aversion) = (self.int()?, self.int()?, self.int()?);
        let ephemeral_owner = self.long()?;
        let (_length, _children, _pzxid) = (self.int()?, self.int()?, self.long()?);
        Ok(NodeStat { czxid, mzxid, ctime, version, ephemeral_owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_records_are_read_back() {
        let mut writer = RecordWriter::default();
        writer.int(-7).long(1 << 40).flag(true).bytes(&[1, 2]).text("é").int(2).text("a").text("");
        let mut reader = RecordReader(&writer.0);
        assert_eq!((reader.int(), reader.long(), reader.flag()), (Ok(-7), Ok(1 << 40), Ok(true)));
        assert_eq!((reader.bytes(), reader.text()), (Ok(&[1, 2][..]), Ok("é".to_owned())));
        assert_eq!(reader.texts(), Ok(vec!["a".to_owned(), String::new()]));
        assert_eq!(reader.int(), Err(ZooKeeperError::Malformed));
    }

    #[test]
    fn truncated_and_oversized_records_are_refused() {
        for bytes in [&[0, 0, 0, 9, 1][..], &[127, 255, 255, 255], &[0, 0]] {
            assert_eq!(RecordReader(bytes).bytes(), Err(ZooKeeperError::Malformed));
            assert_eq!(RecordReader(bytes).texts(), Err(ZooKeeperError::Malformed));
        }
        assert_eq!(RecordReader(&[255; 4]).bytes(), Ok(&[][..]));
        assert_eq!(RecordReader(&[0; 30]).stat(), Err(ZooKeeperError::Malformed));
    }
}
