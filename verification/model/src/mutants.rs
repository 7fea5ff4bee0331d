//! The scripts of the server with one rule broken at a time. Those of the rules of the processes are
//! patches of the product's code, in `mutants/`.

use crate::invariants::Invariant;

macro_rules! mutants {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A mutant: a script with one rule broken.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Mutant {
            $($(#[doc = $doc])* $name,)*
        }

        impl Mutant {
            /// All of them, with what each breaks.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, concat!($($doc),*)),)*];
        }
    };
}

mutants! {
    /// The lock's value says whether there are waiters, and the queue is not looked at.
    MarkerForQueue,
    /// `acquire` takes a free lock without looking at the queue.
    TakesWithoutQueue,
    /// A look does not put a lost entry back.
    LookDoesNotReturn,
    /// A list in place of the sorted set: an entry stands twice.
    AddsTwice,
    /// `acquire` answers a new ticket in place of the one that stands in the queue.
    AnswersFreshTicket,
    /// A confirmation leaves the claim's ttl.
    ConfirmDoesNotExtend,
    /// A confirmation draws no new F.
    ConfirmReusesFence,
    /// No `s`.
    NoSealMessage,
    /// Dead processes are not skipped.
    KeepsTheDead,
    /// `release` frees whatever is there.
    BlindRelease,
    /// `release` leaves an expired lock under a queue alone.
    ReleaseDoesNotRepair,
    /// `renew` sets a shorter ttl.
    RenewShortens,
    /// `renew` makes a lock.
    RenewCreates,
    /// `not_after` is not looked at.
    NoNotAfter,
    /// One more is let in than the limit allows.
    OneTooMany,
    /// A token that wants the lock alone is let in beside those that have it together.
    AloneBesideOthers,
    /// `share` does not look at the queue.
    ReadersPass,
    /// Only the first of the queue is let in at a time.
    LetsInOneAtATime,
    /// One that is dead stays at the front while it would not fit.
    TheDeadHaveToFit,
    /// A lock that is held together ends with its last comer.
    EndsWithTheLastComer,
    /// `prolong` does not move the end of the lock.
    ProlongMovesNoEnd,
    /// The end of a holder that left stays the end of the lock.
    EndOfALeaverLingers,
    /// `leave` ends the leases of all that hold the lock together.
    LeavesForAll,
    /// Only one of those that hold the lock together is notified that another process waits.
    TellsOneHolder,
    /// A waiter is not notified that the lock ends earlier because the holder with the longest lease left.
    EarlierEndUntold,
    /// Of readers in a row only the last is notified that a writer waits.
    TellsOneReader,
    /// A downgrade takes the lock over from any exclusive holder.
    DowngradesAnothers,
    /// A downgrade does not let in the readers that stand first.
    DowngradesAlone,
}

impl Mutant {
    /// Which scenario catches it, by which invariant.
    pub const CAUGHT: &[(Self, &str, Invariant)] = {
        use Invariant::*;
        use Mutant::*;
        &[
            (MarkerForQueue, "queue", Idle),
            (TakesWithoutQueue, "cluster", Order),
            (LookDoesNotReturn, "deaf unknowingly", Place),
            (AddsTwice, "lost queue", Order),
            (ConfirmDoesNotExtend, "lost hints", Lease),
            (ConfirmReusesFence, "lost queue", Fencing),
            (NoSealMessage, "queue", Order),
            (BlindRelease, "lost queue", Lease),
            (ReleaseDoesNotRepair, "unreachable", Idle),
            (RenewShortens, "late hints", Lease),
            (RenewCreates, "lost queue", Stray),
            (NoNotAfter, "parked", Accounted),
            (OneTooMany, "permits", Limit),
            (AloneBesideOthers, "readers and a writer", Alone),
            (ReadersPass, "readers and a writer", Order),
            (LetsInOneAtATime, "runs of readers", Next),
            (TheDeadHaveToFit, "dead in front", Next),
            (EndsWithTheLastComer, "cancelled in front", End),
            (ProlongMovesNoEnd, "readers and a writer", End),
            (EndOfALeaverLingers, "readers and a writer", End),
            (LeavesForAll, "readers and a writer", Lease),
            (EarlierEndUntold, "readers' leases", Idle),
            (TellsOneHolder, "told of a writer", Order),
            (TellsOneReader, "told of another writer", Order),
            (DowngradesAnothers, "downgrade lost", Lease),
            (DowngradesAlone, "downgrade", Front),
        ]
    };

    /// Those that violate nothing, and why.
    pub const SURVIVORS: &[(Self, &str)] = {
        use Mutant::*;
        &[
            (KeepsTheDead, "a dead process costs its reservation, which is a tick here"),
            (
                AnswersFreshTicket,
                "the ticket is wrong only by what came within one message latency, which I7 allows",
            ),
        ]
    };
}
