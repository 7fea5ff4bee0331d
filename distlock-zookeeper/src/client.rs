//! The requests that can be made in a session.
//!
//! Each method sends its request when it is called, not when its future is polled. Requests therefore reach the
//! server in the order of the calls, also if nobody awaits the answers.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::connection::{
    ConnectionState, SessionConfig, SessionConnection, SessionRequest, WatchRegistration,
};
use crate::wire::{Acl, CreateMode, NodeStat, OpCode, RecordReader, RecordWriter, ZooKeeperError};

/// A handle of a session. The session is closed when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct SessionClient {
    requests: mpsc::UnboundedSender<SessionRequest>,
    states: watch::Receiver<ConnectionState>,
    acl: Acl,
    id: i64,
    timeout: Duration,
}

/// A watch on a node. It fires once: when the node changes, or when a change may have been missed.
pub(crate) struct NodeWatch(oneshot::Receiver<()>);

impl NodeWatch {
    /// Resolves when the watch fires.
    pub(crate) async fn changed(self) {
        let _ = self.0.await;
    }
}

/// Changes that the servers make all together or not at all.
pub(crate) struct MultiOp {
    body: RecordWriter,
    acl: Acl,
}

/// The reason why a [`MultiOp`] failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MultiError {
    /// The servers refused one of the changes, and made none.
    Change(ZooKeeperError),
    /// There is no answer, so the outcome is unknown.
    Unanswered(ZooKeeperError),
}

impl MultiError {
    /// Returns the error, whichever of the two it is.
    pub(crate) fn error(self) -> ZooKeeperError {
        match self {
            Self::Change(error) | Self::Unanswered(error) => error,
        }
    }
}

impl SessionClient {
    /// Opens a session, which a task of this runtime keeps connected.
    pub(crate) async fn connect(config: SessionConfig) -> Result<Self, ZooKeeperError> {
        let acl = if config.digest.is_some() { Acl::Creator } else { Acl::Anyone };
        let mut session = SessionConnection::new(config);
        let stream = session.connect().await?;
        let (id, timeout) = (session.id, session.timeout);
        let (requests, received) = mpsc::unbounded_channel();
        let (sender, states) = watch::channel(ConnectionState::Connected);
        tokio::spawn(session.run(stream, received, sender));
        Ok(Self { requests, states, acl, id, timeout })
    }

    /// Returns the number of the session, which its ephemeral nodes name as their owner.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Returns how long the session outlives its client.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the states of the session's connection.
    pub(crate) fn states(&self) -> watch::Receiver<ConnectionState> {
        self.states.clone()
    }

    /// Sends a request and returns its answer.
    fn send(
        &self,
        op: OpCode,
        body: RecordWriter,
        watch: Option<WatchRegistration>,
    ) -> impl Future<Output = Result<Vec<u8>, ZooKeeperError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(SessionRequest { op, body: body.0, answer, watch });
        let over = match (sent, *self.states.borrow()) {
            (Ok(()), _) => None,
            (Err(_), ConnectionState::Over(error)) => Some(error),
            (Err(_), _) => Some(ZooKeeperError::ConnectionLoss),
        };
        async move {
            match over {
                Some(error) => Err(error),
                None => answered.await.unwrap_or(Err(ZooKeeperError::ConnectionLoss)),
            }
        }
    }

    /// Creates a node and returns its path, with the sequence number if the mode asks for one.
    pub(crate) fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
    ) -> impl Future<Output = Result<String, ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.create(path, data, mode, self.acl);
        let answer = self.send(mode.op(), body, None);
        async { RecordReader(&answer.await?).text() }
    }

    /// Deletes a node and returns whether it existed.
    pub(crate) fn delete(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<bool, ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).int(-1);
        let answer = self.send(OpCode::Delete, body, None);
        async {
            match answer.await {
                Ok(_) => Ok(true),
                Err(ZooKeeperError::NoNode) => Ok(false),
                Err(error) => Err(error),
            }
        }
    }

    /// Returns the metadata of a node, or `None` if the node does not exist.
    pub(crate) fn exists(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<NodeStat>, ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).flag(false);
        let answer = self.send(OpCode::Exists, body, None);
        async {
            match answer.await {
                Ok(answer) => RecordReader(&answer).stat().map(Some),
                Err(ZooKeeperError::NoNode) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// Returns the data and the metadata of a node.
    pub(crate) fn data(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(Vec<u8>, NodeStat), ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).flag(false);
        let answer = self.send(OpCode::GetData, body, None);
        async {
            let answer = answer.await?;
            let mut answer = RecordReader(&answer);
            Ok((answer.bytes()?.to_vec(), answer.stat()?))
        }
    }

    /// Watches a node for a change of its data and for its deletion. Fails if the node does not exist.
    pub(crate) fn watch(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<NodeWatch, ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).flag(true);
        let (fires, watcher) = oneshot::channel();
        let watched = WatchRegistration { path: path.to_owned(), children: false, fires };
        let answer = self.send(OpCode::GetData, body, Some(watched));
        async { answer.await.map(|_| NodeWatch(watcher)) }
    }

    /// Writes the data of a node and returns its new metadata.
    pub(crate) fn set_data(
        &self,
        path: &str,
        data: &[u8],
    ) -> impl Future<Output = Result<NodeStat, ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).bytes(data).int(-1);
        let answer = self.send(OpCode::SetData, body, None);
        async { RecordReader(&answer.await?).stat() }
    }

    /// Returns the names of a node's children.
    pub(crate) fn children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Vec<String>, ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).flag(false);
        let answer = self.send(OpCode::GetChildren, body, None);
        async { RecordReader(&answer.await?).texts() }
    }

    /// Returns the names of a node's children, and a watch on the list.
    pub(crate) fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(Vec<String>, NodeWatch), ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).flag(true);
        let (fires, watcher) = oneshot::channel();
        let watched = WatchRegistration { path: path.to_owned(), children: true, fires };
        let answer = self.send(OpCode::GetChildren, body, Some(watched));
        async { Ok((RecordReader(&answer.await?).texts()?, NodeWatch(watcher))) }
    }

    /// Brings the server up to date with the leader, so that later reads see all changes made before this call.
    pub(crate) fn sync(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(), ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path);
        let answer = self.send(OpCode::Sync, body, None);
        async { answer.await.map(|_| ()) }
    }

    /// Creates a node and its ancestors.
    pub(crate) async fn make_path(&self, path: &str) -> Result<(), ZooKeeperError> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        for end in ends {
            match self.create(&path[..end], &[], CreateMode::Persistent).await {
                // A client may lack the right to create an ancestor that exists already, and may still have it
                // below that ancestor.
                Ok(_) | Err(ZooKeeperError::NodeExists) => {}
                Err(ZooKeeperError::NoAuth) if end < path.len() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns an empty list of changes.
    pub(crate) fn multi(&self) -> MultiOp {
        MultiOp { body: RecordWriter::default(), acl: self.acl }
    }

    /// Makes the changes, and returns the new metadata of each node whose version was incremented.
    pub(crate) fn commit(
        &self,
        mut multi: MultiOp,
    ) -> impl Future<Output = Result<Vec<NodeStat>, MultiError>> + Send + use<> {
        multi.body.int(-1).flag(true).int(-1);
        let answer = self.send(OpCode::Multi, multi.body, None);
        async {
            let answer = answer.await.map_err(MultiError::Unanswered)?;
            results(&mut RecordReader(&answer))
        }
    }
}

impl MultiOp {
    /// Appends the header of one change.
    fn begin(&mut self, op: OpCode) -> &mut RecordWriter {
        self.body.int(op as i32).flag(false).int(-1)
    }

    /// Appends the creation of a node.
    pub(crate) fn create(mut self, path: &str, data: &[u8], mode: CreateMode) -> Self {
        let acl = self.acl;
        self.begin(mode.op()).create(path, data, mode, acl);
        self
    }

    /// Appends the deletion of a node.
    pub(crate) fn delete(mut self, path: &str) -> Self {
        self.begin(OpCode::Delete).text(path).int(-1);
        self
    }

    /// Appends a write that increments a node's version. With `version`, the node must still have that version.
    pub(crate) fn increment_version(mut self, path: &str, version: Option<i32>) -> Self {
        self.begin(OpCode::SetData).text(path).bytes(&[]).int(version.unwrap_or(-1));
        self
    }
}

/// Reads the answer to a [`MultiOp`].
fn results(answer: &mut RecordReader<'_>) -> Result<Vec<NodeStat>, MultiError> {
    const ERROR: i32 = -1;
    /// The number that servers before 3.9 give most nodes that were created in a `MultiOp`. No metadata follows.
    const CREATE: i32 = 1;
    let mut stats = Vec::new();
    let malformed = MultiError::Unanswered;
    loop {
        let op = answer.int().map_err(malformed)?;
        let (is_last, _) = (answer.flag().map_err(malformed)?, answer.int().map_err(malformed)?);
        if is_last {
            return Ok(stats);
        }
        if op == ERROR {
            // The changes before the failed one have the code 0, those after it a code without meaning.
            match answer.int().map_err(malformed)? {
                0 => {}
                code => return Err(MultiError::Change(ZooKeeperError::of(code))),
            }
        } else if op == CREATE {
            answer.text().map_err(malformed)?;
        } else if op == OpCode::Create as i32 || op == OpCode::CreateContainer as i32 {
            answer.text().and_then(|_| answer.stat()).map_err(malformed)?;
        } else if op == OpCode::SetData as i32 {
            stats.push(answer.stat().map_err(malformed)?);
        } else if op != OpCode::Delete as i32 {
            return Err(MultiError::Unanswered(ZooKeeperError::Malformed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of server 3.8, which has no metadata for created nodes.
    #[test]
    fn reads_the_answer_to_successful_changes() {
        let mut stat = RecordWriter::default();
        stat.long(2)
            .long(7)
            .long(1000)
            .long(1000)
            .int(3)
            .int(0)
            .int(0)
            .long(0)
            .int(0)
            .int(1)
            .long(7);
        let mut answer = RecordWriter::default();
        answer.int(OpCode::Delete as i32).flag(false).int(0);
        answer
            .int(OpCode::Create as i32)
            .flag(false)
            .int(0)
            .text("/d")
            .0
            .extend_from_slice(&stat.0);
        answer.int(1).flag(false).int(0).text("/d/x");
        answer.int(OpCode::SetData as i32).flag(false).int(0).0.extend_from_slice(&stat.0);
        answer.int(-1).flag(true).int(-1);
        let stats = results(&mut RecordReader(&answer.0)).expect("all were made");
        assert_eq!(
            stats,
            [NodeStat { czxid: 2, mzxid: 7, ctime: 1000, version: 3, ephemeral_owner: 0 }]
        );
        let cut = &answer.0[..answer.0.len() - 3];
        assert_eq!(
            results(&mut RecordReader(cut)),
            Err(MultiError::Unanswered(ZooKeeperError::Malformed))
        );
    }

    #[test]
    fn reads_the_first_error_of_refused_changes() {
        let mut answer = RecordWriter::default();
        for code in [0, -110, -2] {
            answer.int(-1).flag(false).int(code).int(code);
        }
        answer.int(-1).flag(true).int(-1);
        assert_eq!(
            results(&mut RecordReader(&answer.0)),
            Err(MultiError::Change(ZooKeeperError::NodeExists))
        );
    }
}
