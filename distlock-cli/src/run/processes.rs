//! The list of processes, as Linux shows it in `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use rustix::process::{Pid, getpid};

use super::platform::LISTS_PROCESSES;

/// The line of one process in the list.
struct ProcStat {
    pid: i32,
    parent: i32,
    group: i32,
    /// Whether it has ended, and its parent has not reaped it.
    ended: bool,
}

/// Returns the processes below `root` and those of a process group; `None` if the system does not list them.
pub(super) fn below(root: Pid, group: Option<Pid>) -> Option<Vec<Pid>> {
    if !is_ours(Path::new("/proc")) {
        return None;
    }
    match children(root.as_raw_pid()) {
        // Read only these processes, however many others the machine runs.
        Some(children) => Some(descendants(root, children)),
        None => Some(among(&all()?, root, group)),
    }
}

/// Whether `/proc` uses the same process numbers as this process. In a chroot or a container it may be empty,
/// or belong to another namespace, in which our number is another process.
fn is_ours(proc: &Path) -> bool {
    let own = getpid().as_raw_pid().to_string();
    LISTS_PROCESSES
        && fs::read_link(proc.join("self")).is_ok_and(|own_link| own_link == Path::new(&own))
}

/// Processes that have ended are included until their parent has reaped them.
fn descendants(root: Pid, children_of_root: Vec<i32>) -> Vec<Pid> {
    // The lists are read one after the other, and numbers are reused, so skip a number that was seen before.
    let mut seen = HashSet::from([root.as_raw_pid()]);
    let (mut open, mut found) = (children_of_root, Vec::new());
    while let Some(pid) = open.pop() {
        if seen.insert(pid) {
            found.extend(Pid::from_raw(pid));
            open.extend(children(pid).unwrap_or_default());
        }
    }
    found
}

/// Returns the children of all threads of a process; `None` if it is gone, or if the system does not list them.
fn children(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let mut is_listed = false;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Ok(of_thread) = fs::read_to_string(thread.path().join("children")) else { continue };
        is_listed = true;
        children.extend(of_thread.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    is_listed.then_some(children)
}

/// Returns all processes of this machine or container.
fn all() -> Option<Vec<ProcStat>> {
    let entries = fs::read_dir("/proc").ok()?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some(pids.filter_map(process).collect())
}

fn process(pid: i32) -> Option<ProcStat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(ProcStat { pid, parent, group, ended: matches!(state, "Z" | "X") })
}

/// Returns the processes below `root` and those of a process group.
fn among(all: &[ProcStat], root: Pid, group: Option<Pid>) -> Vec<Pid> {
    let root = root.as_raw_pid();
    let parents: HashMap<i32, i32> = all.iter().map(|one| (one.pid, one.parent)).collect();
    let is_below = |pid: i32| {
        let mut above = parents.get(&pid);
        // Limits the length of the chain: the list was not made at one instant, so it may contain a circle.
        for _ in 0..all.len() {
            match above {
                Some(parent) if *parent == root => return true,
                Some(parent) => above = parents.get(parent),
                None => return false,
            }
        }
        false
    };
    let is_member = |one: &&ProcStat| {
        let is_in_group = group.is_some_and(|group| one.group == group.as_raw_pid());
        !one.ended && one.pid != root && (is_in_group || is_below(one.pid))
    };
    all.iter().filter(is_member).filter_map(|one| Pid::from_raw(one.pid)).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn members_are_the_group_and_what_is_below() {
        let one = |pid, parent, group| ProcStat { pid, parent, group, ended: pid == 15 };
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
        let in_group = among(&all, pid(10), Some(pid(11)));
        assert_eq!(in_group, [pid(11), pid(12), pid(13), pid(14)]);
        assert_eq!(among(&all, pid(10), None), [pid(11), pid(12), pid(13)]);
    }

    #[test]
    fn a_list_without_this_process_is_none() {
        assert!(!is_ours(&std::env::temp_dir()), "it lists no processes");
        assert_eq!(is_ours(Path::new("/proc")), LISTS_PROCESSES);
    }

    /// Fault: FO6.
    #[test]
    #[cfg(target_os = "linux")]
    fn both_ways_find_the_same_processes() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & setsid sleep 600 & echo; wait"]);
        let mut shell = shell.stdout(Stdio::piped()).spawn().expect("start a shell");
        shell.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("it has started both");
        let root = Pid::from_child(&shell);
        let mut by_all = among(&all().expect("a list"), root, None);
        let mut by_children = children(root.as_raw_pid()).map(|own| descendants(root, own));
        by_all.sort_unstable_by_key(|pid| pid.as_raw_pid());
        by_children.iter_mut().for_each(|found| found.sort_unstable_by_key(|pid| pid.as_raw_pid()));
        for pid in &by_all {
            let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
        }
        shell.wait().expect("wait for the shell");
        assert_eq!(by_all.len(), 2);
        // Kernels without `CONFIG_PROC_CHILDREN` do not list children.
        assert!(by_children.is_none_or(|found| found == by_all));
    }
}
