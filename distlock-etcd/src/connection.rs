//! The connection to the cluster. It is opened on first use to the first member that answers, and reopened whenever it
//! is lost.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use distlock_core::back_off::BackOff;
use distlock_core::clock::Clock;
use distlock_core::reconnect::{Reconnect, keep_connected};
use distlock_core::select::either;
use distlock_core::store::{Fault, LinkWatch, Listener, Notification, Outage};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::address::EtcdAddress;
use crate::fault::EtcdFault;
use crate::grpc::{self, EtcdUser, GrpcChannel, ResponseStream};
use crate::proto::{RequestOp, TxnRequest};
use crate::tls_detection::{FirstBytes, ObservedSocket};
use crate::watch::Watches;

/// The first pause between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Once an answer is overdue, drop the connection after this long without any answer.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);
/// Drop the connection after this many overdue answers in a row.
const MOST_OVERDUE: u32 = 2;
/// Ask the next member when one has been silent for this long.
const LONGEST_SHARE: Duration = Duration::from_millis(300);
/// The HTTP/2 flow-control window: how many bytes the server may send before they are read.
const WINDOW: u32 = 4 << 20;

/// The settings of a connection.
pub(crate) struct ConnectSettings {
    /// The members and the user.
    pub(crate) address: EtcdAddress,
    /// The longest time that opening a connection may take.
    pub(crate) connect_timeout: Duration,
}

/// The health of one connection, judged by the answers to its calls.
pub(crate) struct ConnectionHealth {
    /// The number of overdue answers since the last answer.
    overdue: AtomicU32,
    suspected: Notify,
    failed: Notify,
}

impl ConnectionHealth {
    fn new() -> Self {
        Self { overdue: AtomicU32::new(0), suspected: Notify::new(), failed: Notify::new() }
    }

    /// Notes an answer.
    fn answered(&self) {
        self.overdue.store(0, Ordering::Release);
    }

    /// Notes that an answer is overdue.
    pub(crate) fn missed(&self) {
        match self.overdue.fetch_add(1, Ordering::AcqRel) + 1 {
            MOST_OVERDUE => self.failed.notify_one(),
            _ => self.suspected.notify_one(),
        }
    }

    /// Resolves when the connection must be dropped.
    async fn has_failed(&self) {
        let silence = async {
            loop {
                self.suspected.notified().await;
                tokio::time::sleep(LONGEST_SILENCE).await;
                if self.overdue.load(Ordering::Acquire) > 0 {
                    return;
                }
            }
        };
        let _ = either(self.failed.notified(), silence).await;
    }
}

/// An open connection. A clone is the same connection.
#[derive(Clone)]
pub(crate) struct EtcdConnection {
    pub(crate) channel: GrpcChannel,
    pub(crate) watches: Arc<Watches>,
    number: u64,
    health: Arc<ConnectionHealth>,
}

impl EtcdConnection {
    /// Returns its number. No two connections of a store have the same one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Notes that an answer is overdue.
    pub(crate) fn missed(&self) {
        self.health.missed();
    }

    /// Judges the connection by an answer, and returns the answer.
    pub(crate) fn judge<T>(&self, answer: Result<T, EtcdFault>) -> Result<T, EtcdFault> {
        match &answer {
            Ok(_) => self.health.answered(),
            Err(fault) if fault.ends_connection => self.health.failed.notify_one(),
            Err(fault) if fault.answered => self.health.answered(),
            Err(_) => {}
        }
        answer
    }
}

/// A connection that is opened on first use and reopened whenever it is lost.
pub(crate) struct EtcdLink {
    settings: ConnectSettings,
    state: watch::Sender<LinkState>,
    wanted: Notify,
    listener: OnceLock<Listener>,
}

enum LinkState {
    Unused,
    Up(EtcdConnection),
    Down(Outage),
}

impl EtcdLink {
    pub(crate) fn start(
        settings: ConnectSettings,
        handle: &Handle,
        watch: Box<dyn LinkWatch>,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            settings,
            state: watch::Sender::new(LinkState::Unused),
            wanted: Notify::new(),
            listener: OnceLock::new(),
        });
        let supervised =
            SupervisedLink { link: link.clone(), watch, number: 0, up: None, lost: None };
        handle.spawn(async move {
            supervised.link.wanted.notified().await;
            keep_connected(supervised, BackOff::new(FIRST_PAUSE, LONGEST_PAUSE)).await;
        });
        link
    }

    /// Returns the connection as soon as there is one. Fails if another attempt to connect cannot succeed.
    pub(crate) async fn connection(&self) -> Result<EtcdConnection, Fault> {
        if let Some(connection) = self.up() {
            return Ok(connection);
        }
        self.outcome(|state| match state {
            LinkState::Unused => false,
            LinkState::Up(_) => true,
            LinkState::Down(outage) => !outage.fault.passing,
        })
        .await
    }

    /// Returns the connection, or the failure of the first attempt to connect.
    pub(crate) async fn first(&self) -> Result<EtcdConnection, Fault> {
        self.outcome(|state| !matches!(state, LinkState::Unused)).await
    }

    async fn outcome(
        &self,
        is_settled: impl Fn(&LinkState) -> bool,
    ) -> Result<EtcdConnection, Fault> {
        self.wanted.notify_one();
        let mut states = self.state.subscribe();
        let state = states.wait_for(is_settled).await;
        match state.as_deref() {
            Ok(LinkState::Up(connection)) => Ok(connection.clone()),
            Ok(LinkState::Down(outage)) => Err(outage.fault.clone()),
            _ => Err(EtcdFault::unreachable("the connection is not kept up any more").into()),
        }
    }

    /// Resolves when there is a connection, or when there is none. Does not connect.
    pub(crate) async fn until(&self, up: bool) {
        let is_so = |state: &LinkState| matches!(state, LinkState::Up(_)) == up;
        if self.state.subscribe().wait_for(is_so).await.is_err() {
            // The supervisor has ended with its runtime.
            std::future::pending().await
        }
    }

    /// Returns the connection if there is one.
    pub(crate) fn up(&self) -> Option<EtcdConnection> {
        match &*self.state.borrow() {
            LinkState::Up(connection) => Some(connection.clone()),
            LinkState::Unused | LinkState::Down(_) => None,
        }
    }

    /// Returns the present outage. `None` if there is a connection, or none was needed yet.
    pub(crate) fn outage(&self) -> Option<Outage> {
        match &*self.state.borrow() {
            LinkState::Down(Outage { since, fault }) => {
                Some(Outage { since: *since, fault: fault.clone() })
            }
            LinkState::Up(_) | LinkState::Unused => None,
        }
    }

    /// Registers the listener for notifications, unless there is one.
    pub(crate) fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    pub(crate) fn notify(&self, notification: Notification<'_>) {
        if let Some(listener) = self.listener.get() {
            listener(notification);
        }
    }
}

/// The link with the part of its state that only the reconnect loop uses.
struct SupervisedLink {
    link: Arc<EtcdLink>,
    watch: Box<dyn LinkWatch>,
    /// The number of the next connection.
    number: u64,
    /// The index of the member that it is connected to.
    up: Option<usize>,
    /// The index of the member that it was connected to last.
    lost: Option<usize>,
}

impl Reconnect for SupervisedLink {
    type Connected = OpenedConnection;

    async fn connect(&mut self) -> Result<OpenedConnection, Fault> {
        let settings = &self.link.settings;
        let members = settings.address.hosts.len();
        let number = self.number;
        // Each member has a number of its own in each attempt.
        self.number += members as u64;
        Ok(reach(settings, &connect_order(members, self.lost), number).await?)
    }

    async fn run(&mut self, opened: &mut OpenedConnection) -> Fault {
        let OpenedConnection { connection, watch_responses, ended, host } = opened;
        let (link, node) = (&self.link, &self.link.settings.address.hosts[*host]);
        (self.up, self.lost) = (Some(*host), Some(*host));
        link.state.send_replace(LinkState::Up(connection.clone()));
        self.watch.up(node);
        link.notify(Notification::Interrupted);
        let watches = connection.watches.run(&connection.channel, watch_responses, |seen| {
            link.notify(seen);
        });
        let _ = either(ended, either(watches, connection.health.has_failed())).await;
        EtcdFault::unreachable("the connection was lost").at(node).into()
    }

    fn down(&mut self, fault: &Fault) {
        let address = &self.link.settings.address;
        self.link.state.send_modify(|state| {
            let since = match state {
                LinkState::Down(outage) => outage.since,
                LinkState::Up(_) | LinkState::Unused => Clock::Boottime.now(),
            };
            *state = LinkState::Down(Outage { since, fault: fault.clone() });
        });
        let was_up = self.up.take();
        let node = was_up.map_or_else(|| address.servers(), |host| address.hosts[host].clone());
        self.watch.down(&node, &fault.reason());
        if was_up.is_some() {
            self.link.notify(Notification::Interrupted);
        }
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}

/// Returns the members in the order in which they are asked. The first one is random, so that clients spread
/// over the members; the one whose connection was lost comes last.
fn connect_order(members: usize, lost: Option<usize>) -> Vec<usize> {
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
async fn reach(
    settings: &ConnectSettings,
    order: &[usize],
    number: u64,
) -> Result<OpenedConnection, EtcdFault> {
    let hosts = &settings.address.hosts;
    let share = settings.connect_timeout / u32::try_from(order.len() + 1).unwrap_or(u32::MAX);
    let share = share.min(LONGEST_SHARE);
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
                        if !fault.fault.passing {
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
                    .unwrap_or_else(|| EtcdFault::timed_out().at(&settings.address.servers()))));
            }
            let can_begin = !rest.as_slice().is_empty();
            if !(can_begin && (attempts.is_empty() || next.as_mut().poll(cx).is_ready())) {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// A connection that has signed in and answered once.
struct OpenedConnection {
    connection: EtcdConnection,
    /// The responses to its watches.
    watch_responses: ResponseStream,
    /// Resolves when the connection has ended. Dropping this closes the socket.
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The index of the member at the other end.
    host: usize,
}

/// Connects to one member and signs in.
async fn establish(
    settings: &ConnectSettings,
    host: usize,
    number: u64,
) -> Result<OpenedConnection, (usize, EtcdFault)> {
    let name = &settings.address.hosts[host];
    let open = async {
        let refused = |error| EtcdFault::unreachable(format!("connect: {error}"));
        let socket = TcpStream::connect(name).await.map_err(refused)?;
        socket.set_nodelay(true).map_err(refused)?;
        let first = Arc::new(FirstBytes::default());
        let socket = ObservedSocket { socket, first: first.clone() };
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (send, http) = builder.handshake(socket).await?;
        let (mut http, mut has_ended) = (Box::pin(http), false);
        let mut ended = Box::pin(poll_fn(move |cx| {
            has_ended = has_ended || http.as_mut().poll(cx).is_ready();
            if has_ended { Poll::Ready(()) } else { Poll::Pending }
        }));
        let user = settings.address.user.as_ref();
        let user = user.map(|(name, password)| Arc::new(EtcdUser::new(name, password)));
        let channel = GrpcChannel { send, authority: name.clone(), user };
        let closed = || EtcdFault::unreachable("it was closed while it was made");
        let done = race(handshake(channel, number), &mut ended).await;
        match done.ok_or_else(closed).and_then(|done| done) {
            Ok((connection, watch_responses)) => {
                Ok(OpenedConnection { connection, watch_responses, ended, host })
            }
            Err(fault) => Err(first.explains(fault)),
        }
    };
    let opened = timeout(settings.connect_timeout, open).await;
    opened.unwrap_or_else(|_| Err(EtcdFault::timed_out())).map_err(|fault| (host, fault))
}

/// Signs in, checks that the member has a quorum, and opens the stream of watches.
async fn handshake(
    channel: GrpcChannel,
    number: u64,
) -> Result<(EtcdConnection, ResponseStream), EtcdFault> {
    channel.sign_in_again(0).await?;
    // Only a member with a quorum answers this. It does not matter whether the user may read the key.
    let read = TxnRequest::unconditional(vec![RequestOp::get(b"distlock".to_vec())]);
    match channel.txn(&read).await {
        Err(fault) if !fault.is_denial => return Err(fault),
        _ => {}
    }
    let (requests, watch_responses) = channel.ready().await?.open(grpc::WATCH)?;
    let watches = Arc::new(Watches::new(requests));
    let health = Arc::new(ConnectionHealth::new());
    Ok((EtcdConnection { channel, watches, number, health }, watch_responses))
}

/// Runs `work` until `end` resolves. Returns `None` if `end` came first.
async fn race<T>(work: impl Future<Output = T>, end: impl Future) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|cx| {
        // Poll the connection first, because it moves the bytes.
        let ended = end.as_mut().poll(cx).is_ready();
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if ended => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
