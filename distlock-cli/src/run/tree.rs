//! All processes of a command.
//!
//! A command has a process group of its own, except in the foreground of a terminal. On Linux
//! processes that left the group are found as well, by their parents: orphans go to the nearest
//! process above them that is a subreaper, which is the guardian.

use std::time::Duration;

use rustix::io::{Errno, Result as Sent};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process,
    test_kill_process_group, wait,
};
#[cfg(target_os = "linux")]
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::processes;
use super::wire::Instant;

/// The processes below one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    /// The command itself.
    pub(super) leader: Pid,
    /// It leads a process group.
    pub(super) own_group: bool,
    /// All processes of the command are descendants of this process.
    pub(super) root: Pid,
}

/// A process of the command runs as another user and cannot be signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Denied;

/// How often a tree that is being killed is looked at.
const LOOK: Duration = Duration::from_millis(10);

impl Tree {
    /// Sends a signal to all processes of the command.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Denied> {
        if self.own_group {
            return permitted([kill_process_group(self.leader, signal)]);
        }
        permitted(self.members().into_iter().map(|member| kill_process(member, signal)))
    }

    /// KILL, to those that have left the group as well.
    pub(super) fn kill(&self) -> Result<(), Denied> {
        let group = self.own_group.then(|| kill_process_group(self.leader, Signal::KILL));
        let members = self.members();
        let members = members.into_iter().map(|member| kill_process(member, Signal::KILL));
        permitted(group.into_iter().chain(members))
    }

    /// Kills all, and returns when none is left, or after `patience`; what was a child of this process is
    /// reaped. Whether none is left.
    pub(super) async fn kill_all(&self, patience: Duration) -> bool {
        let until = Instant::now().after(patience);
        loop {
            // A process that cannot be signalled stays alive; the result says so.
            let _ = self.kill();
            tokio::time::sleep(LOOK).await;
            while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
            if self.is_gone() {
                return true;
            }
            if until.is_past() {
                return false;
            }
        }
    }

    /// Whether all processes of the command have ended. Reap the children of this process before the call.
    ///
    /// This process is their subreaper, so while one is left, it has a child. This needs no list of processes,
    /// so it also works with an empty `/proc` and for processes that have left the group.
    #[cfg(target_os = "linux")]
    pub(super) fn is_gone(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::All, look).is_err_and(|error| error == Errno::CHILD)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn is_gone(&self) -> bool {
        self.members().is_empty()
    }

    /// Its processes that run or could run.
    fn members(&self) -> Vec<Pid> {
        let group = self.own_group.then_some(self.leader);
        processes::below(self.root, group).unwrap_or_else(|| self.leader_if_alive())
    }

    /// Where the system does not list processes.
    fn leader_if_alive(&self) -> Vec<Pid> {
        let alive = match self.own_group {
            true => test_kill_process_group(self.leader),
            false => test_kill_process(self.leader),
        };
        // A process that may not be signalled is alive.
        let is_alive = alive.is_ok() || alive == Err(Errno::PERM);
        is_alive.then_some(self.leader).into_iter().collect()
    }
}

/// Any other error means that no process is left.
fn permitted(sent: impl IntoIterator<Item = Sent<()>>) -> Result<(), Denied> {
    let mut denied = false;
    // Go through all of them, also after an error, because each step sends a signal.
    sent.into_iter().for_each(|sent| denied |= sent == Err(Errno::PERM));
    if denied { Err(Denied) } else { Ok(()) }
}
