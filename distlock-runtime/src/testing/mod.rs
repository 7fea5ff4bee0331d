//! Tests of code that uses locks: several processes in one test, in virtual time, and every way in
//! which a lock can go wrong at the exact moment that the test wants.
//!
//! ```toml
//! [dev-dependencies]
//! distlock = { version = "0.1", features = ["test-util"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! [`Locks`] is a store in memory that behaves as one on a server. A [`Replica`] is a process that
//! uses it, with a manager of its own. Under `#[tokio::test(start_paused = true)]` all time is tokio's:
//! leases, renewals and waits take as long as they say, and no real time.
//!
//! ```
//! # use distlock_runtime as distlock;
//! use distlock::testing::Locks;
//! use distlock::{LockError, LockManager};
//!
//! async fn pay(locks: LockManager) -> Result<(), LockError> {
//!     let lock = locks.lock("order:7").name("pay");
//!     lock.run(tokio::time::sleep(std::time::Duration::from_secs(60))).await
//! }
//!
//! # fn main() {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
//! # runtime.unwrap().block_on(async {
//! // In a test: #[tokio::test(start_paused = true)]
//! let locks = Locks::new();
//! let paid = tokio::spawn(pay(locks.replica("a").manager()));
//! locks.until_held("order:7").await;
//! assert!(locks.lose("order:7"));
//! assert!(paid.await.unwrap().unwrap_err().is_lost());
//!
//! pay(locks.replica("b").manager()).await.unwrap();
//! locks.assert_never_together("order:7");
//! assert_eq!(locks.history("order:7").names(), ["pay", "pay"]);
//! # });
//! # }
//! ```
//!
//! | error | how a test brings it about |
//! |---|---|
//! | `Busy` | [`Locks::held_elsewhere`], [`Locks::read_elsewhere`], [`Locks::permits_elsewhere`] |
//! | `Lost` | [`Locks::lose`], [`Replica::kill`], or [`Locks::down`] for longer than the `ttl` |
//! | `Backend` | [`Locks::down`], [`Locks::slow`], [`Locks::refuse`], [`Replica::cut_off`] |
//! | `WouldDeadlock` | a call inside the body of the same lock |
//! | `InvalidKey`, `InvalidOption` | an empty key, a `ttl` of zero |
//! | `Closed` | [`LockManager::close`] |
//! | `NotConfigured` | a call without a manager, and without `DISTLOCK_URL` |
//!
//! [`Locks::from_env`] runs the same tests on a real server.
//!
//! With the runtime of `#[tokio::test]`, one thread, the engine runs there as well, in its time. With a
//! `multi_thread` runtime, whose clock cannot be paused, it has a thread of its own and time is real.

mod backing;
mod condition;
mod elsewhere;
#[doc(hidden)]
pub mod faults;
mod from_env;
mod real;
mod record;
mod replica;
mod server;
mod state;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::builder::LockManagerBuilder;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::name::{Label, LockName};
use crate::namespace::Namespace;
use backing::Backing;
use faults::State;
use record::{Record, Recorder};
use server::Server;

pub use condition::Condition;
pub use record::{Ended, Held, History};
pub use replica::Replica;

/// A store for one test, and what the test does to it; see the [module](self).
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
    shared: Arc<Shared>,
}

struct Shared {
    backing: Arc<Backing>,
    record: Arc<Record>,
    /// What is wrong with the store for all processes.
    state: Arc<State>,
    replicas: Mutex<Vec<Replica>>,
    /// Of locks that are held elsewhere.
    issued: AtomicU64,
}

impl Locks {
    /// A store of its own, in which nothing is held.
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
    #[allow(clippy::new_without_default)] // It has a runtime to be made in.
    pub fn new() -> Self {
        Self::of(Backing::Memory(Arc::new(Server::new(true))))
    }

    /// A store that grants every lock to every replica at once: with it a test shows that it can
    /// fail. Calls of one replica still take turns, because no store is asked about those.
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
        Self::of(Backing::Memory(Arc::new(Server::new(false))))
    }

    fn of(backing: Backing) -> Self {
        let shared = Shared {
            backing: Arc::new(backing),
            record: Arc::new(Record::new()),
            state: Arc::default(),
            replicas: Mutex::default(),
            issued: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A process that uses this store, with a manager of its own and the defaults of
    /// [`LockManager::builder`]. Of the same name there is one.
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

    /// The same with other settings: `prefix`, `ttl`, `wait` and the others of the builder. The
    /// settings of the first call for a name count.
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

    /// The manager of a replica, for tests that need no second one: of the one that is called `one`.
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

    fn start(&self, name: &str, builder: LockManagerBuilder) -> Replica {
        let state = Arc::new(State::default());
        let states = vec![state.clone(), self.shared.state.clone()];
        let record = self.shared.record.clone();
        let builder = builder.probed_by(Arc::new(Recorder { replica: name.to_owned(), record }));
        let backing = self.shared.backing.clone();
        match backing.manager(builder, states) {
            Ok(manager) => Replica { name: name.into(), manager, state, backing },
            Err(error) => panic!("testing::Locks: {error}"),
        }
    }

    /// Resolves once a call or a guard holds the lock: a condition to wait for, instead of a time.
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
    /// If it is not held within an hour of tokio's clock, which takes no time if that is paused; on a server
    /// within a minute.
    pub async fn until_held(&self, key: impl Into<LockKey>) {
        let key = key.into();
        let held = async {
            loop {
                let mut changed = std::pin::pin!(self.shared.record.changed());
                // Listens before it looks, or it would miss what happens in between.
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
    /// and its call returns `Lost`. The next one in the queue has it. True if it was held.
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

    /// The lock of a key: once for each prefix that replicas have.
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
