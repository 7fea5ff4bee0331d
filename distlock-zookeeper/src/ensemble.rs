//! The ensemble: its sessions, and where its events go.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::address::Address;
use crate::fault::Fault;
use crate::process_record::ProcessRecord;
use crate::session::{EnsembleConfig, LiveSession, ManagedSession, Watch};
use crate::waiters::LocalTokens;

/// How long the place of a waiter that died stays, or the least that the server allows. A waiter that is cut off
/// for longer has its place put back when it returns.
const WAITING: Duration = Duration::from_secs(4);
/// When it is tried again to give back what is kept too long.
const AGAIN: Duration = Duration::from_millis(500);
const ROOT: &str = "/distlock";

/// How an ensemble is used.
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// How long it may take to make a session.
    pub connect_timeout: Duration,
    /// The lease that most locks have: its session is made with the first one.
    pub ttl: Duration,
}

/// What is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// The lock of that name may be free for that token.
    Room(&'a str, &'a str),
    /// Others wait behind that token.
    Behind(&'a str, &'a str),
    /// The lock was taken away from that token.
    Taken(&'a str, &'a str),
    /// Watches and places may have been lost.
    Interrupted,
}

type Listener = Box<dyn Fn(Message<'_>) + Send + Sync>;

/// The sessions with one ensemble. They are made on first use.
pub struct Ensemble {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<EnsembleConfig>,
    /// Waiters stand in this one: it is short.
    pub(crate) waiting: Arc<ManagedSession>,
    /// Locks are held in these, each long enough for some leases.
    holding: Mutex<LeaseSessions>,
    pub(crate) places: LocalTokens,
    pub(crate) record: Arc<ProcessRecord>,
    listener: Arc<OnceLock<Listener>>,
    watch: Box<dyn Fn() -> Watch + Send + Sync>,
    pub(crate) handle: Handle,
    ttl: Duration,
}

#[derive(Default)]
struct LeaseSessions {
    links: Vec<Arc<ManagedSession>>,
    /// What the servers have granted where less, or more, was asked for.
    longest: Option<Duration>,
    shortest: Option<Duration>,
}

impl Ensemble {
    /// Starts it on a runtime with timers. `watch` is called for each session.
    pub fn start(
        settings: Settings,
        handle: &Handle,
        watch: impl Fn() -> Watch + Send + Sync + 'static,
    ) -> Self {
        let Settings { address, connect_timeout, ttl } = settings;
        let listener: Arc<OnceLock<Listener>> = Arc::default();
        let told = listener.clone();
        let interrupted = Arc::new(move || tell(&told, Message::Interrupted));
        let root = format!("{}{ROOT}", address.chroot);
        let shared = Arc::new(EnsembleConfig { address, connect_timeout, root, interrupted });
        let waiting = ManagedSession::start(&shared, WAITING, handle, watch());
        let inner = Arc::new(Inner {
            record: ProcessRecord::new(waiting.clone()),
            waiting,
            shared,
            holding: Mutex::default(),
            places: LocalTokens::default(),
            listener,
            watch: Box::new(watch),
            handle: handle.clone(),
            ttl,
        });
        handle.spawn(give_back(inner.clone()));
        Self { inner }
    }

    /// Resolves with the first session, or why the first attempt to make it failed.
    ///
    /// # Errors
    ///
    /// Why there is no session.
    pub async fn first(&self) -> Result<(), Fault> {
        let holding = self.inner.link(self.inner.ttl)?;
        // Both are under way before one is waited for.
        holding.want();
        self.inner.waiting.first().await?;
        holding.first().await.map(|_| ())
    }

    /// Resolves when there is a session for leases of that length.
    ///
    /// # Errors
    ///
    /// Why there is none, where trying again cannot help: no session of the servers lasts so.
    pub async fn ready(&self, ttl: Duration) -> Result<(), Fault> {
        let link = self.inner.link(ttl)?;
        self.inner.live(&link, ttl).await.map(|_| ())
    }

    /// Has what happens told from here on.
    pub fn listen(&self, on: impl Fn(Message<'_>) + Send + Sync + 'static) {
        let _ = self.inner.listener.set(Box::new(on));
    }

    /// Whether waiters have a session.
    pub fn is_connected(&self) -> bool {
        self.inner.waiting.is_up()
    }

    /// Since when a session is without a connection, and why; `None` where none is that was ever used.
    pub fn outage(&self) -> Option<(Instant, Fault)> {
        let links = self.inner.holding().links.clone();
        let links = links.iter().chain([&self.inner.waiting]);
        links.filter_map(|link| link.outage()).min_by_key(|(since, _)| *since)
    }

    /// A round trip to the servers.
    ///
    /// # Errors
    ///
    /// Where they could not be asked.
    pub async fn ping(&self) -> Result<(), Fault> {
        let live = self.inner.waiting.live().await?;
        live.client.sync(&self.inner.shared.root).await.map_err(Fault::of)
    }
}

impl Inner {
    fn holding(&self) -> std::sync::MutexGuard<'_, LeaseSessions> {
        self.holding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, message: Message<'_>) {
        tell(&self.listener, message);
    }

    /// The session for locks that are held for `ttl`.
    pub(crate) fn link(&self, ttl: Duration) -> Result<Arc<ManagedSession>, Fault> {
        let asked = session_for(ttl);
        let mut holding = self.holding();
        holding.check(ttl)?;
        let fits =
            |link: &&Arc<ManagedSession>| link.asked >= asked && link.asked <= asked.mul_f32(1.25);
        if let Some(link) = holding.links.iter().filter(fits).min_by_key(|link| link.asked) {
            return Ok(link.clone());
        }
        let link = ManagedSession::start(&self.shared, asked, &self.handle, (self.watch)());
        holding.links.push(link.clone());
        self.record.is_used();
        Ok(link)
    }

    /// That session once it is there, if it lasts as long as it has to.
    pub(crate) async fn live(
        &self,
        link: &ManagedSession,
        ttl: Duration,
    ) -> Result<LiveSession, Fault> {
        let live = link.live().await?;
        let (granted, asked) = (live.timeout, link.asked);
        if granted >= asked && granted <= asked.mul_f32(1.25) {
            return Ok(live);
        }
        let mut holding = self.holding();
        if granted < asked {
            holding.longest = Some(granted);
        } else {
            holding.shortest = Some(granted);
        }
        holding.check(ttl)?;
        Ok(live)
    }
}

impl LeaseSessions {
    /// Whether the servers have sessions for such leases, as far as that is known.
    fn check(&self, ttl: Duration) -> Result<(), Fault> {
        let asked = session_for(ttl);
        if let Some(longest) = self.longest.filter(|longest| *longest < asked) {
            return Err(Fault::unsupported(format!(
                "ttl, min_hold: these servers' sessions last {longest:?} at most (maxSessionTimeout), which is enough \
                 for {:?}; a lock is renewed while it is held",
                lease_of(longest)
            )));
        }
        if let Some(shortest) = self.shortest.filter(|shortest| *shortest > asked.mul_f32(1.25)) {
            return Err(Fault::unsupported(format!(
                "ttl: these servers' sessions last {shortest:?} at least (minSessionTimeout), and so long a lock \
                 outlives a holder that dies; give a ttl of {:?} or more",
                lease_of(shortest)
            )));
        }
        Ok(())
    }
}

/// How long a session has to last for a lease. A server reports only twice a tick to the leader which
/// sessions are alive, and a session is two ticks at least: if that server dies, a quarter may be missing.
fn session_for(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from((ttl.as_millis() * 4).div_ceil(3)).unwrap_or(u64::MAX))
}

/// The longest lease of a session.
pub(crate) fn lease_of(session: Duration) -> Duration {
    session * 3 / 4
}

fn tell(listener: &OnceLock<Listener>, message: Message<'_>) {
    if let Some(listener) = listener.get() {
        listener(message);
    }
}

/// Gives back what is kept longer than it may: locks whose lease has ended while their process goes on.
async fn give_back(inner: Arc<Inner>) {
    loop {
        let place = inner.places.over().await;
        let inner = inner.clone();
        tokio::spawn(async move {
            while inner.free(&place).await.is_err() {
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
}
