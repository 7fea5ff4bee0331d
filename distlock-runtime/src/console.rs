//! What the command-line tool needs beyond locks: to ask a store anything, and to know under which
//! names it keeps what. For that tool of the same version alone: nothing here is stable.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{IntoLockError, LockError};
use crate::home::RefuseFork;
use crate::key::LockKey;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::name::{Label, LockName};
use crate::process::Process;
use crate::store::{self, Fault, Store};
use crate::token::Token;

pub use crate::observe::Calls;
pub use crate::store::admin::{StoreCommand, StoreReply, Walked};

/// What a process counts, and what its locks are called.
#[derive(Debug, Clone)]
pub struct Counted {
    /// Its number among all managers.
    pub process: String,
    /// For how long it has counted.
    pub counted: Duration,
    /// What it has counted by now.
    pub calls: Vec<Calls>,
    /// What locks that it holds are called, and for how long it has held them, by their names in the store.
    pub held: HashMap<String, (String, Duration)>,
}

/// So many processes are asked.
const ASKED: usize = 64;

/// A lock that is held, at a glance.
#[derive(Debug, Clone, Default)]
pub struct Glance {
    /// At least one, unless something is amiss; several hold it together.
    pub holders: Vec<Owning>,
    /// Its holder shares it with no other.
    pub alone: bool,
    /// Until the last lease ends; `None` where one has no end, which no lock of ours is.
    pub remaining: Option<Duration>,
    /// How many places of its queue are taken.
    pub waiting: u64,
    /// Set if the lock cannot be taken or waited for: what is stored in its place, or in that of its queue.
    pub amiss: Option<String>,
}

/// A process that holds a lock or waits for it, as the store has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owning {
    /// Its number among all managers.
    pub process: String,
    /// Another one is another lease.
    pub token: String,
}

impl Owning {
    fn of(token: &str) -> Self {
        let process = token.split('.').next().unwrap_or_default();
        Self { process: process.to_owned(), token: token.to_owned() }
    }
}

impl Glance {
    fn of(seen: &store::admin::Glance) -> Self {
        let is_alone = |holder: &store::Holder| {
            Token::parse(&holder.token).is_none_or(|token| token.limit == store::Limit::ALONE)
        };
        Self {
            holders: seen.holders.iter().map(|holder| Owning::of(&holder.token)).collect(),
            alone: seen.holders.iter().any(is_alone),
            remaining: seen.remaining(),
            waiting: seen.waiting,
            amiss: seen.amiss.clone(),
        }
    }
}

impl LockManager {
    /// The servers of the store that take commands as they are, by their addresses; `None` for one of which that is
    /// not known, none where the store takes no commands.
    #[doc(hidden)]
    pub fn store_nodes(&self) -> Vec<Option<String>> {
        self.locks().store.nodes()
    }

    /// Sends commands to one of the [nodes](Self::store_nodes), or to any, in one write, and returns the answer to
    /// each. All of them are answered within the manager's `command_timeout`.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store did not answer, or takes no commands (locks in
    /// memory, for example).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped early, the commands may or may not have been carried out.
    #[doc(hidden)]
    pub async fn ask_store(
        &self,
        node: Option<&str>,
        commands: Vec<StoreCommand>,
    ) -> Result<Vec<StoreReply>, LockError> {
        let store = self.store()?;
        let asked = store.ask(node.map(str::to_owned), commands, self.limit());
        asked.await.map_err(|fault| fault.into_error(None))
    }

    /// Returns each sentinel's answers about the primary (`SENTINEL MASTER`) and about a failover (`SENTINEL
    /// CKQUORUM`), by the sentinel's address, or a single error. Empty if no sentinels name the primary.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the manager is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn ask_sentinels(&self) -> Result<Vec<(String, Vec<StoreReply>)>, LockError> {
        let asked = self.store()?.sentinels();
        asked.await.map_err(|fault| fault.into_error(None))
    }

    /// The next names of locks of the manager's prefix, from a cursor on. A walk begins with an empty one.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked, or does not list its locks.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn walk(&self, cursor: &str) -> Result<Walked, LockError> {
        let prefix = self.locks().namespace.prefix().to_owned();
        let walked = self.store()?.walk(prefix, cursor.to_owned(), self.limit());
        walked.await.map_err(|fault| fault.into_error(None))
    }

    /// The holders of the locks of these names; `None` for locks that are free, and for names that do not
    /// belong to this prefix.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn look(&self, names: &[String]) -> Result<Vec<Option<Glance>>, LockError> {
        let (store, prefix) = (self.store()?, self.locks().namespace.prefix());
        let named = names.iter().map(|name| LockName::of_stored(prefix, name).map(Arc::new));
        let named: Vec<Option<Arc<LockName>>> = named.collect();
        let locks: Vec<_> = named.iter().flatten().cloned().collect();
        let found = match store.clone().glance(&locks, self.limit()) {
            Some(looked) => looked.await,
            None => one_by_one(&store, &locks, self.limit()).await,
        };
        let mut found = found.map_err(|fault| fault.into_error(None))?.into_iter();
        let glance = |lock: &Option<_>| lock.as_ref().and_then(|_| found.next().flatten());
        let glances: Vec<_> = named.iter().map(glance).collect();
        Ok(glances.iter().map(|seen| seen.as_ref().map(Glance::of)).collect())
    }

    /// The holders of one lock, and its queue, the next waiter first; `None` if it is free.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked;
    /// [`InvalidKey`](LockError::InvalidKey).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn look_at(&self, key: &str) -> Result<Option<(Glance, Vec<Owning>)>, LockError> {
        let lock = self.named(key.into(), "look")?;
        let Some(held) = self.held(&lock).await? else { return Ok(None) };
        let queue = held.queue.iter().map(|token| Owning::of(token)).collect();
        Ok(Some((Glance::of(&held.into()), queue)))
    }

    /// What these processes say of themselves, those that do.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn known(&self, processes: Vec<String>) -> Result<Vec<Process>, LockError> {
        self.recorded(processes).await
    }

    fn store(&self) -> Result<Arc<dyn Store>, LockError> {
        let Locks { table, store, .. } = self.locks();
        table.home().check()?;
        Ok(store.clone())
    }

    /// How often the processes of the manager's prefix take locks, and how long that takes them: they
    /// count from the first such question on, while these go on. Processes that say nothing are missing.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the processes stop counting ten seconds after they were last asked.
    #[doc(hidden)]
    pub async fn counted(&self) -> Result<Vec<Counted>, LockError> {
        let own = self.locks().table.process();
        let processes = self.processes().await?.into_iter().map(|process| process.id);
        let processes: Vec<_> = processes.filter(|id| id != own).take(ASKED).collect();
        let accounts = self.watch(processes).await?;
        let counted = accounts.into_iter().filter_map(|(process, account)| {
            let (counted, calls) = account.counted.clone()?;
            let held = account.held.iter();
            let held = held.map(|held| (held.stored.clone(), (held.name.clone(), held.age)));
            Some(Counted { process, counted, calls, held: held.collect() })
        });
        Ok(counted.collect())
    }

    /// Under which name the store keeps the lock of this key.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`](LockError::InvalidKey).
    #[doc(hidden)]
    pub fn stored_name(&self, key: impl Into<LockKey>) -> Result<String, LockError> {
        let label = Label::Given("stored_name".into());
        let lock = self.locks().namespace.name(label, key.into())?;
        Ok(lock.stored().to_string())
    }
}

/// All at once, for a store that has no quicker way.
async fn one_by_one(
    store: &Arc<dyn Store>,
    locks: &[Arc<LockName>],
    answer_by: Moment,
) -> Result<Vec<Option<store::admin::Glance>>, Fault> {
    let ask = |lock: &Arc<LockName>| store.clone().inspect(lock.clone(), answer_by);
    let mut asked: Vec<_> = locks.iter().map(|lock| (Some(ask(lock)), None)).collect();
    poll_fn(|cx| {
        for (question, answer) in &mut asked {
            if let Some(Poll::Ready(now)) = question.as_mut().map(|asked| asked.as_mut().poll(cx)) {
                (*question, *answer) = (None, Some(now));
            }
        }
        match asked.iter().all(|(question, _)| question.is_none()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    let answers = asked.into_iter().filter_map(|(_, answer)| answer);
    answers.map(|held| Ok(held?.map(Into::into))).collect()
}
