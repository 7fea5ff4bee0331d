//! The connection: opened on first use to the first member that answers, and reopened whenever it is lost.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::address::Address;
use crate::fault::Fault;
use crate::grpc::{self, Answers, Channel, User};
use crate::proto::{RequestOp, TxnRequest};
use crate::tls_detection::{First, Tapped};
use crate::watch::{Message, Watches};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A connection that owes an answer is given so long for any.
const SILENCE: Duration = Duration::from_secs(1);
/// So many calls in a row without an answer in time, and it is left.
const MANY_SILENT: u32 = 2;
/// Ask the next member when one has been silent for this long.
const SHARE: Duration = Duration::from_millis(300);
/// How much may be on its way to us.
const WINDOW: u32 = 4 << 20;

/// Called with the servers of one connection, and with the failure if it is down. Dropped once the connection is
/// no longer needed.
pub type Watch = Box<dyn FnMut(&str, Option<&Fault>) + Send>;

/// What hears of what is seen.
pub(crate) type OnMessage = Box<dyn Fn(Message<'_>) + Send + Sync>;

/// How etcd is reached.
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// How long it may take to make a connection.
    pub connect_timeout: Duration,
}

/// The state of the connection, as its calls see it.
pub(crate) struct Health {
    silent: AtomicU32,
    suspected: Notify,
    bad: Notify,
}

impl Health {
    fn new() -> Self {
        Self { silent: AtomicU32::new(0), suspected: Notify::new(), bad: Notify::new() }
    }

    /// An answer has come.
    fn answered(&self) {
        self.silent.store(0, Ordering::Release);
    }

    /// An answer has not come in time.
    pub(crate) fn missed(&self) {
        match self.silent.fetch_add(1, Ordering::AcqRel) + 1 {
            MANY_SILENT => self.bad.notify_one(),
            _ => self.suspected.notify_one(),
        }
    }

    /// Resolves when the connection is to be left.
    async fn gone_bad(&self) {
        let silence = async {
            loop {
                self.suspected.notified().await;
                tokio::time::sleep(SILENCE).await;
                if self.silent.load(Ordering::Acquire) > 0 {
                    return;
                }
            }
        };
        either(self.bad.notified(), silence).await;
    }
}

/// A connection that is there. A clone is the same one.
#[derive(Clone)]
pub struct Live {
    pub(crate) channel: Channel,
    pub(crate) watches: Arc<Watches>,
    number: u64,
    health: Arc<Health>,
}

impl Live {
    /// Which connection it is: no two have the same number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// It owes an answer.
    pub fn missed(&self) {
        self.health.missed();
    }

    /// What an answer says of the connection.
    pub(crate) fn heard<T>(&self, answer: Result<T, Fault>) -> Result<T, Fault> {
        match &answer {
            Ok(_) => self.health.answered(),
            Err(fault) if fault.ends_connection => self.health.bad.notify_one(),
            Err(fault) if fault.answered => self.health.answered(),
            Err(_) => {}
        }
        answer
    }
}

/// A connection, made on first use and again whenever it is lost.
pub(crate) struct Link {
    settings: Settings,
    state: watch::Sender<State>,
    wanted: Notify,
    down_since: Mutex<Option<Instant>>,
    on: OnMessage,
}

enum State {
    Unused,
    Up(Live),
    Down(Fault),
}

impl Link {
    pub(crate) fn start(
        settings: Settings,
        handle: &Handle,
        watch: Watch,
        on: OnMessage,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            settings,
            state: watch::Sender::new(State::Unused),
            wanted: Notify::new(),
            down_since: Mutex::new(None),
            on,
        });
        handle.spawn(supervise(link.clone(), watch));
        link
    }

    /// The connection as soon as there is one, or why there is none where trying again cannot help.
    pub(crate) async fn live(&self) -> Result<Live, Fault> {
        if let Some(live) = self.up() {
            return Ok(live);
        }
        self.outcome(|state| match state {
            State::Unused => false,
            State::Up(_) => true,
            State::Down(fault) => !fault.passing,
        })
        .await
    }

    /// The connection, or why the first attempt to make one failed.
    pub(crate) async fn first(&self) -> Result<Live, Fault> {
        self.outcome(|state| !matches!(state, State::Unused)).await
    }

    async fn outcome(&self, is_settled: impl Fn(&State) -> bool) -> Result<Live, Fault> {
        self.wanted.notify_one();
        let mut states = self.state.subscribe();
        let state = states.wait_for(is_settled).await;
        match state.as_deref() {
            Ok(State::Up(live)) => Ok(live.clone()),
            Ok(State::Down(fault)) => Err(fault.clone()),
            _ => Err(Fault::unreachable("the connection is not kept up any more")),
        }
    }

    /// Resolves when there is a connection, or when there is none; does not make one.
    pub(crate) async fn until(&self, up: bool) {
        let is_so = |state: &State| matches!(state, State::Up(_)) == up;
        if self.state.subscribe().wait_for(is_so).await.is_err() {
            // It is not kept up any more.
            std::future::pending().await
        }
    }

    /// The connection, if there is one.
    pub(crate) fn up(&self) -> Option<Live> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.clone()),
            State::Unused | State::Down(_) => None,
        }
    }

    /// Since when there is no connection, and why.
    pub(crate) fn outage(&self) -> Option<(Instant, Fault)> {
        let since = (*self.down_since.lock().unwrap_or_else(PoisonError::into_inner))?;
        match &*self.state.borrow() {
            State::Down(fault) => Some((since, fault.clone())),
            State::Up(_) | State::Unused => None,
        }
    }

    fn went(&self, state: State) {
        let mut since = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        match &state {
            State::Down(_) => drop(since.get_or_insert_with(Instant::now)),
            State::Up(_) | State::Unused => *since = None,
        }
        drop(since);
        self.state.send_replace(state);
    }

    /// Tells what is seen.
    pub(crate) fn tell(&self, message: Message<'_>) {
        (self.on)(message);
    }
}

/// Keeps the link connected from its first use on, until the runtime is dropped.
async fn supervise(link: Arc<Link>, mut watch: Watch) {
    link.wanted.notified().await;
    let (hosts, servers) = (&link.settings.address.hosts, link.settings.address.servers());
    let (mut pause, mut number, mut lost) = (FIRST_PAUSE, 0, None);
    loop {
        let order = order(hosts.len(), lost);
        let (fault, ended) = match reach(&link.settings, &order, number).await {
            Ok(Made { live, answers, mut ended, host }) => {
                pause = FIRST_PAUSE;
                lost = Some(host);
                let (health, watches) = (live.health.clone(), live.watches.clone());
                let channel = live.channel.clone();
                link.went(State::Up(live));
                watch(&hosts[host], None);
                link.tell(Message::Interrupted);
                let seen = watches.run(&channel, answers, |message| link.tell(message));
                either(&mut ended, either(seen, health.gone_bad())).await;
                (Fault::unreachable("the connection was lost").at(&hosts[host]), Some(ended))
            }
            Err(fault) => (fault, None),
        };
        number += hosts.len() as u64;
        // Before the connection is dropped, and what waits for its answers fails: a call that fails with it
        // must find it down, and wait for the next one.
        let was_up = ended.is_some();
        link.went(State::Down(fault.clone()));
        drop(ended);
        watch(lost.filter(|_| was_up).map_or(&servers, |host| &hosts[host]), Some(&fault));
        if was_up {
            link.tell(Message::Interrupted);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the members in the order in which they are asked. The first one is random, so that clients spread
/// over the members; the one whose connection was lost comes last.
fn order(members: usize, lost: Option<usize>) -> Vec<usize> {
    let mut order: Vec<_> = (0..members).filter(|member| Some(*member) != lost).collect();
    for at in 1..order.len() {
        order.swap(at, any_number() % (at + 1));
    }
    order.extend(lost);
    order
}

/// Returns a number that differs between processes and calls.
fn any_number() -> usize {
    use std::hash::{BuildHasher, Hasher};
    usize::try_from(std::hash::RandomState::new().build_hasher().finish() >> 33).unwrap_or(0)
}

/// Connects to the first member that answers. A member that stays silent for its share of the time does not
/// delay the next one, which is asked at the same time. Slower attempts are dropped.
async fn reach(settings: &Settings, order: &[usize], number: u64) -> Result<Made, Fault> {
    let hosts = &settings.address.hosts;
    let share = settings.connect_timeout / u32::try_from(order.len() + 1).unwrap_or(u32::MAX);
    let share = share.min(SHARE);
    let mut rest = order.iter();
    let mut attempts = Vec::new();
    let mut failed = None;
    let (mut next, mut end) =
        (pin!(tokio::time::sleep(share)), pin!(tokio::time::sleep(settings.connect_timeout)));
    poll_fn(move |cx| {
        loop {
            let is_due = attempts.is_empty() || next.as_mut().poll(cx).is_ready();
            if let Some(host) = rest.as_slice().first().filter(|_| is_due) {
                rest.next();
                attempts.push(Box::pin(establish(settings, *host, number + *host as u64)));
                next.set(tokio::time::sleep(share));
                continue;
            }
            let mut at = 0;
            while at < attempts.len() {
                match attempts[at].as_mut().poll(cx) {
                    Poll::Pending => at += 1,
                    Poll::Ready(Ok(made)) => return Poll::Ready(Ok(made)),
                    Poll::Ready(Err((host, fault))) => {
                        drop(attempts.swap_remove(at));
                        let fault = fault.at(&hosts[host]);
                        // A wrong password is wrong at every member.
                        if !fault.passing {
                            return Poll::Ready(Err(fault));
                        }
                        failed = Some(fault);
                        next.set(tokio::time::sleep(Duration::ZERO));
                    }
                }
            }
            let is_over = attempts.is_empty() && rest.as_slice().is_empty();
            if is_over || end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(failed
                    .take()
                    .unwrap_or_else(|| Fault::timed_out().at(&settings.address.servers()))));
            }
            let can_begin = !rest.as_slice().is_empty();
            if !(can_begin && (attempts.is_empty() || next.as_mut().poll(cx).is_ready())) {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// A connection with its greeting done.
struct Made {
    live: Live,
    /// The answers to its watches.
    answers: Answers,
    /// Resolves when the connection has ended. Dropping this closes the socket.
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The member at the other end.
    host: usize,
}

/// Connects to a member.
async fn establish(settings: &Settings, host: usize, number: u64) -> Result<Made, (usize, Fault)> {
    let name = &settings.address.hosts[host];
    let greet = async {
        let refused = |error| Fault::unreachable(format!("connect: {error}"));
        let socket = TcpStream::connect(name).await.map_err(refused)?;
        socket.set_nodelay(true).map_err(refused)?;
        let first = Arc::new(First::default());
        let socket = Tapped { socket, first: first.clone() };
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (send, connection) = builder.handshake(socket).await?;
        let (mut connection, mut ended) = (Box::pin(connection), false);
        let mut connection = poll_fn(move |cx| {
            ended = ended || connection.as_mut().poll(cx).is_ready();
            if ended { Poll::Ready(()) } else { Poll::Pending }
        });
        let user = settings.address.user.as_ref();
        let user = user.map(|(name, password)| Arc::new(User::new(name, password)));
        let channel = Channel { send, authority: name.clone(), user };
        let closed = || Fault::unreachable("it was closed while it was made");
        let greeted = race(greet(channel, number), &mut connection).await;
        match greeted.ok_or_else(closed).and_then(|greeted| greeted) {
            Ok((live, answers)) => Ok(Made { live, answers, ended: Box::pin(connection), host }),
            Err(fault) => Err(first.explains(fault)),
        }
    };
    let made = timeout(settings.connect_timeout, greet).await;
    made.unwrap_or_else(|_| Err(Fault::timed_out())).map_err(|fault| (host, fault))
}

/// Signs in, sees that the member answers for the whole cluster, and begins to watch.
async fn greet(channel: Channel, number: u64) -> Result<(Live, Answers), Fault> {
    channel.sign_in_again(0).await?;
    // Answered by a majority. Whether this key may be read does not matter.
    let look = TxnRequest::unconditional(vec![RequestOp::get(b"distlock".to_vec())]);
    match channel.txn(&look).await {
        Err(fault) if !fault.is_denial => return Err(fault),
        _ => {}
    }
    let (requests, answers) = channel.ready().await?.open(grpc::WATCH)?;
    let watches = Arc::new(Watches::new(requests));
    let live = Live { channel, watches, number, health: Arc::new(Health::new()) };
    Ok((live, answers))
}

/// Runs `work` until `end` resolves; `None` if that came first.
async fn race<T>(work: impl Future<Output = T>, end: impl Future) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|cx| {
        // The connection first: it moves the bytes.
        let ended = end.as_mut().poll(cx).is_ready();
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if ended => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Resolves with the first of two.
async fn either(one: impl Future, other: impl Future) {
    race(one, other).await;
}
