//! What the processes saw, in files that outlive them, and what it proves.
//!
//! A body notes when it has begun, and then again and again the time, while its lease holds. At the first and
//! at the last of these times it had its lock, and so at all times in between: a lease that is lost never
//! comes back. What it notes stands in the file at once, so that `kill -9` takes nothing of it.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::caller::MIXES;
use super::exposed::Exposed;
use crate::report::Report;
use crate::stamp::between;

/// A time at which the store's data was lost. What it had granted before, it knew nothing of afterwards.
#[derive(Clone, Copy)]
pub(super) struct Loss {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Loss {
    /// One lock may have been granted before it, and the other one after it.
    fn divides(&self, one: &Body, other: &Body) -> bool {
        let (earlier, later) = (one.first.min(other.first), one.first.max(other.first));
        earlier <= self.to && self.from <= later
    }
}

/// How a lock is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// By one alone.
    Write,
    /// By any number.
    Read,
    /// By so many.
    Permits(u32),
}

impl Kind {
    fn code(self) -> u64 {
        match self {
            Self::Write => 1,
            Self::Read => 0,
            Self::Permits(permits) => u64::from(permits),
        }
    }

    fn of(code: u64) -> Self {
        match code {
            1 => Self::Write,
            0 => Self::Read,
            permits => Self::Permits(permits as u32),
        }
    }
}

/// Eight bytes each: key, kind, fencing token, since when it was asked for, first and last time, whether it
/// was lost.
const FIELDS: usize = 7;
const SIZE: usize = 8 * FIELDS;
const LAST: u64 = 5;
const LOST: u64 = 6;

/// Where a process notes what it sees.
#[derive(Clone)]
pub(super) struct Notes {
    file: Arc<File>,
    next: Arc<AtomicU64>,
}

/// What is noted of one body.
pub(super) struct Note {
    file: Arc<File>,
    at: u64,
    head: [u64; 4],
    begun: std::cell::Cell<bool>,
}

impl Notes {
    pub(super) fn create(path: &Path) -> Self {
        let file = Arc::new(File::create_new(path).expect("a file for notes"));
        Self { file, next: Arc::default() }
    }

    /// One that was asked for at `arrived` and let in since, if that is not 0.
    pub(super) fn begin(&self, key: u8, kind: Kind, fence: u64, arrived: u64) -> Note {
        let at = self.next.fetch_add(SIZE as u64, Ordering::Relaxed);
        let begun = std::cell::Cell::new(false);
        Note { file: self.file.clone(), at, head: [key.into(), kind.code(), fence, arrived], begun }
    }
}

impl Note {
    /// It had its lock at that time.
    pub(super) fn seen(&self, now: u64) {
        if self.begun.replace(true) {
            return self.write(LAST, &[now]);
        }
        let [key, kind, fence, arrived] = self.head;
        self.write(0, &[key, kind, fence, arrived, now, now, 0]);
    }

    /// It has lost it.
    pub(super) fn lost(&self) {
        if self.begun.get() {
            self.write(LOST, &[1]);
        }
    }

    fn write(&self, field: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, self.at + 8 * field).expect("noted");
    }
}

/// One body, as it was noted.
#[derive(Clone, Copy, Debug)]
struct Body {
    process: usize,
    key: u64,
    kind: Kind,
    fence: u64,
    arrived: u64,
    first: u64,
    last: u64,
    lost: bool,
}

impl Body {
    fn read(process: usize, record: &[u8]) -> Option<Self> {
        let words = record.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
        let words: Vec<u64> = words.collect::<Result<_, _>>().ok()?;
        let [key, kind, fence, arrived, first, last, lost] = words[..] else { return None };
        let kind = Kind::of(kind);
        // A process that was killed may have left a gap.
        let lost = lost == 1;
        (first > 0).then_some(Self { process, key, kind, fence, arrived, first, last, lost })
    }

    /// Readers of one process share what they hold.
    fn share(&self) -> (usize, Option<u64>) {
        (self.process, (self.kind != Kind::Read).then_some(self.first))
    }
}

/// Looks at all bodies of all processes.
pub(super) fn judge<S: Exposed>(notes: &Path, losses: &[Loss], report: &mut Report) {
    let mut bodies = Vec::new();
    for (process, file) in fs::read_dir(notes).expect("the notes").enumerate() {
        let records = fs::read(file.expect("a file").path()).expect("the notes of a process");
        bodies.extend(records.chunks_exact(SIZE).filter_map(|record| Body::read(process, record)));
    }
    let lost = bodies.iter().filter(|body| body.lost).count();
    for (name, kind) in [("writers", Kind::Write), ("readers", Kind::Read)] {
        report.figure(name, bodies.iter().filter(|body| body.kind == kind).count());
    }
    let permits = |body: &&Body| matches!(body.kind, Kind::Permits(_));
    report.figure("permits", bodies.iter().filter(permits).count());
    report.figure("leases lost", lost);
    for key in 0..MIXES.len() as u64 {
        let mut own: Vec<_> = bodies.iter().filter(|body| body.key == key).copied().collect();
        own.sort_by_key(|body| body.first);
        let most = follow::<S>(key, &own, losses, report);
        report.figure(format!("most holders at once of key {key}"), most);
        let is_possible = MIXES[key as usize].iter().any(|kind| S::KINDS.contains(kind));
        let hardly = is_possible && own.len() < 10;
        report.violated_if(hardly, format!("hardly anybody had key {key}"));
    }
}

/// One body after the other, beside those that had not ended when it was there.
fn follow<S: Exposed>(key: u64, bodies: &[Body], losses: &[Loss], report: &mut Report) -> usize {
    let limits = MIXES[key as usize].iter().map(|kind| match kind {
        Kind::Write => 1,
        Kind::Read => usize::MAX,
        Kind::Permits(permits) => *permits as usize,
    });
    let (largest, mut most) = (limits.max().unwrap_or(0), 0);
    let (mut there, mut fences): (Vec<Body>, HashMap<Kind, u64>) = (Vec::new(), HashMap::new());
    let mut known = 0;
    for body in bodies {
        there.retain(|other| other.last >= body.first);
        let is_divided = |other: &&Body| losses.iter().any(|loss| loss.divides(other, body));
        let others = there.iter().filter(|other| other.share() != body.share());
        let others = others.filter(|other| !is_divided(other));
        let shares: HashSet<_> = others.clone().map(Body::share).collect();
        let writes = |body: &Body| body.kind == Kind::Write;
        let beside = others.clone().find(|other| writes(other) || writes(body));
        report.violated_if(beside.is_some(), format!("a writer not alone: {body:?} {beside:?}"));
        let count = shares.len() + 1;
        report.violated_if(count > largest, format!("{count} at once, with {body:?}"));
        // Holders that were there when it asked and still are were there when it was let in.
        if let Kind::Permits(permits) = body.kind {
            let before = others.filter(|other| other.first <= body.arrived).map(Body::share);
            let before = before.collect::<HashSet<_>>().len();
            let over = before >= permits as usize;
            report.violated_if(over, format!("let in beside {before}: {body:?}"));
        }
        most = most.max(count);
        if !S::FENCES_OUTLIVE_DATA {
            let lost = losses.partition_point(|loss| loss.to <= body.first);
            if std::mem::replace(&mut known, lost) < lost {
                fences.clear();
            }
        }
        // An exclusive holder's token is above all before it, and below all after it.
        let before = match writes(body) {
            true => fences.values().max().copied(),
            false => fences.get(&Kind::Write).copied(),
        };
        // It may have been granted before a loss, and have come later than one that was granted after it.
        let is_between = losses
            .iter()
            .any(|loss| loss.from <= body.first && between(loss.to, body.first) <= S::TTL);
        let grows = is_between || before.is_none_or(|before| before < body.fence);
        report.violated_if(!grows, format!("a fencing token that does not grow: {body:?}"));
        if S::FENCES_OUTLIVE_DATA || !is_between {
            let highest = fences.entry(body.kind).or_default();
            *highest = body.fence.max(*highest);
        }
        there.push(*body);
    }
    most
}
