//! A session, and what can be asked in it.
//!
//! Each of these sends when it is called, not when its future is polled: what is called in order arrives in
//! order, also if the answer is not awaited.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::connection::{
    ConnectionState, SessionConfig, SessionConnection, SessionRequest, WatchRegistration,
};
use crate::wire::{Acl, CreateMode, NodeStat, OpCode, RecordReader, RecordWriter, ZooKeeperError};

/// A session. A clone is the same one, which is closed with the last of them.
#[derive(Clone)]
pub(crate) struct SessionClient {
    requests: mpsc::UnboundedSender<SessionRequest>,
    states: watch::Receiver<ConnectionState>,
    acl: Acl,
    id: i64,
    timeout: Duration,
}

/// Resolves once, when what was watched has changed, or may have without being told.
pub(crate) struct NodeWatch(oneshot::Receiver<()>);

impl NodeWatch {
    pub(crate) async fn changed(self) {
        let _ = self.0.await;
    }
}

/// Several changes that are made together or not at all.
pub(crate) struct MultiOp {
    body: RecordWriter,
    acl: Acl,
}

/// Which of them could not be made, and why; or why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MultiError {
    Change(ZooKeeperError),
    Unanswered(ZooKeeperError),
}

impl MultiError {
    pub(crate) fn error(self) -> ZooKeeperError {
        match self {
            Self::Change(error) | Self::Unanswered(error) => error,
        }
    }
}

impl SessionClient {
    /// A new session, kept up by a task of this runtime.
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

    /// As nodes name their owner.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// How long it outlives its client.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn states(&self) -> watch::Receiver<ConnectionState> {
        self.states.clone()
    }

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

    /// Makes a node; its path, which has a number at the end if the mode says so.
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

    pub(crate) fn delete(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(), ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).int(-1);
        let answer = self.send(OpCode::Delete, body, None);
        async { answer.await.map(|_| ()) }
    }

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

    /// Tells when a node is changed or gone; an error if it is not there.
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

    pub(crate) fn children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Vec<String>, ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path).flag(false);
        let answer = self.send(OpCode::GetChildren, body, None);
        async { RecordReader(&answer.await?).texts() }
    }

    /// The children of a node, and what reports a change of them.
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

    /// Has what is asked after this see all that was changed before.
    pub(crate) fn sync(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(), ZooKeeperError>> + Send + use<> {
        let mut body = RecordWriter::default();
        body.text(path);
        let answer = self.send(OpCode::Sync, body, None);
        async { answer.await.map(|_| ()) }
    }

    /// Makes a node and all above it.
    pub(crate) async fn make_path(&self, path: &str) -> Result<(), ZooKeeperError> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        for end in ends {
            match self.create(&path[..end], &[], CreateMode::Persistent).await {
                // A client may lack the right to make a node that is there already, and have it below that.
                Ok(_) | Err(ZooKeeperError::NodeExists) => {}
                Err(ZooKeeperError::NoAuth) if end < path.len() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Several changes to be made together.
    pub(crate) fn multi(&self) -> MultiOp {
        MultiOp { body: RecordWriter::default(), acl: self.acl }
    }

    /// Makes them; what is known then of each node whose version was counted up.
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
    fn begin(&mut self, op: OpCode) -> &mut RecordWriter {
        self.body.int(op as i32).flag(false).int(-1)
    }

    pub(crate) fn create(mut self, path: &str, data: &[u8], mode: CreateMode) -> Self {
        let acl = self.acl;
        self.begin(mode.op()).create(path, data, mode, acl);
        self
    }

    pub(crate) fn delete(mut self, path: &str) -> Self {
        self.begin(OpCode::Delete).text(path).int(-1);
        self
    }

    /// Counts up a node's version, if it is this one.
    pub(crate) fn count_up(mut self, path: &str, version: Option<i32>) -> Self {
        self.begin(OpCode::SetData).text(path).bytes(&[]).int(version.unwrap_or(-1));
        self
    }
}

fn results(answer: &mut RecordReader<'_>) -> Result<Vec<NodeStat>, MultiError> {
    const ERROR: i32 = -1;
    /// What servers before 3.9 call most nodes that are made together with others, and say no more of them.
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
            // Those before the one that failed have no error, and those behind it one of no meaning.
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

    /// As 3.8 answers: a node that is made together with others has no word of itself.
    #[test]
    fn what_was_changed_together() {
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
    fn what_was_refused_together() {
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
