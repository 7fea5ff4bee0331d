//! What a lock protects: a value that is read, thought about and written, by the holder with the largest
//! fencing token so far.

use std::sync::Mutex;
use std::time::Duration;

use crate::report::Report;

#[derive(Default)]
pub(super) struct Resource(Mutex<State>);

#[derive(Default)]
struct State {
    fence: u64,
    value: u64,
    seen: Seen,
}

/// What holders did to each other.
#[derive(Default, Clone, Copy)]
struct Seen {
    /// Came with a token below one that was seen.
    came_late: u64,
    /// Came with one that another had.
    same: u64,
    /// Wanted to write what it had read before another one came: that would have undone the other's work.
    stale: u64,
    /// Wrote what was not based on the last write.
    undone: u64,
}

impl Resource {
    /// A body under a lock.
    pub(super) async fn changed(&self, fence: u64, thinks: Duration) {
        let Some(read) = self.read(fence) else { return };
        tokio::time::sleep(thinks).await;
        self.write(fence, read);
    }

    fn read(&self, fence: u64) -> Option<u64> {
        let mut state = self.0.lock().expect("no panic");
        if fence <= state.fence {
            state.seen.same += u64::from(fence == state.fence);
            state.seen.came_late += u64::from(fence < state.fence);
            return None;
        }
        state.fence = fence;
        Some(state.value)
    }

    fn write(&self, fence: u64, read: u64) {
        let mut state = self.0.lock().expect("no panic");
        if fence < state.fence {
            state.seen.stale += 1;
            return;
        }
        state.seen.undone += u64::from(state.value != read);
        state.value = read + 1;
    }
}

/// Without a promise of one holder at a time the fencing tokens still order them.
pub(super) fn judge(all: &[(String, Resource)], is_strict: bool, report: &mut Report) {
    let seen = || all.iter().map(|(_, resource)| resource.0.lock().expect("no panic").seen);
    let sum = |of: fn(&Seen) -> u64| seen().map(|seen| of(&seen)).sum::<u64>();
    for (what, count, never) in [
        ("two with one fencing token", sum(|seen| seen.same), true),
        ("writes that undid another's", sum(|seen| seen.undone), true),
        ("writes refused by their fencing token", sum(|seen| seen.stale), is_strict),
        ("holders refused by their fencing token", sum(|seen| seen.came_late), is_strict),
    ] {
        report.figure(what, count);
        report.violated_if(never && count > 0, format!("{what}: {count}"));
    }
}
