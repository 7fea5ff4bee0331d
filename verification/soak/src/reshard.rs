//! Slots that move from node to node while their locks are held, waited for and handed on: no lease is lost, and no lock
//! has two holders. They move key by key, and every other one as a whole where the server does that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager};
use distlock_testkit::{Cluster, LONG, SECOND, connect, ms, whole_text};
use tokio::task::JoinSet;

use crate::effort::{Dice, Effort};
use crate::report::Report;

const PRIMARIES: usize = 3;
/// Each is a process to the others.
const MANAGERS: usize = 3;
/// Locks that all managers want, and locks that are held all the time; each in a slot of its own.
const WANTED: usize = 12;
const HELD: usize = 12;
/// Of a lease; a slot stands between two nodes for longer every now and then.
const TTL: Duration = Duration::from_secs(2);
const STANDS: Duration = Duration::from_secs(3);
/// One of so many moves stands still.
const SELDOM: u64 = 100;

/// One lock, and what its holders do to each other.
#[derive(Default)]
struct Seen {
    inside: AtomicBool,
    fence: AtomicU64,
}

#[derive(Default)]
struct Tally {
    runs: AtomicU64,
    doubles: AtomicU64,
    backwards: AtomicU64,
    lost: AtomicU64,
    /// Leases that ended while they were given back.
    outlived: AtomicU64,
    busy: AtomicU64,
    failed: Mutex<Vec<String>>,
    losses: Mutex<Vec<String>>,
    waits: Mutex<Vec<Duration>>,
}

/// An effort of times counts moves.
pub async fn run(effort: Effort) -> Report {
    let cluster = Arc::new(blocking(|| Cluster::start(PRIMARIES, 0)).await);
    let keys: Vec<String> = (0..WANTED + HELD).map(|n| cluster.key_at(n % PRIMARIES)).collect();
    let (wanted, held) = keys.split_at(WANTED);
    let mut managers = Vec::new();
    for _ in 0..MANAGERS {
        managers.push(connect(&cluster.url()).await);
    }
    let (tally, over) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for key in wanted {
        let seen = Arc::new(Seen::default());
        for manager in &managers {
            let lock = (manager.clone(), key.clone(), seen.clone());
            tasks.spawn(wants(lock, tally.clone(), over.clone()));
        }
    }
    for (n, key) in held.iter().enumerate() {
        let lock = (managers[n % MANAGERS].clone(), key.clone());
        tasks.spawn(holds(lock, tally.clone(), over.clone()));
    }
    let begun = Instant::now();
    let moves = {
        let (cluster, keys) = (cluster.clone(), keys.clone());
        blocking(move || shuffle(&cluster, &keys, effort)).await
    };
    let took = begun.elapsed();
    over.store(true, SeqCst);
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    report(&tally, &moves, took, &cluster)
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.expect("no panic")
}

/// How many slots were moved.
struct Moves {
    by_key: u64,
    whole: u64,
}

/// Moves one slot after the other.
fn shuffle(cluster: &Cluster, keys: &[String], effort: Effort) -> Moves {
    let slots: Vec<u16> = keys.iter().map(|key| cluster.slot(key)).collect();
    let both = cluster.moves_whole_slots();
    let (mut dice, mut moves, begun) = (Dice(1), Moves { by_key: 0, whole: 0 }, Instant::now());
    while effort.goes_on(moves.by_key + moves.whole, begun) {
        let slot = slots[dice.below(slots.len() as u64) as usize];
        let from = cluster.primary_of(slot);
        let to = (from + 1 + dice.below(PRIMARIES as u64 - 1) as usize) % PRIMARIES;
        if both && moves.whole < moves.by_key {
            cluster.migrate_whole(slot, to);
            moves.whole += 1;
            continue;
        }
        cluster.open_move(slot, to);
        if dice.below(SELDOM) == 0 {
            let keys: Vec<String> =
                cluster.cli(from, &["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1"]);
            keys.iter().for_each(|key| cluster.move_key(key, from, to));
            thread::sleep(STANDS);
        } else {
            thread::sleep(ms(dice.below(10)));
        }
        loop {
            cluster.move_keys(slot, from, to);
            if cluster.close_move(slot, from, to) {
                break;
            }
        }
        moves.by_key += 1;
    }
    moves
}

async fn wants(
    (manager, key, seen): (LockManager, String, Arc<Seen>),
    tally: Arc<Tally>,
    over: Arc<AtomicBool>,
) {
    while !over.load(SeqCst) {
        let begun = Instant::now();
        let guard = match manager.lock(&*key).ttl(TTL).wait(LONG).acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                tally.note(&error);
                continue;
            }
        };
        tally.waits.lock().expect("no panic").push(begun.elapsed());
        if seen.inside.swap(true, SeqCst) {
            tally.doubles.fetch_add(1, SeqCst);
        }
        if seen.fence.swap(guard.fencing_token(), SeqCst) >= guard.fencing_token() {
            tally.backwards.fetch_add(1, SeqCst);
        }
        tokio::time::sleep(ms(5)).await;
        seen.inside.store(false, SeqCst);
        tally.runs.fetch_add(1, SeqCst);
        let was_held = guard.is_held();
        match guard.release().await {
            // Its slot stood between two nodes for longer than was left: no lease was taken away.
            Err(error) if was_held && error.is_lost() => {
                tally.outlived.fetch_add(1, SeqCst);
            }
            Err(error) => tally.note(&error),
            Ok(()) => {}
        }
        tokio::time::sleep(ms(5)).await;
    }
}

async fn holds((manager, key): (LockManager, String), tally: Arc<Tally>, over: Arc<AtomicBool>) {
    let guard = match manager.lock(&*key).ttl(TTL).wait(LONG).acquire().await {
        Ok(guard) => guard,
        Err(error) => return tally.note(&error),
    };
    while !over.load(SeqCst) {
        let (before, rest) = (Instant::now(), guard.remaining());
        tokio::time::sleep(ms(50)).await;
        if !guard.is_held() {
            // By a store that said so, or because it said nothing: and how late everything is here.
            let slept = before.elapsed();
            let text = format!("a lease that was held, with {rest:.1?} left {slept:.1?} before");
            tally.losses.lock().expect("no panic").push(text);
            tally.lost.fetch_add(1, SeqCst);
            return;
        }
    }
    if let Err(error) = guard.release().await {
        tally.note(&error);
    }
}

impl Tally {
    fn note(&self, error: &LockError) {
        if error.is_lost() {
            self.losses.lock().expect("no panic").push(whole_text(error));
            self.lost.fetch_add(1, SeqCst);
        } else if error.is_busy() {
            self.busy.fetch_add(1, SeqCst);
        } else {
            let source = std::error::Error::source(error).map(ToString::to_string);
            let text = format!("{error}: {}", source.unwrap_or_default());
            self.failed.lock().expect("no panic").push(text);
        }
    }
}

fn report(tally: &Tally, moves: &Moves, took: Duration, cluster: &Cluster) -> Report {
    let mut report = Report::default();
    let count = |number: &AtomicU64| number.load(SeqCst);
    let Moves { by_key, whole } = moves;
    report.figure("slots moved", format!("{by_key} key by key, {whole} as a whole, in {took:.1?}"));
    report.figure("locks given", count(&tally.runs));
    let waits = std::mem::take(&mut *tally.waits.lock().expect("no panic"));
    report.spread("from the call to the lock", waits, 4 * SECOND);
    for (what, number) in [
        ("two holders at once", &tally.doubles),
        ("fencing tokens that went back", &tally.backwards),
        ("leases lost", &tally.lost),
        ("waits that ran out", &tally.busy),
    ] {
        report.figure(what, count(number));
        report.violated_if(count(number) > 0, format!("{what}: {}", count(number)));
    }
    if let Some(first) = tally.losses.lock().expect("no panic").first() {
        report.figure("the first of those lost", first);
    }
    report.figure("leases that ran out while they were released", count(&tally.outlived));
    // A release that could not be confirmed while its slot stood still is finished later.
    let failed = tally.failed.lock().expect("no panic");
    report.figure("calls without an answer in time", failed.len());
    if let Some(first) = failed.first() {
        report.figure("the first of them", first);
    }
    report.violated_if(count(&tally.runs) == 0, "no lock was granted");
    let left = cluster.lock_keys();
    report.figure("keys left at the end", left.len());
    report
}
