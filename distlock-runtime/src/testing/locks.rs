//! The store of one test, and everything that the test does to it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::key::LockKey;
use distlock_core::limit::Limit;
use distlock_core::name::{Label, LockName};

use super::backing::{Backing, Real, VARIABLE, resume};
use super::condition::Condition;
use super::faults::FaultState;
use super::history::History;
use super::record::{HoldRecord, HoldRecorder};
use super::replica::Replica;
use super::server::VirtualServer;
use crate::builder::LockManagerBuilder;
use crate::error::BackendKind;
use crate::manager::LockManager;
use crate::namespace::Namespace;

/// A store for one test, which the test can break; see the [module](super).
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::testing::Locks;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = Locks::new();
/// let held = locks.replica("a").manager().lock("order:7").acquire().await?;
/// assert!(locks.replica("b").manager().lock("order:7").acquire().await.is_err());
/// drop(held);
/// # Ok(())
/// # }
/// ```
///
/// Clones are the same store.
#[derive(Clone)]
pub struct Locks {
    shared: Arc<SharedStore>,
}

/// The state that clones share.
struct SharedStore {
    backing: Arc<Backing>,
    record: Arc<HoldRecord>,
    /// The faults of the store for all processes.
    state: Arc<FaultState>,
    replicas: Mutex<Vec<Replica>>,
    /// The number of tokens of locks that are held elsewhere.
    issued: AtomicU64,
}

/// The limit of permits that are held elsewhere. The limit of the call that asks for one more decides.
const ANY_PERMITS: Limit = match Limit::permits(u32::MAX) {
    Some(limit) => limit,
    None => Limit::READ,
};

impl Locks {
    /// Makes a store of its own, in which nothing is held.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let (one, other) = (Locks::new(), Locks::new());
    /// let _held = one.manager().lock("order:7").acquire().await?;
    /// assert!(other.manager().lock("order:7").acquire().await.is_ok(), "tests share nothing");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with a clock: call it in a `#[tokio::test]`.
    #[allow(clippy::new_without_default)] // It needs a runtime.
    pub fn new() -> Self {
        Self::of(Backing::Memory(Arc::new(VirtualServer::new(true))))
    }

    /// Makes a store that grants every lock to every replica at once, so that a test can show that it is able to
    /// fail. Calls of one replica still take turns, because they ask no store.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::broken();
    /// let _one = locks.replica("a").manager().lock("k").acquire().await?;
    /// let _other = locks.replica("b").manager().lock("k").acquire().await?;
    /// let red = std::panic::catch_unwind(|| locks.assert_never_together("k"));
    /// assert!(red.is_err());
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn broken() -> Self {
        Self::of(Backing::Memory(Arc::new(VirtualServer::new(false))))
    }

    /// Makes a store on the server that `DISTLOCK_TEST_URL` names, under a random prefix of this call's own. Without
    /// the variable it is in memory, as [`new`](Self::new). So the same tests run on both:
    ///
    /// ```text
    /// cargo test
    /// DISTLOCK_TEST_URL=redis://127.0.0.1:6379 cargo test
    /// ```
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::from_env();
    /// let guard = locks.replica("a").manager().lock("order:7").acquire().await?;
    /// assert!(locks.lose("order:7"));
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// locks.assert_never_together("order:7");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A server's time cannot be paused. With a server, a paused clock of the test is resumed, and every lease, wait
    /// and `sleep` takes its real time: choose short ones for such tests. The methods of this type work as in
    /// memory, with these differences:
    ///
    /// - The locks of a replica that was [killed](super::Replica::kill) are free when their leases end, which
    ///   is at most one `ttl` later, and not exactly one.
    /// - [`lose`](Self::lose) and [`held_elsewhere`](Self::held_elsewhere) ask the server, and block the
    ///   test's thread until it has answered.
    /// - A `prefix` of a request, or of the attribute, is used unchanged: such a lock is the same in all tests.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime; if the variable's value cannot be used, or the server does not answer.
    pub fn from_env() -> Self {
        let url = match std::env::var(VARIABLE) {
            Ok(url) if !url.is_empty() && url != "memory://" => url,
            Ok(_) | Err(std::env::VarError::NotPresent) => return Self::new(),
            Err(error) => panic!("{VARIABLE}: {error}"),
        };
        match Real::connect(url) {
            Ok(real) => {
                resume();
                Self::of(Backing::Real(real))
            }
            Err(error) => panic!(
                "{VARIABLE}: {error}; start that server, or unset the variable to test in memory"
            ),
        }
    }

    /// Returns the process of this name, with a manager of its own and the defaults of
    /// [`LockManager::builder`]. The first call starts it.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let (a, b) = (locks.replica("a"), locks.replica("b"));
    /// let _held = a.manager().lock("order:7").acquire().await?;
    /// assert!(b.manager().lock("order:7").acquire().await.unwrap_err().is_busy());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn replica(&self, name: &str) -> Replica {
        self.replica_with(name, |builder| builder)
    }

    /// Returns the process of this name, as [`replica`](Self::replica), with other settings of the builder: `prefix`,
    /// `ttl`, `wait` and so on. The settings of the first call for a name count.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let hasty = locks.replica_with("a", |builder| builder.ttl(Duration::from_secs(2)));
    /// let guard = hasty.manager().lock("order:7").acquire().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or if a setting cannot be used.
    pub fn replica_with(
        &self,
        name: &str,
        set: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> Replica {
        if let Some(replica) = self.replicas().iter().find(|replica| replica.name() == name) {
            return replica.clone();
        }
        let replica = self.start(name, set(LockManager::builder()));
        self.replicas().push(replica.clone());
        replica
    }

    /// Returns the manager of the replica `one`, for tests that need no second replica.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = distlock::testing::Locks::new();
    /// locks.manager().lock("order:7").run(async {}).await?;
    /// assert_eq!(locks.history("order:7").replicas(), ["one"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`replica`](Self::replica).
    pub fn manager(&self) -> LockManager {
        self.replica("one").manager()
    }

    /// Waits until a call or a guard holds the lock. A test waits for this instead of for a time.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let lock = locks.manager().lock("order:7");
    /// let body = tokio::spawn(lock.run(async { tokio::time::sleep(Duration::from_secs(9)).await }));
    /// locks.until_held("order:7").await;
    /// assert!(!body.is_finished());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the lock is not held within an hour of tokio's clock, which takes no time if it is paused. On a server, within
    /// a minute.
    pub async fn until_held(&self, key: impl Into<LockKey>) {
        let key = key.into();
        let held = async {
            loop {
                let mut changed = std::pin::pin!(self.shared.record.changed());
                // Listens before it looks, so that it misses nothing in between.
                changed.as_mut().enable();
                if self.shared.record.is_held(key.as_str()) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(self.shared.backing.patience(), held).await.is_err() {
            panic!(
                "until_held: nobody has held {:?}, however long it was waited for",
                key.as_str()
            );
        }
    }

    /// Takes a lock away from its holder, which is notified at once: a body under it is not polled again,
    /// and its call returns `Lost`. The next waiter gets the lock. Returns whether it was held.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let guard = locks.manager().lock("order:7").acquire().await?;
    /// assert!(locks.lose("order:7"));
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn lose(&self, key: impl Into<LockKey>) -> bool {
        let key = key.into();
        let mut lost = false;
        for lock in self.named(&key) {
            for token in self.shared.backing.take(&lock) {
                lost = true;
                for replica in self.replicas().clone() {
                    replica.loses(lock.stored(), &token);
                }
            }
        }
        lost
    }

    /// Makes the store unreachable for all processes, until the returned value is dropped. Leases that are not renewed
    /// for their `ttl` are lost, as with a server that is down.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// use std::time::Duration;
    ///
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let guard = locks.manager().lock("k").ttl(Duration::from_secs(10)).acquire().await?;
    /// let _down = locks.down();
    /// guard.lost().await;
    /// assert!(!guard.is_held());
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    pub fn down(&self) -> Condition {
        self.shared.state.goes_down();
        let (state, backing) = (self.shared.state.clone(), self.shared.backing.clone());
        Condition::until(move || {
            state.comes_up();
            backing.interrupt();
        })
    }

    /// Delays every answer of the store by this time, until the returned value is dropped. Commands are carried out at
    /// once: an answer that is later than `command_timeout` is a `Backend` error, and the caller does not know that the
    /// command was carried out.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let _slow = locks.slow(Duration::from_secs(2)); // the `command_timeout` is one
    /// let error = locks.manager().lock("order:7").acquire().await.unwrap_err();
    /// assert_eq!(error.code(), "lock-store-unavailable");
    /// # Ok(())
    /// # }
    /// ```
    pub fn slow(&self, by: Duration) -> Condition {
        let before = self.shared.state.slow_down(by);
        let state = self.shared.state.clone();
        Condition::until(move || {
            state.slow_down(before);
        })
    }

    /// Makes the store refuse everything with this kind of failure, until the returned value is dropped.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    /// use distlock::{BackendKind, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let _full = locks.refuse(BackendKind::OutOfMemory);
    /// let error = locks.manager().lock("order:7").acquire().await.unwrap_err();
    /// assert!(matches!(error, LockError::Backend { kind: BackendKind::OutOfMemory, .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn refuse(&self, kind: BackendKind) -> Condition {
        let before = self.shared.state.refuse(Some(kind));
        let state = self.shared.state.clone();
        Condition::until(move || {
            state.refuse(before);
        })
    }

    /// Holds the lock for another process, until the returned value is dropped: calls find it busy, or wait.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let held = locks.held_elsewhere("k");
    /// assert!(locks.manager().lock("k").acquire().await.unwrap_err().is_busy());
    /// held.end();
    /// locks.manager().lock("k").acquire().await?.release().await?;
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// If the lock is held already, or the key cannot be used.
    #[track_caller]
    pub fn held_elsewhere(&self, key: impl Into<LockKey>) -> Condition {
        self.elsewhere("held_elsewhere", &key.into(), Limit::ALONE, 1)
    }

    /// Holds the lock for a reader in another process, until the returned value is dropped: calls with `mode = read` hold
    /// it as well, and writers find it busy, or wait.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::LockMode;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let _read = locks.read_elsewhere("k");
    /// let lock = || locks.manager().lock("k");
    /// assert!(lock().mode(LockMode::Write).acquire().await.unwrap_err().is_busy());
    /// lock().mode(LockMode::Read).acquire().await?.release().await?;
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// If the lock is held alone, or the key cannot be used.
    #[track_caller]
    pub fn read_elsewhere(&self, key: impl Into<LockKey>) -> Condition {
        self.elsewhere("read_elsewhere", &key.into(), Limit::READ, 1)
    }

    /// Holds this number of permits for other processes, until the returned value is dropped: calls with more `permits`
    /// get the lock as well, and others find it busy, or wait.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let _out = locks.permits_elsewhere("k", 4);
    /// let lock = || locks.manager().lock("k").permits(5);
    /// let _fifth = lock().acquire().await?;
    /// assert!(lock().acquire().await.unwrap_err().is_busy());
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// If the lock is held alone, or the key cannot be used.
    #[track_caller]
    pub fn permits_elsewhere(&self, key: impl Into<LockKey>, count: u32) -> Condition {
        self.elsewhere("permits_elsewhere", &key.into(), ANY_PERMITS, count)
    }

    /// Returns the holders of the lock so far, in order. Calls that were refused, and
    /// [`held_elsewhere`](Self::held_elsewhere), are not among them.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::{Ended, Locks};
    ///
    /// let locks = Locks::new();
    /// locks.replica("a").manager().lock("k").name("report").run(async {}).await?;
    /// let history = locks.history("k");
    /// assert_eq!((history.names(), history.replicas()), (vec!["report"], vec!["a"]));
    /// assert_eq!(history[0].ended, Some(Ended::Released));
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    pub fn history(&self, key: impl Into<LockKey>) -> History {
        self.shared.record.history(key.into().as_str())
    }

    /// Asserts that from the beginning of the test until now, no two calls that exclude each other were in a body under
    /// this lock, or had a guard of it, at once: nobody beside an exclusive holder, and no more calls than permits.
    /// Readers may be together.
    ///
    /// A body counts from its first poll to its last, also if its lease was lost in between; a guard counts while its
    /// lease lasts. Use [`most_together`](Self::most_together) to check that readers were in fact together.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let lock = |replica| locks.replica(replica).manager().lock("k").wait(Duration::from_secs(60));
    /// let body = || tokio::time::sleep(Duration::from_secs(7));
    /// let (one, other) = tokio::join!(lock("a").run(body()), lock("b").run(body()));
    /// assert!(one.is_ok() && other.is_ok());
    /// locks.assert_never_together("k");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If there were such calls, or if the lock was never held, so that the test shows nothing.
    #[track_caller]
    pub fn assert_never_together(&self, key: impl Into<LockKey>) {
        let key = key.into();
        let record = &self.shared.record;
        let never = record.history(key.as_str()).is_empty();
        assert!(!never, "assert_never_together: nobody has ever held {:?}", key.as_str());
        let together = record.too_many(key.as_str());
        if !together.is_empty() {
            let (count, key) = (together.len(), key.as_str());
            let together: String = together.iter().map(|held| format!("\n  {held:?}")).collect();
            panic!("{count} had {key:?} at once, one of which excludes the others:{together}");
        }
    }

    /// Returns the largest number of calls that were in a body under this lock, or had a guard of it, at once.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::LockMode;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let read = |replica: &str| locks.replica(replica).manager().lock("k").mode(LockMode::Read);
    /// let both = (read("a").acquire().await?, read("b").acquire().await?);
    /// drop(both);
    /// locks.assert_never_together("k");
    /// assert_eq!(locks.most_together("k"), 2);
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    pub fn most_together(&self, key: impl Into<LockKey>) -> usize {
        self.shared.record.most_together(key.into().as_str())
    }
}

impl Locks {
    fn of(backing: Backing) -> Self {
        let shared = SharedStore {
            backing: Arc::new(backing),
            record: Arc::new(HoldRecord::new()),
            state: Arc::default(),
            replicas: Mutex::default(),
            issued: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    fn start(&self, name: &str, builder: LockManagerBuilder) -> Replica {
        let state = Arc::new(FaultState::default());
        let states = vec![state.clone(), self.shared.state.clone()];
        let record = self.shared.record.clone();
        let builder =
            builder.probed_by(Arc::new(HoldRecorder { replica: name.to_owned(), record }));
        let backing = self.shared.backing.clone();
        match backing.manager(builder, states) {
            Ok(manager) => Replica { name: name.into(), manager, state, backing },
            Err(error) => panic!("testing::Locks: {error}"),
        }
    }

    #[track_caller]
    fn elsewhere(&self, what: &str, key: &LockKey, limit: Limit, count: u32) -> Condition {
        let locks = self.named(key);
        let mut held = Vec::new();
        for _ in 0..count {
            let token = format!("elsewhere.{}", self.shared.issued.fetch_add(1, Ordering::Relaxed));
            for lock in &locks {
                let Some(let_go) = self.shared.backing.hold(lock, &token, limit) else {
                    panic!("{what}: {:?} is held already", key.as_str());
                };
                held.push(let_go);
            }
        }
        Condition::until(move || held.into_iter().for_each(|let_go| let_go()))
    }

    /// Returns the names of the lock of a key, one for each prefix of the replicas.
    #[track_caller]
    fn named(&self, key: &LockKey) -> Vec<Arc<LockName>> {
        let mut namespaces: Vec<Namespace> = Vec::new();
        for replica in self.replicas().iter() {
            let namespace = &replica.manager.locks().namespace;
            if namespaces.iter().all(|known| known.prefix() != namespace.prefix()) {
                namespaces.push(namespace.clone());
            }
        }
        if namespaces.is_empty() {
            namespaces.extend(Namespace::new(&self.shared.backing.prefix()));
        }
        let names = namespaces.iter().map(|namespace| {
            match namespace.name(Label::Given("test".into()), key.clone()) {
                Ok(name) => name,
                Err(error) => panic!("testing::Locks: {error}"),
            }
        });
        names.collect()
    }

    fn replicas(&self) -> MutexGuard<'_, Vec<Replica>> {
        self.shared.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("replicas", &*self.replicas()).finish_non_exhaustive()
    }
}
