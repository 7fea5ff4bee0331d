//! A scenario's parameters, and what an exhaustive run remembers: the same happens to the same process in
//! very many states, and what it leads to is worked out once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use crate::config::Config;
use crate::driver::{Input, Process, Shared, Started, Turn};
use crate::fingerprint::{Mixer, fingerprint};
use crate::invariants::Invariant;
use crate::names::{Names, Renaming};

/// Past so many processes all is forgotten, which may be worked out again: they take some gigabytes.
const MOST: usize = 600_000;

/// What a world goes by.
#[derive(Debug)]
pub(crate) struct Setting {
    cfg: Config,
    memory: Option<RefCell<Memory>>,
    /// Room for the names of one state.
    pub(crate) names: RefCell<Names>,
}

/// What something has led to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) process: Shared,
    /// The bodies that it has started.
    pub(crate) started: Rc<[Started]>,
    /// An invariant about a step that was violated.
    pub(crate) broken: Option<Invariant>,
}

/// By fingerprints.
type Known<T> = HashMap<u64, T, BuildHasherDefault<Mixer>>;

#[derive(Debug, Default)]
struct Memory {
    /// What something leads to that happens to a process.
    outcomes: Known<Outcome>,
    /// A process without what it need not know any more.
    settled: Known<Shared>,
    /// A process under other names.
    renamed: Known<Shared>,
    /// Every process that has its names.
    named: Known<Shared>,
}

impl Deref for Setting {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.cfg
    }
}

impl Setting {
    /// For one history.
    pub(crate) fn new(cfg: Config) -> Self {
        Self { cfg, memory: None, names: RefCell::default() }
    }

    /// For every state there is.
    pub(crate) fn with_memory(cfg: Config) -> Self {
        Self { cfg, memory: Some(RefCell::default()), names: RefCell::default() }
    }

    /// Something happens to a process in this tick.
    pub(crate) fn happens(
        &self,
        process: &mut Shared,
        epoch: u32,
        input: Input,
    ) -> (Rc<[Started]>, Option<Invariant>) {
        let Some(memory) = &self.memory else {
            let (started, broken) = self.turn(process.change(), epoch, input);
            return (started.into(), broken);
        };
        let key = fingerprint(&(process.fingerprint(), epoch, &input));
        if let Some(Outcome { process: after, started, broken }) =
            memory.borrow().outcomes.get(&key)
        {
            *process = after.clone();
            return (started.clone(), *broken);
        }
        let (started, broken) = self.turn(process.change(), epoch, input);
        let started: Rc<[Started]> = started.into();
        let outcome = Outcome { process: process.clone(), started: started.clone(), broken };
        memory.borrow_mut().outcomes.insert(key, outcome);
        (started, broken)
    }

    fn turn(
        &self,
        process: &mut Process,
        epoch: u32,
        input: Input,
    ) -> (Vec<Started>, Option<Invariant>) {
        let (mut started, mut broken) = (Vec::new(), None);
        let mut turn =
            Turn { cfg: self, process, epoch, started: &mut started, broken: &mut broken };
        turn.on_input(input);
        (started, broken)
    }

    /// A process forgets what is of no use any more, and it is seen what it mentions.
    pub(crate) fn settle(&self, process: &mut Shared) {
        let Some(memory) = &self.memory else { return process.change().forget() };
        let key = process.fingerprint();
        if let Some(settled) = memory.borrow().settled.get(&key) {
            *process = settled.clone();
            return;
        }
        let mut settled = Process::clone(process);
        settled.forget();
        *process = Shared::settled(settled);
        memory.borrow_mut().settled.insert(key, process.clone());
    }

    /// A process gets its names.
    pub(crate) fn rename(&self, process: &mut Shared, names: Renaming<'_>) {
        let Some(memory) = &self.memory else {
            *process = names.renamed(process);
            return;
        };
        let mut key = Mixer::default();
        process.fingerprint().hash(&mut key);
        names.of(process, |name| name.hash(&mut key));
        let key = key.finish();
        if let Some(renamed) = memory.borrow().renamed.get(&key) {
            *process = renamed.clone();
            return;
        }
        let mut memory = memory.borrow_mut();
        if memory.named.len() > MOST {
            *memory = Memory::default();
        }
        let renamed = names.renamed(process);
        let own = memory.named.entry(renamed.fingerprint()).or_insert(renamed).clone();
        memory.renamed.insert(key, own.clone());
        *process = own;
    }
}
