//! A process as a part of many states: copied only when something happens to it, and looked at in whole
//! only then.

use std::cell::OnceCell;
use std::ops::Deref;
use std::rc::Rc;

use super::{Body, Process};
use crate::config::Config;
use crate::fingerprint::fingerprint;
use crate::names::Names;

/// A process that other states may have as well.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Rc<Kept>);

#[derive(Debug)]
struct Kept {
    process: Process,
    /// Everything in it has the name that it gets in the state in which it was named.
    is_named: bool,
    // Worked out when they are asked for.
    names: OnceCell<Names>,
    fingerprint: OnceCell<u64>,
    bodies: OnceCell<Vec<Body>>,
    accounts: OnceCell<bool>,
    is_terminal: OnceCell<bool>,
}

/// A copy is made to be changed.
impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::new(self.process.clone(), false)
    }
}

impl Kept {
    fn new(process: Process, is_named: bool) -> Self {
        let (names, fingerprint, bodies) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        let (accounts, is_terminal) = (OnceCell::new(), OnceCell::new());
        Self { process, is_named, names, fingerprint, bodies, accounts, is_terminal }
    }
}

impl Deref for Shared {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0.process
    }
}

impl Shared {
    pub(crate) fn new(process: Process) -> Self {
        Self(Rc::new(Kept::new(process, false)))
    }

    /// One of which it is known what it mentions, and that all of it has its name.
    pub(crate) fn named(mut process: Process) -> Self {
        let names = Names::of(&mut process);
        Self(Rc::new(Kept { names: names.into(), ..Kept::new(process, true) }))
    }

    /// One of which it is known what it mentions.
    pub(crate) fn settled(mut process: Process) -> Self {
        let names = Names::of(&mut process);
        Self(Rc::new(Kept { names: names.into(), ..Kept::new(process, false) }))
    }

    /// Something happens to it.
    pub(crate) fn change(&mut self) -> &mut Process {
        let kept = Rc::make_mut(&mut self.0);
        let Kept { is_named, names, fingerprint, bodies, accounts, is_terminal, .. } = kept;
        *is_named = false;
        names.take();
        fingerprint.take();
        bodies.take();
        accounts.take();
        is_terminal.take();
        &mut kept.process
    }

    pub(crate) fn is_named(&self) -> bool {
        self.0.is_named
    }

    /// What it mentions.
    pub(crate) fn names(&self) -> &Names {
        // What visits may change what it visits.
        self.0.names.get_or_init(|| Names::of(&mut self.0.process.clone()))
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        *self.0.fingerprint.get_or_init(|| fingerprint(&self.0.process))
    }

    /// The bodies that run in it.
    pub(crate) fn bodies(&self) -> &[Body] {
        self.0.bodies.get_or_init(|| self.0.process.bodies().collect())
    }

    /// I3: what can still make a lock is known.
    pub(crate) fn accounts(&self, cfg: &Config) -> bool {
        *self.0.accounts.get_or_init(|| self.0.process.accounts(cfg))
    }

    /// I3: nothing runs under what was released.
    pub(crate) fn is_terminal(&self) -> bool {
        *self.0.is_terminal.get_or_init(|| self.0.process.is_terminal())
    }
}
