//! Locks as they stand in the store, and the processes that hold them and wait.

use std::collections::{BTreeMap, HashMap, HashSet};

use distlock::__console::Walked;
use distlock::LockManager;

use super::held::Held;
use super::process::Process;
use crate::failure::Failure;
use crate::store::Named;

/// The locks of a store.
pub(crate) struct Locks<'a> {
    pub(crate) manager: &'a LockManager,
    /// The prefix as it stands in names.
    names: String,
}

/// The locks that were found.
#[derive(Default)]
pub(crate) struct Found {
    /// Sorted by key.
    pub(crate) held: Vec<Held>,
    /// There are more.
    pub(crate) more: bool,
    /// Nodes whose locks are missing, and why.
    pub(crate) missed: Vec<(String, String)>,
}

/// Where a walk begins.
pub(crate) const START: &str = "";
/// How many locks are asked after at once.
const TOGETHER: usize = 1000;

impl<'a> Locks<'a> {
    pub(crate) fn of(store: &Named, manager: &'a LockManager) -> Result<Self, Failure> {
        if !store.is_shared() {
            let text = "memory:// locks are seen by their own process alone; name a server";
            return Err(Failure::usage(text));
        }
        Ok(Self { manager, names: store.names() })
    }

    /// Those that are held whose keys fit, at most `limit`.
    pub(crate) async fn held(
        &self,
        fits: impl Fn(&str) -> bool,
        limit: usize,
    ) -> Result<Found, Failure> {
        let mut held: BTreeMap<String, Held> = BTreeMap::new();
        let mut found = Found::default();
        let mut cursor = START.to_owned();
        loop {
            let Walked { names, next, missed, .. } = self.manager.walk(&cursor).await?;
            found.missed.extend(missed);
            let wanted = names.into_iter().filter(|name| {
                self.key_of(name).is_some_and(|key| fits(&key) && !held.contains_key(&key))
            });
            let wanted: Vec<String> = wanted.collect();
            for one in self.look(&wanted).await? {
                held.insert(one.key.clone(), one);
            }
            match next {
                Some(next) if held.len() <= limit => cursor = next,
                _ => break,
            }
        }
        found.more = held.len() > limit;
        found.held = held.into_values().take(limit).collect();
        self.introduce(found.held.iter_mut().flat_map(|held| &mut held.holders)).await;
        Ok(found)
    }

    /// The holder of one, and the processes that wait, in order.
    pub(crate) async fn one_held(
        &self,
        key: &str,
    ) -> Result<Option<(Held, Vec<Process>)>, Failure> {
        let name = self.manager.stored_name(key)?;
        let Some((glance, queue)) = self.manager.look_at(key).await? else { return Ok(None) };
        let mut held = Held::of(key.to_owned(), &name, glance);
        let mut seen = HashSet::new();
        let waiting = queue.into_iter().map(|owning| Process::unknown(owning.process));
        // A process may stand there more than once.
        let mut waiting: Vec<Process> =
            waiting.filter(|process| seen.insert(process.id.clone())).collect();
        self.introduce(waiting.iter_mut().chain(&mut held.holders)).await;
        Ok(Some((held, waiting)))
    }

    /// Those of these names that are held now.
    pub(crate) async fn look(&self, names: &[String]) -> Result<Vec<Held>, Failure> {
        let mut held = Vec::new();
        for names in names.chunks(TOGETHER) {
            for (name, seen) in names.iter().zip(self.manager.look(names).await?) {
                let Some((key, seen)) = self.key_of(name).zip(seen) else { continue };
                held.push(Held::of(key, name, seen));
            }
        }
        Ok(held)
    }

    /// Adds what processes say of themselves.
    pub(crate) async fn introduce(&self, processes: impl Iterator<Item = &mut Process>) {
        let processes: Vec<&mut Process> = processes.collect();
        let mut ids: Vec<String> = processes.iter().map(|process| process.id.clone()).collect();
        ids.sort();
        ids.dedup();
        if ids.is_empty() {
            return;
        }
        // Locks are shown without that, too.
        let known = self.manager.known(ids).await.unwrap_or_default().into_iter();
        let known: HashMap<_, _> = known.map(|process| (process.id.clone(), process)).collect();
        for process in processes {
            process.known = known.get(&process.id).cloned();
        }
    }

    fn key_of(&self, name: &str) -> Option<String> {
        let tagged = name.strip_prefix(&self.names)?.strip_prefix("lock:")?;
        // A key that brings a hash tag of its own stands behind a second colon, without braces.
        let key = match tagged.strip_prefix(':') {
            Some(key) => key,
            None => tagged.strip_prefix('{')?.strip_suffix('}')?,
        };
        Some(key.to_owned())
    }
}
