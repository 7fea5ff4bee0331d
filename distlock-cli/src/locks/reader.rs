//! Reads locks from a store, and the records of the processes that hold them or wait.

use std::collections::{BTreeMap, HashMap, HashSet};

use distlock::LockManager;

use super::held::HeldLock;
use super::process::ClientProcess;
use crate::admin::Walked;
use crate::exit::Failure;
use crate::store::StoreConfig;

/// A reader of the locks of one store.
pub(crate) struct LockReader<'a> {
    pub(crate) manager: &'a LockManager,
    /// The prefix with its separator, with which names in the store begin.
    name_prefix: String,
}

/// The locks that a scan of the store found.
#[derive(Default)]
pub(crate) struct LockList {
    /// The locks, sorted by key.
    pub(crate) locks: Vec<HeldLock>,
    /// Whether more locks are held than the limit allows.
    pub(crate) has_more: bool,
    /// Nodes whose locks are missing, and why.
    pub(crate) missed: Vec<(String, String)>,
}

/// The cursor at the beginning of a scan.
pub(crate) const START: &str = "";
/// The store is asked for at most this many locks at once.
const BATCH: usize = 1000;

impl<'a> LockReader<'a> {
    pub(crate) fn new(store: &StoreConfig, manager: &'a LockManager) -> Result<Self, Failure> {
        if !store.is_shared() {
            let text = "memory:// locks are seen by their own process alone; name a server";
            return Err(Failure::usage(text));
        }
        Ok(Self { manager, name_prefix: store.name_prefix() })
    }

    /// Lists at most `limit` held locks whose keys are wanted.
    pub(crate) async fn list(
        &self,
        is_wanted: impl Fn(&str) -> bool,
        limit: usize,
    ) -> Result<LockList, Failure> {
        let mut held: BTreeMap<String, HeldLock> = BTreeMap::new();
        let mut list = LockList::default();
        let mut cursor = START.to_owned();
        loop {
            let Walked { names, next, missed, .. } = self.manager.walk(&cursor).await?;
            list.missed.extend(missed);
            let wanted = names.into_iter().filter(|name| {
                self.key_of(name).is_some_and(|key| is_wanted(&key) && !held.contains_key(&key))
            });
            let wanted: Vec<String> = wanted.collect();
            for (_, lock) in self.read_names(&wanted).await? {
                held.insert(lock.key.clone(), lock);
            }
            match next {
                Some(next) if held.len() <= limit => cursor = next,
                _ => break,
            }
        }
        list.has_more = held.len() > limit;
        list.locks = held.into_values().take(limit).collect();
        self.identify(list.locks.iter_mut().flat_map(|lock| &mut lock.holders)).await;
        Ok(list)
    }

    /// Reads one lock, and the processes that wait for it, in order. `None` if the lock is free.
    pub(crate) async fn read(
        &self,
        key: &str,
    ) -> Result<Option<(HeldLock, Vec<ClientProcess>)>, Failure> {
        let Some((glance, queue)) = self.manager.look_at(key).await? else { return Ok(None) };
        let mut held = HeldLock::new(key.to_owned(), glance);
        let mut seen = HashSet::new();
        let waiting = queue.into_iter().map(|owning| ClientProcess::unknown(owning.process));
        // A process may have more than one place in the queue.
        let mut waiting: Vec<ClientProcess> =
            waiting.filter(|process| seen.insert(process.id.clone())).collect();
        self.identify(waiting.iter_mut().chain(&mut held.holders)).await;
        Ok(Some((held, waiting)))
    }

    /// Reads the locks with these names in the store. Returns those that are held, with their names.
    pub(crate) async fn read_names(
        &self,
        names: &[String],
    ) -> Result<Vec<(String, HeldLock)>, Failure> {
        let mut held = Vec::new();
        for names in names.chunks(BATCH) {
            for (name, glance) in names.iter().zip(self.manager.look(names).await?) {
                let Some((key, glance)) = self.key_of(name).zip(glance) else { continue };
                held.push((name.clone(), HeldLock::new(key, glance)));
            }
        }
        Ok(held)
    }

    /// Adds the records that processes keep of themselves in the store.
    pub(crate) async fn identify(&self, processes: impl Iterator<Item = &mut ClientProcess>) {
        let processes: Vec<&mut ClientProcess> = processes.collect();
        let mut ids: Vec<String> = processes.iter().map(|process| process.id.clone()).collect();
        ids.sort();
        ids.dedup();
        if ids.is_empty() {
            return;
        }
        // Ignores errors, because locks are shown without the records as well.
        let records = self.manager.known(ids).await.unwrap_or_default().into_iter();
        let records: HashMap<_, _> = records.map(|record| (record.id.clone(), record)).collect();
        for process in processes {
            process.record = records.get(&process.id).cloned();
        }
    }

    fn key_of(&self, name: &str) -> Option<String> {
        let tagged = name.strip_prefix(&self.name_prefix)?.strip_prefix("lock:")?;
        // A key with its own hash tag follows a second colon, without braces.
        let key = match tagged.strip_prefix(':') {
            Some(key) => key,
            None => tagged.strip_prefix('{')?.strip_suffix('}')?,
        };
        Some(key.to_owned())
    }
}
