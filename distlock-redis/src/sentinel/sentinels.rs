//! The sentinels of one primary: following them, finding the primary, and a survey for operators.
//!
//! All sentinels are asked at once, so that one that hangs delays no other. Each has a task and a connection of its
//! own, and is asked every second. It is asked at once when a sentinel has news, and every 100 ms while a connection to
//! the primary is missing. [`PrimaryVotes`] collects the replies. Every connection learns from there that its server is
//! not the primary any more, even if that server still replies: a server that was paused during a failover takes itself
//! for the primary for seconds after it resumes.
//!
//! A message of a sentinel is only a reason to ask: messages can be lost, or be outdated.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use distlock_core::back_off::{BackOff, jittered};
use distlock_core::reconnect::{Reconnect, keep_connected};
use distlock_core::select::until;
use distlock_core::store::{BackendKind, Fault};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisError, Value,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::addr::Addr;
use crate::connection::connect::connect;
use crate::connection::discover::{Address, Discover, Discovering};
use crate::connection::error::{fault, unexpected};
use crate::connection::handshake::why_not;
use crate::connection::io::ClientDriver;
use crate::connection::server_info::{Mode, NO_SENTINEL};
use crate::connection::tls::TlsClient;
use crate::sentinel::known_sentinels::{FollowedSentinel, KnownSentinels};
use crate::sentinel::primary::{PrimaryVerdict, PrimaryVotes, SentinelReply};
use crate::url::SentinelUrl;

/// How often a sentinel is asked.
const ROUND: Duration = Duration::from_secs(1);
/// How often a sentinel is asked while a connection to the primary is missing.
const SEARCH: Duration = Duration::from_millis(100);
/// How long a sentinel may take to reply, and to accept a connection.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);
/// The first pause before a sentinel that cannot be reached is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A sentinel that the URL does not name is forgotten when it has not replied for this long.
const GONE: Duration = Duration::from_secs(60);
/// In one of this many rounds a sentinel is asked for the other sentinels.
const OTHERS: u32 = 10;
/// Messages that may mean that there is another primary, or another sentinel.
const NEWS: [&str; 5] = ["+switch-master", "+promoted-slave", "+odown", "-odown", "+sentinel"];

/// The sentinels of one primary.
pub struct Sentinels {
    /// The primary's name.
    pub(crate) name: String,
    /// User, password and database at the primary.
    servers: RedisConnectionInfo,
    /// How to connect to some of the sentinels. User and password are the same at all.
    pub(crate) seeds: Vec<ConnectionInfo>,
    /// The TLS client for sentinels; `None` for plain text.
    pub(crate) tls: Option<Arc<TlsClient>>,
    heard: Mutex<KnownSentinels>,
    verdict: watch::Sender<PrimaryVerdict>,
    /// Changed when all sentinels must be asked now.
    ask: watch::Sender<()>,
    /// The number of missing connections to the primary.
    missing: AtomicUsize,
    started: Once,
}

/// A sentinel's address and its reply to each question, or the reason why it could not be asked.
pub(crate) type SurveyReply = (String, Result<Vec<Value>, Fault>);

/// The server that the sentinels name as the primary.
pub(crate) struct PrimaryServer(pub(crate) Arc<Sentinels>);

impl Discover for PrimaryServer {
    fn find(&self) -> Discovering<'_, Result<Address, Fault>> {
        Box::pin(self.0.find())
    }

    fn moved_from<'a>(&'a self, address: &'a Address) -> Discovering<'a, ()> {
        Box::pin(self.0.moved_from(address.server))
    }

    fn search(&self) -> Option<Box<dyn Send>> {
        Some(Box::new(self.0.missing()))
    }

    fn longest_pause(&self) -> Duration {
        Duration::from_millis(100)
    }
}

/// Counts a missing connection to the primary for as long as it lives.
pub(crate) struct PrimarySearch {
    sentinels: Arc<Sentinels>,
}

impl Drop for PrimarySearch {
    fn drop(&mut self) {
        self.sentinels.missing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sentinels {
    /// Makes the sentinels of a URL. They are not asked yet.
    pub fn new(url: SentinelUrl, tls: Option<Arc<TlsClient>>) -> Arc<Self> {
        let SentinelUrl { sentinels: seeds, primary: name, servers, .. } = url;
        let votes = PrimaryVotes::new(name.clone(), seeds.len());
        Arc::new(Self {
            name,
            servers,
            seeds,
            tls,
            heard: Mutex::new(KnownSentinels::new(votes)),
            verdict: watch::Sender::new(PrimaryVerdict::Open),
            ask: watch::Sender::new(()),
            missing: AtomicUsize::new(0),
            started: Once::new(),
        })
    }

    /// Returns the primary, as soon as it is certain. Must be called on the engine's runtime, where the sentinels are
    /// followed from then on.
    pub(crate) async fn find(self: &Arc<Self>) -> Result<Address, Fault> {
        self.started.call_once(|| {
            // All of them, before any is heard.
            let new: Vec<_> = self.seeds.iter().filter_map(|seed| self.new_addr(seed)).collect();
            for (addr, seed) in new {
                self.follow(seed.clone(), addr, true);
            }
        });
        let mut verdict = self.verdict.subscribe();
        let known = verdict.wait_for(|verdict| !matches!(verdict, PrimaryVerdict::Open));
        let known = timeout(ANSWER * 3, known).await;
        let known = known.ok().and_then(|known| known.ok().map(|known| known.clone()));
        match known {
            Some(PrimaryVerdict::Primary(Addr { host, port }, changes)) => {
                let addr = ConnectionAddr::Tcp(host.to_string(), port);
                let info = addr.into_connection_info();
                let info = info.map_err(|error| fault(&error))?;
                let info = info.set_redis_settings(self.servers.clone());
                Ok(Address { info, server: changes })
            }
            Some(PrimaryVerdict::NoPrimary(fault)) => Err(fault),
            Some(PrimaryVerdict::Open) | None => {
                let seeds: Vec<_> = self.seeds.iter().map(|seed| seed.addr().to_string()).collect();
                Err(Fault::timed_out().at(&seeds.join(",")))
            }
        }
    }

    /// Resolves when another server than the one with this number is the primary.
    pub(crate) async fn moved_from(&self, server: u64) {
        let mut verdict = self.verdict.subscribe();
        let another = |verdict: &PrimaryVerdict| matches!(verdict, PrimaryVerdict::Primary(_, now) if *now != server);
        let _ = verdict.wait_for(another).await;
    }

    /// Notes that a connection to the primary is missing. All sentinels are asked now, and often.
    pub(crate) fn missing(self: &Arc<Self>) -> PrimarySearch {
        self.missing.fetch_add(1, Ordering::Relaxed);
        self.ask.send_replace(());
        PrimarySearch { sentinels: self.clone() }
    }

    /// Returns the address of a sentinel that is not followed yet.
    fn new_addr<'a>(&self, sentinel: &'a ConnectionInfo) -> Option<(Addr, &'a ConnectionInfo)> {
        let ConnectionAddr::Tcp(host, port) = sentinel.addr() else { return None };
        let addr = Addr { host: host.as_str().into(), port: *port };
        self.heard().is_new(&addr).then_some((addr, sentinel))
    }

    /// Returns the known addresses of the sentinels.
    pub(crate) fn addrs(&self) -> Vec<Addr> {
        self.heard().addrs()
    }

    /// Follows a sentinel from now on, with a task and a connection of its own.
    fn follow(self: &Arc<Self>, info: ConnectionInfo, addr: Addr, is_seed: bool) {
        let name = addr.to_string();
        let follower = Follower {
            sentinels: self.clone(),
            info,
            followed: FollowedSentinel { addr, name, is_seed },
            answered_at: Instant::now(),
            is_over: false,
        };
        tokio::spawn(keep_connected(follower, BackOff::new(FIRST_PAUSE, LONGEST_PAUSE)));
    }

    /// Whether some sentinel answers. It then names the others again, if they still exist.
    fn any_answers(&self) -> bool {
        self.heard().votes.is_answered()
    }

    /// Learns the sentinel's name, and subscribes to its news. The sentinel need not allow either. Returns `false` if
    /// it is followed at another address.
    async fn introduce(
        &self,
        connection: &mut MultiplexedConnection,
        followed: &mut FollowedSentinel,
    ) -> Result<bool, Fault> {
        let mut own = redis::cmd("SENTINEL");
        own.arg("MYID");
        let own = in_time(own.query_async::<String>(connection)).await?;
        if let Ok(own) = own {
            if !self.heard().is_named(&followed.addr, &followed.name, &own) {
                return Ok(false);
            }
            followed.name = own;
        }
        // If that is not allowed, the sentinel is asked every second.
        in_time(connection.subscribe(&NEWS[..])).await.map(|_| true)
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> Result<SentinelReply, Fault> {
        let mut ask = redis::Pipeline::with_capacity(2);
        ask.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        ask.cmd("SENTINEL").arg("MASTER").arg(&self.name);
        let answers = in_time(connection.send_packed_commands(&ask, 0, 2)).await?;
        let answers = answers.map_err(|error| not_asked(&error))?;
        let (addr, details) = match answers.as_slice() {
            [Value::Nil, _] => return Ok(SentinelReply::Unknown),
            [Value::ServerError(error), _] => {
                return Err(not_asked(&RedisError::from(error.clone())));
            }
            [Value::Array(addr), details] => (addr, details),
            _ => return Err(unexpected()),
        };
        let [host, port] = addr.as_slice() else {
            return Err(unexpected());
        };
        let addr = text(host).zip(text(port).and_then(|port| port.parse().ok()));
        let (host, port) = addr.ok_or_else(unexpected)?;
        let epoch = field(details, "config-epoch").and_then(|epoch| epoch.parse().ok());
        Ok(SentinelReply::Names(Addr { host: host.into(), port }, epoch.unwrap_or(0)))
    }

    /// Follows the sentinels that this one knows.
    async fn look_for_others(
        self: &Arc<Self>,
        sentinel: &ConnectionInfo,
        connection: &mut MultiplexedConnection,
    ) {
        let mut others = redis::cmd("SENTINEL");
        others.arg("SENTINELS").arg(&self.name);
        let Ok(Ok(Value::Array(others))) = in_time(connection.send_packed_command(&others)).await
        else {
            return;
        };
        for other in &others {
            let addr =
                field(other, "ip").zip(field(other, "port").and_then(|port| port.parse().ok()));
            let Some((host, port)) = addr else { continue };
            let other = sentinel.clone().set_addr(ConnectionAddr::Tcp(host, port));
            if let Some((addr, _)) = self.new_addr(&other) {
                self.follow(other, addr, false);
            }
        }
    }

    fn hear(&self, sentinel: &str, word: Result<SentinelReply, Fault>) {
        let mut heard = self.heard();
        let verdict = heard.votes.hear(sentinel, word);
        // Under the mutex: verdicts must not overtake each other.
        self.verdict.send_if_modified(|present| {
            let is_new = !present.is(&verdict);
            if is_new {
                *present = verdict;
            }
            is_new
        });
    }

    /// Asks all sentinels, because a message of one is about this primary.
    fn on_push(&self, push: &PushInfo) {
        let [_, Value::BulkString(message)] = push.data.as_slice() else { return };
        let name = self.name.as_bytes();
        if message.split(|byte| *byte == b' ').any(|word| word == name) {
            self.ask.send_replace(());
        }
    }

    /// Asks every known sentinel about the primary, and whether there are enough sentinels for a failover. A
    /// sentinel that hangs does not delay the others.
    pub(crate) async fn survey(self: &Arc<Self>) -> Vec<SurveyReply> {
        let addrs = self.addrs();
        let mut asked = JoinSet::new();
        for addr in addrs {
            let sentinels = self.clone();
            asked.spawn(async move {
                let name = addr.to_string();
                let said = timeout(2 * ANSWER, sentinels.question(addr)).await;
                (name, said.unwrap_or_else(|_| Err(Fault::timed_out())))
            });
        }
        let mut surveyed = asked.join_all().await;
        surveyed.sort_by(|(one, _), (other, _)| one.cmp(other));
        surveyed
    }

    async fn question(&self, addr: Addr) -> Result<Vec<Value>, Fault> {
        // All sentinels have the same user and password.
        let seed = self.seeds.first().ok_or_else(unexpected)?;
        let info = addr.info(seed);
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = connect(&info, self.tls.as_deref(), config).await;
        let (connection, driver) = connected.map_err(|error| at_sentinel(fault(&error)))?;
        let asked = async {
            let mut connection = connection;
            let mut questions = redis::Pipeline::with_capacity(2);
            questions.cmd("SENTINEL").arg("MASTER").arg(&self.name);
            questions.cmd("SENTINEL").arg("CKQUORUM").arg(&self.name);
            let answers = connection.send_packed_commands(&questions, 0, 2).await;
            answers.map_err(|error| at_sentinel(fault(&error)))
        };
        // The connection closes when its driver is dropped.
        until(asked, driver).await.unwrap_or_else(|| Err(Fault::timed_out()))
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, KnownSentinels> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a connection to one sentinel, and asks it over that connection.
struct Follower {
    sentinels: Arc<Sentinels>,
    /// How to connect to the sentinel.
    info: ConnectionInfo,
    followed: FollowedSentinel,
    /// When a connection on which the sentinel had answered was lost last.
    answered_at: Instant,
    is_over: bool,
}

/// A connection over which a sentinel has answered.
struct SentinelConnection {
    connection: MultiplexedConnection,
    driver: ClientDriver,
    /// Changed when the sentinel is to be asked now.
    ask: watch::Receiver<()>,
}

impl Follower {
    async fn open(&self) -> Result<(MultiplexedConnection, ClientDriver), Fault> {
        let settings = self.info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = self.info.clone().set_redis_settings(settings);
        let receiver = self.sentinels.clone();
        let push = move |push: PushInfo| -> Result<(), std::convert::Infallible> {
            receiver.on_push(&push);
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(push);
        let tls = self.sentinels.tls.as_deref();
        match timeout(ANSWER, connect(&info, tls, config)).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(at_sentinel(why_not(&error, &info, tls, Mode::Sentinel).await)),
            Err(_) => Err(Fault::timed_out()),
        }
    }

    /// Asks the sentinel for the first time on a connection. It must answer, or the attempt to connect has failed.
    async fn begin(
        &mut self,
        connection: &mut MultiplexedConnection,
    ) -> Result<watch::Receiver<()>, Fault> {
        let Self { sentinels, followed, is_over, .. } = self;
        if !sentinels.introduce(connection, followed).await? {
            *is_over = true;
            return Err(lost());
        }
        let ask = sentinels.ask.subscribe();
        let reply = sentinels.ask(connection).await?;
        sentinels.hear(&followed.name, Ok(reply));
        Ok(ask)
    }

    /// Asks in every round, until the sentinel does not answer.
    async fn keep_asking(
        &self,
        connection: &mut MultiplexedConnection,
        ask: &mut watch::Receiver<()>,
    ) -> Fault {
        let Self { sentinels, followed, info, .. } = self;
        for round in 0u32.. {
            if round % OTHERS == 0 {
                sentinels.look_for_others(info, connection).await;
            }
            let pause = match sentinels.missing.load(Ordering::Relaxed) {
                0 => ROUND,
                _ => jittered(SEARCH),
            };
            let _ = timeout(pause, ask.changed()).await;
            match sentinels.ask(connection).await {
                Ok(reply) => sentinels.hear(&followed.name, Ok(reply)),
                Err(fault) => return fault,
            }
        }
        Fault::timed_out()
    }
}

impl Reconnect for Follower {
    type Connected = SentinelConnection;

    async fn connect(&mut self) -> Result<SentinelConnection, Fault> {
        let (mut connection, mut driver) = self.open().await?;
        // The driver ends with the connection.
        let begun = until(self.begin(&mut connection), &mut driver).await;
        let ask = begun.unwrap_or_else(|| Err(lost()))?;
        Ok(SentinelConnection { connection, driver, ask })
    }

    async fn run(&mut self, connected: &mut SentinelConnection) -> Fault {
        let SentinelConnection { connection, driver, ask } = connected;
        let fault = until(self.keep_asking(connection, ask), driver).await.unwrap_or_else(lost);
        self.answered_at = Instant::now();
        fault
    }

    fn down(&mut self, fault: &Fault) {
        let Self { sentinels, followed, answered_at, .. } = self;
        // A sentinel that is followed at another address has its vote from there.
        if self.is_over {
            return;
        }
        sentinels.hear(&followed.name, Err(fault.clone().at(&followed.name)));
        // The sentinel may be reachable at another of its addresses.
        sentinels.heard().forget_aliases();
        if !followed.is_seed && answered_at.elapsed() > GONE && sentinels.any_answers() {
            sentinels.heard().leave(&followed.addr, &followed.name);
            self.is_over = true;
        }
    }

    async fn wait(&mut self, pause: Duration) {
        sleep(pause).await;
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Returns the fault for a connection that has ended.
fn lost() -> Fault {
    Fault::passing(BackendKind::Unreachable, "the connection to a sentinel was lost")
}

async fn in_time<T>(
    answer: impl Future<Output = Result<T, RedisError>>,
) -> Result<Result<T, RedisError>, Fault> {
    timeout(ANSWER, answer).await.map_err(|_| Fault::timed_out())
}

/// Returns the fault for an error of a sentinel.
fn not_asked(error: &RedisError) -> Fault {
    let fault = fault(error);
    if fault.to_string().contains("unknown command") {
        return Fault::lasting(BackendKind::Other, NO_SENTINEL);
    }
    at_sentinel(fault)
}

/// Adds a hint to the fault, because sentinels have users of their own.
pub(crate) fn at_sentinel(fault: Fault) -> Fault {
    match fault.kind {
        BackendKind::Refused => fault.and(
            "; that was a sentinel: its own user and password are `sentinel_user` and `sentinel_pass` in the URL",
        ),
        _ => fault,
    }
}

/// Returns a field of a sentinel's details of a server or of another sentinel.
fn field(details: &Value, name: &str) -> Option<String> {
    match details {
        Value::Map(fields) => {
            let found = fields.iter().find(|(field, _)| text(field).as_deref() == Some(name));
            found.and_then(|(_, value)| text(value))
        }
        Value::Array(fields) => {
            let mut pairs = fields.chunks_exact(2);
            let found = pairs.find(|pair| text(&pair[0]).as_deref() == Some(name));
            found.and_then(|pair| text(&pair[1]))
        }
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(text) => Some(String::from_utf8_lossy(text).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}
