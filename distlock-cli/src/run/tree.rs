//! All processes of a command.
//!
//! A command has a process group of its own, except in the foreground of a terminal. On Linux
//! processes that left the group are found as well, by their parents: orphans go to the nearest
//! process above them that is a subreaper, which is the guardian.

use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process,
    test_kill_process_group, wait,
};

use super::processes;

/// The processes below one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    /// The command itself.
    pub(super) leader: Pid,
    /// It leads a process group.
    pub(super) own_group: bool,
    /// All of its processes are below this one, which is none of them.
    pub(super) root: Pid,
}

/// How often a tree that is being killed is looked at.
const LOOK: Duration = Duration::from_millis(10);

impl Tree {
    /// Sends a signal to all processes of the command.
    pub(super) fn signal(&self, signal: Signal) {
        // Errors mean that no process is left.
        if self.own_group {
            let _ = kill_process_group(self.leader, signal);
            return;
        }
        let members = self.members();
        for member in &members {
            let _ = kill_process(*member, signal);
        }
    }

    /// KILL, to those that have left the group as well.
    pub(super) fn kill(&self) {
        if self.own_group {
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        for member in self.members() {
            let _ = kill_process(member, Signal::KILL);
        }
    }

    /// Kills all, and returns when none is left, or after `patience`; what was a child of this process is
    /// reaped. Whether none is left.
    pub(super) async fn kill_all(&self, patience: Duration) -> bool {
        let looks = patience.as_millis() / LOOK.as_millis();
        for _ in 0..looks {
            self.kill();
            tokio::time::sleep(LOOK).await;
            let none_left = self.members().is_empty();
            while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
            if none_left {
                return true;
            }
        }
        false
    }

    /// Its processes that run or could run.
    pub(super) fn members(&self) -> Vec<Pid> {
        match processes::all() {
            Some(all) => processes::below(&all, self.root, self.own_group.then_some(self.leader)),
            None => self.leader_if_alive(),
        }
    }

    /// Where the system does not list processes.
    fn leader_if_alive(&self) -> Vec<Pid> {
        let alive = match self.own_group {
            true => test_kill_process_group(self.leader),
            false => test_kill_process(self.leader),
        };
        alive.is_ok().then_some(self.leader).into_iter().collect()
    }
}
