//! All processes of a command.
//!
//! A command has its own process group, except in the foreground of a terminal. On Linux, processes that left the group
//! are found by their parents: the nearest subreaper above them, which is the guardian, adopts orphans.

use std::time::Duration;

use rustix::io::{Errno, Result as Sent};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process,
    test_kill_process_group, wait,
};

use super::platform::has_children;
use super::processes;
use super::wire::BootInstant;

/// The processes of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessTree {
    /// The command itself.
    pub(super) leader: Pid,
    /// Whether the command leads a process group.
    pub(super) own_group: bool,
    /// All processes of the command are descendants of this process.
    pub(super) root: Pid,
}

/// The error for a process of the command that runs as another user and cannot be signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SignalDenied;

/// The interval of looks for processes that were killed.
const LOOK: Duration = Duration::from_millis(10);

impl ProcessTree {
    /// Sends a signal to all processes of the command.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), SignalDenied> {
        if self.own_group {
            return permitted([kill_process_group(self.leader, signal)]);
        }
        permitted(self.members().into_iter().map(|member| kill_process(member, signal)))
    }

    /// Sends KILL to all processes of the command, even those that have left the group.
    pub(super) fn kill(&self) -> Result<(), SignalDenied> {
        let group = self.own_group.then(|| kill_process_group(self.leader, Signal::KILL));
        let members = self.members();
        let members = members.into_iter().map(|member| kill_process(member, Signal::KILL));
        permitted(group.into_iter().chain(members))
    }

    /// Kills all processes, and reaps children of this process, until none is left or `patience` has passed. Returns
    /// whether none is left.
    pub(super) async fn kill_all(&self, patience: Duration) -> bool {
        let until = BootInstant::now().after(patience);
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
    pub(super) fn is_gone(&self) -> bool {
        // If this process adopts orphans, it has a child while a process is left. That check needs no list of
        // processes, so it works with an empty `/proc` and for processes that have left the group.
        match has_children() {
            Some(has_children) => !has_children,
            None => self.members().is_empty(),
        }
    }

    /// Returns the processes that run or could run.
    fn members(&self) -> Vec<Pid> {
        let group = self.own_group.then_some(self.leader);
        processes::below(self.root, group).unwrap_or_else(|| self.leader_if_alive())
    }

    /// Returns the command itself, for systems that do not list processes.
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

/// Returns whether all signals were permitted. Any other error means that the process is gone.
fn permitted(sent: impl IntoIterator<Item = Sent<()>>) -> Result<(), SignalDenied> {
    let mut denied = false;
    // Go through all of them, also after an error, because each step sends a signal.
    sent.into_iter().for_each(|sent| denied |= sent == Err(Errno::PERM));
    if denied { Err(SignalDenied) } else { Ok(()) }
}
