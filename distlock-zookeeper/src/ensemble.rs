//! One ensemble: its sessions, and the tokens of this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use distlock_core::store::contention::Contention;
use distlock_core::store::{BackendKind, Fault};
use tokio::runtime::Handle;

use crate::nodes::{self, LockChildren};
use crate::process_record::ProcessRecord;
use crate::session::{EnsembleConfig, LiveSession, ManagedSession};
use crate::waiters::LocalTokens;
use crate::wire::ZooKeeperError;

/// How long a dead waiter keeps its place in the queue, unless the servers' shortest session is longer. A waiter that
/// is cut off for longer gets its place back when it returns.
const WAITING: Duration = Duration::from_secs(4);

/// The sessions with one ensemble, and the tokens of this process. A session is created on first use.
pub(crate) struct Ensemble {
    pub(crate) config: Arc<EnsembleConfig>,
    /// The session of waiters, which is short.
    pub(crate) waiting: Arc<ManagedSession>,
    /// The sessions of holders.
    leases: Mutex<LeaseSessions>,
    pub(crate) tokens: LocalTokens,
    pub(crate) record: Arc<ProcessRecord>,
    pub(crate) contention: Contention,
    pub(crate) handle: Handle,
}

/// The sessions of holders, each for leases of some length.
#[derive(Default)]
struct LeaseSessions {
    sessions: Vec<Arc<ManagedSession>>,
    /// The timeout that the servers granted when a longer one was asked for.
    longest: Option<Duration>,
    /// The timeout that the servers granted when a shorter one was asked for.
    shortest: Option<Duration>,
}

impl Ensemble {
    /// Starts the session of waiters on a runtime with timers.
    pub(crate) fn start(config: EnsembleConfig, handle: &Handle) -> Arc<Self> {
        let config = Arc::new(config);
        let waiting = ManagedSession::start(&config, WAITING, handle);
        Arc::new(Self {
            record: ProcessRecord::new(waiting.clone()),
            waiting,
            config,
            leases: Mutex::default(),
            tokens: LocalTokens::default(),
            contention: Contention::none(),
            handle: handle.clone(),
        })
    }

    fn leases(&self) -> MutexGuard<'_, LeaseSessions> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns since when a session is not connected, and why. `None` if every session that was used is connected.
    pub(crate) fn outage(&self) -> Option<(Instant, Fault)> {
        let sessions = self.leases().sessions.clone();
        let sessions = sessions.iter().chain([&self.waiting]);
        sessions.filter_map(|session| session.outage()).min_by_key(|(since, _)| *since)
    }

    /// Returns the session for leases of this length.
    pub(crate) fn session_for(&self, ttl: Duration) -> Result<Arc<ManagedSession>, Fault> {
        let asked = session_timeout(ttl);
        let mut leases = self.leases();
        leases.check(ttl)?;
        let fits = |session: &&Arc<ManagedSession>| is_about(session.asked, asked);
        let fitting = leases.sessions.iter().filter(fits);
        if let Some(session) = fitting.min_by_key(|session| session.asked) {
            return Ok(session.clone());
        }
        let session = ManagedSession::start(&self.config, asked, &self.handle);
        leases.sessions.push(session.clone());
        self.record.is_used();
        Ok(session)
    }

    /// Waits until a session of [`session_for`](Self::session_for) is connected. Fails if the servers do not allow its
    /// timeout.
    pub(crate) async fn live(
        &self,
        session: &ManagedSession,
        ttl: Duration,
    ) -> Result<LiveSession, Fault> {
        let live = session.live().await?;
        let (granted, asked) = (live.timeout, session.asked);
        if is_about(granted, asked) {
            return Ok(live);
        }
        let mut leases = self.leases();
        if granted < asked {
            leases.longest = Some(granted);
        } else {
            leases.shortest = Some(granted);
        }
        leases.check(ttl)?;
        Ok(live)
    }

    /// Returns the node of a lock.
    pub(crate) fn directory(&self, name: &str) -> Result<String, Fault> {
        nodes::directory(&self.config.root, name).ok_or_else(|| {
            unsupported("the key is too long: a node of ZooKeeper has 8000 bytes for it")
        })
    }

    /// Reads the current holders and waiters of a lock.
    pub(crate) async fn children(
        &self,
        live: &LiveSession,
        directory: &str,
    ) -> Result<LockChildren, Fault> {
        let synced = live.client.sync(&self.config.root);
        let children = live.client.children(directory);
        synced.await?;
        match children.await {
            Ok(children) => Ok(LockChildren::of(children)),
            Err(ZooKeeperError::NoNode) => Ok(LockChildren::default()),
            Err(error) => Err(error.into()),
        }
    }
}

impl LeaseSessions {
    /// Checks that the servers allow sessions for leases of this length, as far as that is known.
    fn check(&self, ttl: Duration) -> Result<(), Fault> {
        let asked = session_timeout(ttl);
        if let Some(longest) = self.longest.filter(|longest| *longest < asked) {
            return Err(unsupported(format!(
                "ttl, min_hold: these servers' sessions last {longest:?} at most (maxSessionTimeout), which is enough \
                 for {:?}; a lock is renewed while it is held",
                lease_of(longest)
            )));
        }
        if let Some(shortest) = self.shortest.filter(|shortest| *shortest > asked.mul_f32(1.25)) {
            return Err(unsupported(format!(
                "ttl: these servers' sessions last {shortest:?} at least (minSessionTimeout), and so long a lock \
                 outlives a holder that dies; give a ttl of {:?} or more",
                lease_of(shortest)
            )));
        }
        Ok(())
    }
}

/// Returns whether a timeout is what is asked for, or at most a quarter more.
fn is_about(timeout: Duration, asked: Duration) -> bool {
    timeout >= asked && timeout <= asked.mul_f32(1.25)
}

/// Returns the timeout of a session for leases of this length. A server tells the leader only twice in a tick which
/// sessions are alive, and a session lasts two ticks at least. If that server dies, a quarter of the timeout may be
/// missing.
fn session_timeout(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from((ttl.as_millis() * 4).div_ceil(3)).unwrap_or(u64::MAX))
}

/// Returns the longest lease of a session with this timeout.
pub(crate) fn lease_of(timeout: Duration) -> Duration {
    timeout * 3 / 4
}

/// Returns the fault of a request that these servers never grant.
fn unsupported(words: impl Into<Arc<str>>) -> Fault {
    Fault::lasting(BackendKind::Other, words)
}
