//! The ways in which a lock may be held, and how they get in each other's way.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use distlock_runtime::{LockGuard, LockManager, LockMode, LockRequest};
use tokio::time::timeout;

use super::Subject;
use super::tools::{all_of, nothing_is_left, until_waiting};
use crate::{LONG, SECOND, Waiting, assert_busy, in_line, served, wait_for};

/// How a lock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Exclusive,
    Write,
    Read,
    /// One of two.
    Permit,
}

impl Kind {
    /// All that the store has.
    pub(super) fn all<S: Subject>() -> impl Iterator<Item = Self> + Clone {
        let all = [Self::Exclusive, Self::Write, Self::Read, Self::Permit];
        all.into_iter().filter(|kind| S::PERMITS || *kind != Self::Permit)
    }

    /// A request for a lock.
    pub(super) fn of(self, manager: &LockManager, key: &str) -> LockRequest {
        self.ask(manager.lock(key))
    }

    /// The request, in this mode.
    pub(super) fn ask(self, request: LockRequest) -> LockRequest {
        let request = request.ttl(LONG);
        match self {
            Self::Exclusive => request,
            Self::Write => request.mode(LockMode::Write),
            Self::Read => request.mode(LockMode::Read),
            Self::Permit => request.permits(2),
        }
    }

    /// Waits for a lock in a task of its own.
    pub(super) fn waits(self, manager: &LockManager, key: &str) -> Waiting {
        tokio::spawn(self.of(manager, key).wait(LONG).acquire())
    }

    pub(super) fn is_alone(self) -> bool {
        matches!(self, Self::Exclusive | Self::Write)
    }

    /// Takes a lock that is free, as often as it takes until no permit is left.
    pub(super) async fn fill(self, manager: &LockManager, key: &str) -> Vec<LockGuard> {
        let mut guards = Vec::new();
        for _ in 0..if self.is_alone() { 1 } else { 2 } {
            let guard = self.of(manager, key).wait(LONG).acquire().await;
            guards.push(guard.expect("there is room"));
        }
        guards
    }

    /// Whether a lock that is [full](Self::fill) of this kind refuses the other. (Readers of one process count
    /// as one holder, so there may be a permit beside them.)
    fn excludes(self, other: Self) -> bool {
        self.is_alone() || other.is_alone() || self == Self::Permit && other == Self::Permit
    }
}

/// Two kinds that wait for each other: one holds the lock, the other one asks for it.
fn pairs<S: Subject>() -> impl Iterator<Item = (Kind, Kind)> {
    let pairs = Kind::all::<S>().flat_map(|held| Kind::all::<S>().map(move |asked| (held, asked)));
    pairs.filter(|(held, asked)| held.excludes(*asked))
}

/// A waiter that gives up keeps nobody out, whichever mode it asked for and whichever mode holds the lock.
pub async fn a_waiter_that_gives_up_keeps_nobody_out<S: Subject>(_: &str) {
    let subject = S::start();
    let managers = [subject.manager().await, subject.manager().await, subject.manager().await];
    all_of(pairs::<S>().map(|(held, asked)| give_up::<S>(&managers, held, asked))).await;
    nothing_is_left(&subject).await;
    for manager in managers {
        assert_eq!((manager.status().held, manager.status().waiting), (0, 0));
    }
}

async fn give_up<S: Subject>([one, other, third]: &[LockManager; 3], held: Kind, asked: Kind) {
    let key = format!("{held:?} {asked:?}");
    let guards = held.fill(one, &key).await;
    // Its wait runs out.
    assert_busy(asked.of(other, &key).wait(SECOND).acquire().await);
    until_waiting(one, &key, 0).await;
    // It is dropped in the line.
    let waiting = in_line(asked.of(other, &key).wait(LONG).acquire()).await;
    let waiting = tokio::spawn(waiting);
    until_waiting(one, &key, 1).await;
    waiting.abort();
    until_waiting(one, &key, 0).await;
    // Another one stands behind it.
    let waiting = tokio::spawn(asked.of(other, &key).wait(LONG).acquire());
    until_waiting(one, &key, 1).await;
    let behind = tokio::spawn(in_line(held.of(third, &key).wait(LONG).acquire()).await);
    waiting.abort();
    // The call may have been let in at that moment: then the handle has its guard.
    drop(waiting);
    for guard in guards {
        guard.release().await.expect("it was held");
    }
    served(behind).await.release().await.expect("it was held");
    for kind in Kind::all::<S>() {
        let next = timeout(LONG / 2, kind.of(other, &key).wait(LONG).acquire()).await;
        let next = next.unwrap_or_else(|_| panic!("{key}: nobody holds it, and {kind:?} waits"));
        next.expect("granted").release().await.expect("it was held");
    }
}

/// A try is granted or the lock is busy, and a look is answered, however the lock changes meanwhile between
/// holders of different modes.
pub async fn a_try_beside_changing_modes_is_granted_or_busy<S: Subject>(_: &str) {
    const TRIES: usize = 60;
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let change = async |key: &str, kinds: [Kind; 2], is_over: &AtomicBool| {
        while !is_over.load(SeqCst) {
            for kind in kinds {
                let guard = kind.of(&one, key).wait(LONG).acquire().await.expect("its turn comes");
                guard.release().await.expect("it was held");
            }
        }
    };
    let try_it = async |key: &str, is_over: &AtomicBool| {
        for kind in Kind::all::<S>().cycle().take(TRIES) {
            match kind.of(&other, key).acquire().await {
                Ok(guard) => guard.release().await.expect("it was held"),
                refused => assert_busy(refused),
            }
            other.inspect(key).await.expect("an answer");
        }
        is_over.store(true, SeqCst);
    };
    let kinds = [[Kind::Read, Kind::Write], [Kind::Permit, Kind::Exclusive]];
    let kinds = kinds.into_iter().filter(|[kind, _]| S::PERMITS || *kind != Kind::Permit);
    all_of(kinds.map(async |kinds| {
        let (key, is_over) = (format!("{kinds:?}"), AtomicBool::new(false));
        tokio::join!(change(&key, kinds, &is_over), try_it(&key, &is_over));
    }))
    .await;
    nothing_is_left(&subject).await;
}

/// What was exclusive and is not any more lets in those that may be beside it, and a waiter that gave up
/// before is not among them.
pub async fn a_writer_that_goes_on_as_a_reader_lets_readers_in<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let guard = Kind::Write.of(&one, "k").acquire().await.expect("it is free");
    assert_busy(Kind::Write.of(&other, "k").wait(SECOND).acquire().await);
    let reader = tokio::spawn(Kind::Read.of(&other, "k").wait(LONG).acquire());
    until_waiting(&one, "k", 1).await;
    let guard = guard.downgrade().await.expect("it is held");
    let reader = served(reader).await;
    assert!(guard.is_held() && reader.is_held());
    assert_busy(Kind::Write.of(&other, "k").acquire().await);
    guard.release().await.expect("it was held");
    reader.release().await.expect("it was held");
    let writer = Kind::Write.of(&other, "k").wait(LONG).acquire().await.expect("it is free");
    writer.release().await.expect("it was held");
    wait_for("it is free", async || other.inspect("k").await.is_ok_and(|status| status.is_free()))
        .await;
    nothing_is_left(&subject).await;
}
