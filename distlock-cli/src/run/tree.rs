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
        // Errors mean that nobody is left.
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
            Some(all) => processes::of_tree(&all, self),
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

/// Processes as Linux lists them.
mod processes {
    use std::collections::HashMap;
    use std::fs;

    use rustix::process::Pid;

    use super::Tree;

    /// One process.
    pub(super) struct Process {
        pid: i32,
        parent: i32,
        group: i32,
        /// It has ended, and its parent has not looked.
        ended: bool,
    }

    /// All of this machine (or container); `None` where there is no list.
    pub(super) fn all() -> Option<Vec<Process>> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        let entries = fs::read_dir("/proc").ok()?;
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Some(pids.filter_map(process).collect())
    }

    fn process(pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(Process { pid, parent, group, ended: matches!(state, "Z" | "X") })
    }

    pub(super) fn of_tree(all: &[Process], tree: &Tree) -> Vec<Pid> {
        let leader = tree.leader.as_raw_pid();
        let root = tree.root.as_raw_pid();
        let parents: HashMap<i32, i32> = all.iter().map(|one| (one.pid, one.parent)).collect();
        let is_below = |pid: i32| {
            let mut above = parents.get(&pid);
            // No chain is longer than there are processes; the list was not made at one instant.
            for _ in 0..all.len() {
                match above {
                    Some(parent) if *parent == root => return true,
                    Some(parent) => above = parents.get(parent),
                    None => return false,
                }
            }
            false
        };
        let is_member = |one: &&Process| {
            let is_in_group = tree.own_group && one.group == leader;
            !one.ended && one.pid != root && (is_in_group || is_below(one.pid))
        };
        all.iter().filter(is_member).filter_map(|one| Pid::from_raw(one.pid)).collect()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn members_are_the_group_and_what_is_below() {
            let one = |pid, parent, group| Process { pid, parent, group, ended: pid == 15 };
            let all = [
                one(1, 0, 1),
                one(10, 1, 10),
                one(11, 10, 11),
                one(12, 11, 11),
                one(13, 12, 13),
                one(14, 1, 11),
                one(15, 11, 11),
                one(20, 1, 20),
            ];
            let pid = |pid| Pid::from_raw(pid).expect("positive");
            let tree = Tree { leader: pid(11), own_group: true, root: pid(10) };
            assert_eq!(of_tree(&all, &tree), [pid(11), pid(12), pid(13), pid(14)]);
            let tree = Tree { own_group: false, ..tree };
            assert_eq!(of_tree(&all, &tree), [pid(11), pid(12), pid(13)]);
        }
    }
}
