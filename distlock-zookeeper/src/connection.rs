//! The connections of one session: handshake, requests, answers, watches and reconnects.
//!
//! Requests are sent in the order in which they were made, and answered in that order. When a connection is
//! lost, requests that were sent and not answered fail, because their outcome is unknown. Requests that were not
//! sent yet go over the next connection.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use distlock_core::back_off::BackOff;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::wire::{AUTH, NOTIFICATION, OpCode, PING, RecordReader, RecordWriter, ZooKeeperError};

/// The first and the longest pause between two attempts to reconnect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// Allow a server at least this long for a handshake when the session reconnects.
const SHORTEST_HANDSHAKE: Duration = Duration::from_millis(500);
/// Ask the next server as well when one has been silent for this long.
const SHARE: Duration = Duration::from_millis(300);
/// The first bytes of a TLS alert.
const TLS_ALERT: u32 = 0x1503;
const SHORTEST_PING_INTERVAL: Duration = Duration::from_millis(10);
/// Refuse longer answers. This is ten times the length that servers send by default.
const LONGEST_ANSWER: usize = 10 << 20;

/// A request of a client, and where its answer goes.
pub(crate) struct SessionRequest {
    pub(crate) op: OpCode,
    pub(crate) body: Vec<u8>,
    pub(crate) answer: oneshot::Sender<Result<Vec<u8>, ZooKeeperError>>,
    pub(crate) watch: Option<WatchRegistration>,
}

/// A watch to register if its request succeeds.
pub(crate) struct WatchRegistration {
    pub(crate) path: String,
    /// Whether the node's children are watched, or else its data.
    pub(crate) children: bool,
    /// Dropped when the watch fires.
    pub(crate) fires: oneshot::Sender<()>,
}

/// The state of a session's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Connected,
    Disconnected,
    /// The session has ended, and is not connected again.
    Over(ZooKeeperError),
}

/// The settings of one session.
#[derive(Clone)]
pub(crate) struct SessionConfig {
    /// `host:port` of each server.
    pub(crate) servers: Vec<String>,
    /// `user:password` for the authentication scheme `digest`.
    pub(crate) digest: Option<String>,
    /// The requested timeout of the session.
    pub(crate) timeout: Duration,
    /// Drop a connection after this long without a word from its server.
    pub(crate) silence: Duration,
    /// The time that all servers together have for a handshake.
    pub(crate) handshake_timeout: Duration,
    /// The reason why the last server could not be reached.
    pub(crate) why: Arc<Mutex<String>>,
}

/// The task of one session, with the requests under way in it.
pub(crate) struct SessionConnection {
    config: SessionConfig,
    pub(crate) id: i64,
    password: Vec<u8>,
    /// The timeout that the server has granted.
    pub(crate) timeout: Duration,
    last_zxid: i64,
    /// The server of the current connection, or of the last one.
    server: Option<usize>,
    last_xid: i32,
    unanswered: VecDeque<(i32, SessionRequest)>,
    /// The watches by path, and by whether they are for the children.
    watches: HashMap<(String, bool), Vec<oneshot::Sender<()>>>,
    last_heard: Instant,
}

/// The session's data for a handshake.
struct ConnectRequest {
    last_zxid: i64,
    /// 0 for a new session.
    id: i64,
    password: Vec<u8>,
}

/// A connection to a server that has accepted the session.
struct ConnectedServer {
    stream: TcpStream,
    server: usize,
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
}

/// The reason why a connection has ended.
enum ConnectionEnd {
    Lost,
    /// The session is no longer used.
    Closed,
    /// The session has ended.
    Over(ZooKeeperError),
}

impl SessionConnection {
    pub(crate) fn new(config: SessionConfig) -> Self {
        Self {
            timeout: config.timeout,
            config,
            id: 0,
            password: vec![0; 16],
            last_zxid: 0,
            server: None,
            last_xid: 0,
            unanswered: VecDeque::new(),
            watches: HashMap::new(),
            last_heard: Instant::now(),
        }
    }

    /// Opens the session at the first server that answers.
    pub(crate) async fn connect(&mut self) -> Result<TcpStream, ZooKeeperError> {
        let (order, request) = (self.servers_to_try(), self.connect_request());
        let connected = open_at_first(&self.config, &order, &request).await?;
        Ok(self.is_at(connected))
    }

    /// Moves the session to another server. Asks one server after the other, each for this long. The session
    /// moves to the last server that is asked, so two must not be asked at once.
    async fn connect_within(&mut self, each: Duration) -> Result<TcpStream, ZooKeeperError> {
        let mut failed = ZooKeeperError::ConnectionLoss;
        for at in self.servers_to_try() {
            let request = self.connect_request();
            match timeout(each, handshake(&self.config, at, &request)).await {
                Ok(Ok(connected)) => return Ok(self.is_at(connected)),
                Ok(Err(error)) if error.is_final() => return Err(error),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = ZooKeeperError::ConnectionLoss,
            }
        }
        Err(failed)
    }

    /// Returns the servers in the order in which they are asked. The order is random, so that clients spread
    /// over the servers. The server whose connection was lost comes last.
    fn servers_to_try(&self) -> Vec<usize> {
        let servers = 0..self.config.servers.len();
        let mut order: Vec<_> = servers.filter(|server| Some(*server) != self.server).collect();
        for at in 1..order.len() {
            order.swap(at, random_number() % (at + 1));
        }
        order.extend(self.server);
        order
    }

    fn connect_request(&self) -> ConnectRequest {
        ConnectRequest { last_zxid: self.last_zxid, id: self.id, password: self.password.clone() }
    }

    /// Notes the server that has accepted the session.
    fn is_at(&mut self, connected: ConnectedServer) -> TcpStream {
        let ConnectedServer { stream, server, id, password, timeout } = connected;
        (self.server, self.id, self.password, self.timeout) = (Some(server), id, password, timeout);
        self.last_heard = Instant::now();
        stream
    }

    /// Keeps the session connected until it is no longer used or has expired.
    pub(crate) async fn run(
        mut self,
        mut stream: TcpStream,
        mut requests: mpsc::UnboundedReceiver<SessionRequest>,
        states: watch::Sender<ConnectionState>,
    ) {
        let over = loop {
            let end = self.serve(&mut stream, &mut requests).await;
            drop(stream);
            match end {
                ConnectionEnd::Closed => return,
                ConnectionEnd::Over(error) => break error,
                ConnectionEnd::Lost => states.send_replace(ConnectionState::Disconnected),
            };
            self.fail_unanswered(ZooKeeperError::ConnectionLoss);
            stream = match self.reconnect().await {
                Ok(stream) => stream,
                Err(error) => break error,
            };
            states.send_replace(ConnectionState::Connected);
            // Fires all watches: nobody knows what happened in the meantime.
            self.watches.clear();
        };
        states.send_replace(ConnectionState::Over(over));
        self.fail_unanswered(over);
        requests.close();
        while let Some(request) = requests.recv().await {
            let _ = request.answer.send(Err(over));
        }
    }

    /// Connects again, or returns an error once the session has ended.
    async fn reconnect(&mut self) -> Result<TcpStream, ZooKeeperError> {
        // A server that is frozen, or starting, may accept a connection and never answer on it.
        let mut back_off = BackOff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut patience = SHORTEST_HANDSHAKE;
        loop {
            let connected = self.connect_within(patience).await;
            patience = (patience * 2).min(self.config.handshake_timeout.max(SHORTEST_HANDSHAKE));
            match connected {
                Err(error) if error.is_final() => return Err(error),
                // Servers that lost their data refuse clients that have seen later transactions, and never
                // say why.
                Err(_) if self.last_heard.elapsed() > self.timeout * 3 / 2 => {
                    return Err(ZooKeeperError::SessionExpired);
                }
                Err(_) => {}
                Ok(stream) => return Ok(stream),
            }
            sleep(back_off.pause()).await;
        }
    }

    /// Fails the requests that were sent and not answered.
    fn fail_unanswered(&mut self, error: ZooKeeperError) {
        for (_, request) in self.unanswered.drain(..) {
            let _ = request.answer.send(Err(error));
        }
    }

    /// Moves requests and answers until the connection ends.
    async fn serve(
        &mut self,
        stream: &mut TcpStream,
        requests: &mut mpsc::UnboundedReceiver<SessionRequest>,
    ) -> ConnectionEnd {
        let ping_interval = (self.config.silence / 4).min(self.timeout / 4);
        let ping_interval = ping_interval.max(SHORTEST_PING_INTERVAL);
        let mut frames = FrameBuffer::default();
        let mut tick = pin!(sleep(ping_interval));
        poll_fn(|cx| {
            loop {
                let mut moved = self.take_requests(requests, &mut frames, cx);
                if tick.as_mut().poll(cx).is_ready() {
                    moved = true;
                    tick.set(sleep(ping_interval));
                    if self.last_heard.elapsed() > self.config.silence {
                        return Poll::Ready(ConnectionEnd::Lost);
                    }
                    frames.ping_if_idle(ping_interval);
                }
                match frames.poll_io(stream, cx) {
                    Ok(stepped) => moved |= stepped,
                    Err(_) if frames.closing => return Poll::Ready(ConnectionEnd::Closed),
                    Err(_) => return Poll::Ready(ConnectionEnd::Lost),
                }
                while let Some(answer) = frames.next_answer() {
                    self.last_heard = Instant::now();
                    match answer.and_then(|answer| self.receive(&answer)) {
                        Ok(()) => {}
                        Err(
                            error @ (ZooKeeperError::SessionExpired | ZooKeeperError::AuthFailed),
                        ) => {
                            return Poll::Ready(ConnectionEnd::Over(error));
                        }
                        Err(_) => return Poll::Ready(ConnectionEnd::Lost),
                    }
                }
                if !moved {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Puts the requests into the output, and returns whether there were any. Closes the session when no more
    /// can come.
    fn take_requests(
        &mut self,
        requests: &mut mpsc::UnboundedReceiver<SessionRequest>,
        frames: &mut FrameBuffer,
        cx: &mut Context<'_>,
    ) -> bool {
        let mut moved = false;
        while let (false, Poll::Ready(request)) = (frames.closing, requests.poll_recv(cx)) {
            moved = true;
            frames.last_sent = Instant::now();
            match request {
                Some(request) => self.send(request, &mut frames.out),
                None => {
                    frames.closing = true;
                    let mut close = RecordWriter::default();
                    close.int(self.next_xid()).int(OpCode::CloseSession as i32);
                    frame(&mut frames.out, &close.0);
                }
            }
        }
        moved
    }

    fn next_xid(&mut self) -> i32 {
        self.last_xid = if self.last_xid == i32::MAX { 1 } else { self.last_xid + 1 };
        self.last_xid
    }

    /// Numbers a request and puts it into the output.
    fn send(&mut self, request: SessionRequest, out: &mut Vec<u8>) {
        let xid = self.next_xid();
        let mut header = RecordWriter::default();
        header.int(xid).int(request.op as i32);
        header.0.extend_from_slice(&request.body);
        frame(out, &header.0);
        self.unanswered.push_back((xid, request));
    }

    /// Hands an answer to its request.
    fn receive(&mut self, answer: &[u8]) -> Result<(), ZooKeeperError> {
        let mut answer = RecordReader(answer);
        let (xid, zxid, code) = (answer.int()?, answer.long()?, answer.int()?);
        match (xid, code) {
            (NOTIFICATION, _) => return self.notify(&mut answer),
            (_, -112) => return Err(ZooKeeperError::SessionExpired),
            (_, -115) => return Err(ZooKeeperError::AuthFailed),
            (PING | AUTH, _) => return Ok(()),
            _ => self.last_zxid = self.last_zxid.max(zxid),
        }
        let Some((sent, request)) = self.unanswered.pop_front() else {
            return Err(ZooKeeperError::Malformed);
        };
        if sent != xid {
            let _ = request.answer.send(Err(ZooKeeperError::ConnectionLoss));
            return Err(ZooKeeperError::Malformed);
        }
        let SessionRequest { answer: to, watch, .. } = request;
        if code != 0 {
            let _ = to.send(Err(ZooKeeperError::of(code)));
            return Ok(());
        }
        if let Some(WatchRegistration { path, children, fires }) = watch {
            let watches = self.watches.entry((path, children)).or_default();
            watches.retain(|watch| !watch.is_closed());
            watches.push(fires);
        }
        let _ = to.send(Ok(answer.0.to_vec()));
        Ok(())
    }

    /// Fires the watches of a node that was changed. Each watch fires once.
    fn notify(&mut self, event: &mut RecordReader<'_>) -> Result<(), ZooKeeperError> {
        const DELETED: i32 = 2;
        const CHILDREN: i32 = 4;
        let (kind, _state, path) = (event.int()?, event.int()?, event.text()?);
        for children in [false, true] {
            if kind == DELETED || (kind == CHILDREN) == children {
                // Dropping the senders fires the watches.
                self.watches.remove(&(path.clone(), children));
            }
        }
        Ok(())
    }
}

/// Opens a session at the first server that answers. A server that stays silent for its share of the time does
/// not delay the next one, which is then asked as well. If a slower server opens a session too, nobody uses it
/// and it expires.
async fn open_at_first(
    config: &SessionConfig,
    order: &[usize],
    request: &ConnectRequest,
) -> Result<ConnectedServer, ZooKeeperError> {
    let servers = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let share = SHARE.min(config.handshake_timeout / servers.saturating_add(1));
    let (mut rest, mut attempts, mut failed) = (order.iter(), Vec::new(), None);
    let (mut next, mut end) = (pin!(sleep(share)), pin!(sleep(config.handshake_timeout)));
    poll_fn(move |cx| {
        loop {
            let is_due = attempts.is_empty() || next.as_mut().poll(cx).is_ready();
            if let Some(at) = rest.as_slice().first().filter(|_| is_due) {
                rest.next();
                attempts.push(Box::pin(handshake(config, *at, request)));
                next.set(sleep(share));
                continue;
            }
            let mut at = 0;
            while at < attempts.len() {
                match attempts[at].as_mut().poll(cx) {
                    Poll::Pending => at += 1,
                    Poll::Ready(Err(error)) if !error.is_final() => {
                        drop(attempts.swap_remove(at));
                        failed = Some(error);
                        next.set(sleep(Duration::ZERO));
                    }
                    Poll::Ready(done) => return Poll::Ready(done),
                }
            }
            let is_over = attempts.is_empty() && rest.as_slice().is_empty();
            if is_over || end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(failed.unwrap_or(ZooKeeperError::ConnectionLoss)));
            }
            let can_begin = !rest.as_slice().is_empty();
            if !(can_begin && (attempts.is_empty() || next.as_mut().poll(cx).is_ready())) {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Opens or moves a session at one server.
async fn handshake(
    config: &SessionConfig,
    server: usize,
    request: &ConnectRequest,
) -> Result<ConnectedServer, ZooKeeperError> {
    let failed = |error: ZooKeeperError, words: String| {
        let mut why = config.why.lock().unwrap_or_else(PoisonError::into_inner);
        *why = format!("{}: {words}", config.servers[server]);
        error
    };
    let lost = |error: io::Error| failed(ZooKeeperError::ConnectionLoss, error.to_string());
    let refused = |error: ZooKeeperError| failed(error, error.to_string());
    let mut stream = TcpStream::connect(&config.servers[server]).await.map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    let mut connect = RecordWriter::default();
    let timeout = i32::try_from(config.timeout.as_millis()).unwrap_or(i32::MAX);
    connect.int(0).long(request.last_zxid).int(timeout).long(request.id);
    connect.bytes(&request.password).flag(false);
    let mut out = Vec::new();
    frame(&mut out, &connect.0);
    if let Some(digest) = &config.digest {
        let mut auth = RecordWriter::default();
        auth.int(AUTH).int(OpCode::Auth as i32).int(0).text("digest").text(digest);
        frame(&mut out, &auth.0);
    }
    stream.write_all(&out).await.map_err(lost)?;
    // A server that has no quorum yet closes the connection as well.
    let length = stream.read_u32().await.map_err(|_| refused(ZooKeeperError::Silent))?;
    if length >> 16 == TLS_ALERT {
        return Err(refused(ZooKeeperError::SpeaksTls));
    }
    let length = length as usize;
    if length > LONGEST_ANSWER {
        return Err(ZooKeeperError::Malformed);
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.map_err(lost)?;
    let mut answer = RecordReader(&answer);
    let (_version, timeout, id) = (answer.int()?, answer.int()?, answer.long()?);
    if id == 0 || timeout <= 0 {
        return Err(ZooKeeperError::SessionExpired);
    }
    let password = answer.bytes()?.to_vec();
    let timeout = Duration::from_millis(u64::try_from(timeout).unwrap_or(0));
    Ok(ConnectedServer { stream, server, id, password, timeout })
}

/// The output and input buffers of one connection, cut into frames.
struct FrameBuffer {
    out: Vec<u8>,
    input: Vec<u8>,
    last_sent: Instant,
    /// The request to close the session was written.
    closing: bool,
}

impl Default for FrameBuffer {
    fn default() -> Self {
        let (out, input) = (Vec::new(), Vec::new());
        Self { out, input, last_sent: Instant::now(), closing: false }
    }
}

impl FrameBuffer {
    /// Sends a ping, unless the server was sent something within this time.
    fn ping_if_idle(&mut self, every: Duration) {
        if self.last_sent.elapsed() >= every {
            self.last_sent = Instant::now();
            let mut ping = RecordWriter::default();
            ping.int(PING).int(OpCode::Ping as i32);
            frame(&mut self.out, &ping.0);
        }
    }

    /// Writes and reads as much as the socket takes and has, and returns whether there was anything.
    fn poll_io(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Result<bool, ZooKeeperError> {
        let mut moved = false;
        while !self.out.is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, &self.out) {
                Poll::Ready(Ok(0) | Err(_)) => return Err(ZooKeeperError::ConnectionLoss),
                Poll::Ready(Ok(count)) => drop(self.out.drain(..count)),
                Poll::Pending => break,
            }
            moved = true;
        }
        let mut bytes = [0; 8192];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                self.input.extend_from_slice(buffer.filled());
                moved = true;
            }
            Poll::Ready(_) => return Err(ZooKeeperError::ConnectionLoss),
            Poll::Pending => {}
        }
        Ok(moved)
    }

    /// Returns the next complete answer.
    fn next_answer(&mut self) -> Option<Result<Vec<u8>, ZooKeeperError>> {
        let length = u32::from_be_bytes(self.input.get(..4)?.try_into().ok()?) as usize;
        if length > LONGEST_ANSWER {
            return Some(Err(ZooKeeperError::Malformed));
        }
        let answer = self.input.get(4..4 + length)?.to_vec();
        self.input.drain(..4 + length);
        Some(Ok(answer))
    }
}

/// Appends a record with its length before it.
fn frame(out: &mut Vec<u8>, record: &[u8]) {
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(record);
}

/// Returns a number that differs between processes and calls.
fn random_number() -> usize {
    use std::hash::{BuildHasher, Hasher};
    usize::try_from(std::hash::RandomState::new().build_hasher().finish() >> 33).unwrap_or(0)
}
