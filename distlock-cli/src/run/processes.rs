//! Processes as Linux lists them.

use std::collections::HashMap;
use std::fs;

use rustix::process::Pid;

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

/// Those below `root`, and those of a process group.
pub(super) fn below(all: &[Process], root: Pid, group: Option<Pid>) -> Vec<Pid> {
    let root = root.as_raw_pid();
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
        let is_in_group = group.is_some_and(|group| one.group == group.as_raw_pid());
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
        let in_group = below(&all, pid(10), Some(pid(11)));
        assert_eq!(in_group, [pid(11), pid(12), pid(13), pid(14)]);
        assert_eq!(below(&all, pid(10), None), [pid(11), pid(12), pid(13)]);
    }
}
