//! One connection of a session after the other, and what goes over them.
//!
//! Requests are sent in the order in which they were made, and answered in that order. Those that a connection
//! took with it fail, as their outcome is unknown; those that were not sent yet go over the next one.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::flow::{FrameBuffer, LONGEST, frame};
use crate::wire::{AUTH, NOTIFICATION, OpCode, PING, RecordReader, RecordWriter, ZooKeeperError};

const PAUSE: Duration = Duration::from_millis(50);
const SHORTEST_GREETING: Duration = Duration::from_millis(500);
/// Ask the next server when one has been silent for this long.
const SHARE: Duration = Duration::from_millis(300);
/// The first bytes of a TLS alert.
const TLS_ALERT: u32 = 0x1503;
const SHORTEST_BEAT: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A request on its way.
pub(crate) struct SessionRequest {
    pub(crate) op: OpCode,
    pub(crate) body: Vec<u8>,
    pub(crate) answer: oneshot::Sender<Result<Vec<u8>, ZooKeeperError>>,
    pub(crate) watch: Option<WatchRegistration>,
}

/// What is to be told of, if the request succeeds.
pub(crate) struct WatchRegistration {
    pub(crate) path: String,
    pub(crate) children: bool,
    pub(crate) told: oneshot::Sender<()>,
}

/// Whether a session is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Connected,
    Disconnected,
    /// For good.
    Over(ZooKeeperError),
}

/// What a session is made with.
#[derive(Clone)]
pub(crate) struct SessionConfig {
    /// `host:port` each.
    pub(crate) servers: Vec<String>,
    pub(crate) digest: Option<String>,
    pub(crate) timeout: Duration,
    /// After so long without a word from it a server is left.
    pub(crate) silence: Duration,
    /// How long all servers together may take to greet.
    pub(crate) greeting: Duration,
    /// The reason why the last server could not be reached.
    pub(crate) why: Arc<Mutex<String>>,
}

/// A session, with what is under way in it.
pub(crate) struct SessionConnection {
    config: SessionConfig,
    pub(crate) id: i64,
    password: Vec<u8>,
    /// What the server has granted.
    pub(crate) timeout: Duration,
    last_zxid: i64,
    /// The server that has the session, or had it.
    server: Option<usize>,
    last_xid: i32,
    unanswered: VecDeque<(i32, SessionRequest)>,
    /// By path, and whether it is of the children.
    watches: HashMap<(String, bool), Vec<oneshot::Sender<()>>>,
    last_heard: Instant,
}

/// The session's own data, sent to a server.
struct ConnectRequest {
    last_zxid: i64,
    /// 0 for a new one.
    id: i64,
    password: Vec<u8>,
}

/// The server's answer when it has accepted the session.
struct ConnectedServer {
    stream: TcpStream,
    server: usize,
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
}

/// Why a connection has ended.
enum ConnectionEnd {
    Lost,
    /// The session is no longer used.
    Closed,
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
        let (order, request) = (self.order(), self.request());
        let greeted = greet_one(&self.config, &order, &request).await?;
        Ok(self.is_at(greeted))
    }

    /// Moves an existing session to a server: asks one after the other, each for this long. The session moves
    /// to the last server that is asked, so two must not be asked at once.
    async fn connect_within(&mut self, each: Duration) -> Result<TcpStream, ZooKeeperError> {
        let mut failed = ZooKeeperError::ConnectionLoss;
        for at in self.order() {
            let request = self.request();
            match timeout(each, greet(&self.config, at, &request)).await {
                Ok(Ok(greeted)) => return Ok(self.is_at(greeted)),
                Ok(Err(error)) if error.is_final() => return Err(error),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = ZooKeeperError::ConnectionLoss,
            }
        }
        Err(failed)
    }

    /// Returns the servers in the order in which they are asked. The first one is random, so that clients
    /// spread over the servers; the one whose connection was lost comes last.
    fn order(&self) -> Vec<usize> {
        let servers = 0..self.config.servers.len();
        let mut order: Vec<_> = servers.filter(|server| Some(*server) != self.server).collect();
        for at in 1..order.len() {
            order.swap(at, any_number() % (at + 1));
        }
        order.extend(self.server);
        order
    }

    fn request(&self) -> ConnectRequest {
        ConnectRequest { last_zxid: self.last_zxid, id: self.id, password: self.password.clone() }
    }

    fn is_at(&mut self, greeted: ConnectedServer) -> TcpStream {
        let ConnectedServer { stream, server, id, password, timeout } = greeted;
        (self.server, self.id, self.password, self.timeout) = (Some(server), id, password, timeout);
        self.last_heard = Instant::now();
        stream
    }

    /// Keeps the session until it is no longer used or has expired.
    pub(crate) async fn keep(
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
            self.forget(ZooKeeperError::ConnectionLoss);
            stream = match self.again().await {
                Ok(stream) => stream,
                Err(error) => break error,
            };
            states.send_replace(ConnectionState::Connected);
            // The watchers look again: what has happened meanwhile is not known.
            self.watches.clear();
        };
        states.send_replace(ConnectionState::Over(over));
        self.forget(over);
        requests.close();
        while let Some(request) = requests.recv().await {
            let _ = request.answer.send(Err(over));
        }
    }

    /// Connects again; an error if the session is over.
    async fn again(&mut self) -> Result<TcpStream, ZooKeeperError> {
        // A server that is frozen, or starting, may accept a connection and never answer on it.
        let (mut pause, mut patience) = (PAUSE, SHORTEST_GREETING);
        loop {
            let connected = self.connect_within(patience).await;
            patience = (patience * 2).min(self.config.greeting.max(SHORTEST_GREETING));
            match connected {
                Err(error) if error.is_final() => return Err(error),
                // Servers that have lost their data refuse clients that have seen more, and never say so.
                Err(_) if self.last_heard.elapsed() > self.timeout * 3 / 2 => {
                    return Err(ZooKeeperError::SessionExpired);
                }
                Err(_) => {}
                Ok(stream) => return Ok(stream),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Fails what was sent and not answered.
    fn forget(&mut self, error: ZooKeeperError) {
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
        let beat = (self.config.silence / 4).min(self.timeout / 4).max(SHORTEST_BEAT);
        let mut frames = FrameBuffer::default();
        let mut tick = pin!(sleep(beat));
        poll_fn(|cx| {
            loop {
                let mut moved = self.take_requests(requests, &mut frames, cx);
                if tick.as_mut().poll(cx).is_ready() {
                    moved = true;
                    tick.set(sleep(beat));
                    if self.last_heard.elapsed() > self.config.silence {
                        return Poll::Ready(ConnectionEnd::Lost);
                    }
                    frames.beat(beat);
                }
                match frames.step(stream, cx) {
                    Ok(stepped) => moved |= stepped,
                    Err(_) if frames.closing => return Poll::Ready(ConnectionEnd::Closed),
                    Err(_) => return Poll::Ready(ConnectionEnd::Lost),
                }
                while let Some(answer) = frames.next() {
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

    /// Takes up the requests; whether there were any. When no more can come, the session is closed.
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

    fn send(&mut self, request: SessionRequest, out: &mut Vec<u8>) {
        let xid = self.next_xid();
        let mut header = RecordWriter::default();
        header.int(xid).int(request.op as i32);
        header.0.extend_from_slice(&request.body);
        frame(out, &header.0);
        self.unanswered.push_back((xid, request));
    }

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
        if let Some(WatchRegistration { path, children, told }) = watch {
            let watches = self.watches.entry((path, children)).or_default();
            watches.retain(|watch| !watch.is_closed());
            watches.push(told);
        }
        let _ = to.send(Ok(answer.0.to_vec()));
        Ok(())
    }

    /// Something has happened to a node: its watchers are notified, once.
    fn notify(&mut self, event: &mut RecordReader<'_>) -> Result<(), ZooKeeperError> {
        const DELETED: i32 = 2;
        const CHILDREN: i32 = 4;
        let (kind, _state, path) = (event.int()?, event.int()?, event.text()?);
        for children in [false, true] {
            if kind == DELETED || (kind == CHILDREN) == children {
                // Dropping the senders notifies them.
                self.watches.remove(&(path.clone(), children));
            }
        }
        Ok(())
    }
}

/// Opens a session at the first server that answers. A server that stays silent for its share of the time does
/// not delay the next one, which is asked at the same time. If a slower server opens a session as well, nobody
/// uses it and it expires.
async fn greet_one(
    config: &SessionConfig,
    order: &[usize],
    request: &ConnectRequest,
) -> Result<ConnectedServer, ZooKeeperError> {
    let servers = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let share = SHARE.min(config.greeting / servers.saturating_add(1));
    let (mut rest, mut attempts, mut failed) = (order.iter(), Vec::new(), None);
    let (mut next, mut end) = (pin!(sleep(share)), pin!(sleep(config.greeting)));
    poll_fn(move |cx| {
        loop {
            let is_due = attempts.is_empty() || next.as_mut().poll(cx).is_ready();
            if let Some(at) = rest.as_slice().first().filter(|_| is_due) {
                rest.next();
                attempts.push(Box::pin(greet(config, *at, request)));
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
async fn greet(
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
    let told = |error: ZooKeeperError| failed(error, error.to_string());
    let mut stream = TcpStream::connect(&config.servers[server]).await.map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    let mut greeting = RecordWriter::default();
    let timeout = i32::try_from(config.timeout.as_millis()).unwrap_or(i32::MAX);
    greeting.int(0).long(request.last_zxid).int(timeout).long(request.id);
    greeting.bytes(&request.password).flag(false);
    let mut out = Vec::new();
    frame(&mut out, &greeting.0);
    if let Some(digest) = &config.digest {
        let mut auth = RecordWriter::default();
        auth.int(AUTH).int(OpCode::Auth as i32).int(0).text("digest").text(digest);
        frame(&mut out, &auth.0);
    }
    stream.write_all(&out).await.map_err(lost)?;
    // A server that does not serve yet also closes the connection.
    let length = stream.read_u32().await.map_err(|_| told(ZooKeeperError::Silent))?;
    if length >> 16 == TLS_ALERT {
        return Err(told(ZooKeeperError::SpeaksTls));
    }
    let length = length as usize;
    if length > LONGEST {
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

/// Returns a number that differs between processes and calls.
fn any_number() -> usize {
    use std::hash::{BuildHasher, Hasher};
    usize::try_from(std::hash::RandomState::new().build_hasher().finish() >> 33).unwrap_or(0)
}
