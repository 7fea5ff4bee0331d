//! One rule broken at a time.

use crate::invariants::Invariant;

macro_rules! mutants {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A mutant: the model with one rule broken.
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
    // The scripts.
    /// The lock's value says that somebody waits, and nobody looks at the queue.
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
    SkipsNobody,
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
    // The rules of the processes.
    /// A deadline counts from the answer.
    DeadlineFromReply,
    /// A renewed deadline counts from the answer.
    RenewalFromReply,
    /// No margin for drift.
    NoDriftMargin,
    /// A grant is used although its deadline has passed.
    NoExpiryCheck,
    /// A body goes on past its deadline while a renewal is under way.
    DoubtIsHope,
    /// A renewal's "no" is ignored.
    RefusedRenewalIgnored,
    /// A message is ownership.
    StartsOnHint,
    /// `g` is dropped while the first `acquire` is under way.
    EnteringIgnoresHint,
    /// `g` for an unknown token has it released.
    UnknownGrantReleases,
    /// `s` is dropped, and so are the flags of answers.
    SealIgnored,
    /// `s` seals the last batch, whichever it names.
    SealsAnyBatch,
    /// An owned, sealed batch admits arrivals.
    OwnedAdmits,
    /// `x` is dropped.
    TakenIgnored,
    /// A token is used again after its release was sent.
    HandsOverAfterRelease,
    /// A lease is handed over whatever is left of it.
    HandsOverAnyTtl,
    /// R6: the answer of an earlier renewal is taken for the one the next holder needs.
    AnyRenewalRefreshes,
    /// R6: the F of a second grant of an owned token is dropped.
    SecondGrantKeepsFence,
    /// R3: "somebody else has it", for an owned token, is ignored.
    OwnedIgnoresZero,
    /// More hand-overs than one F has room for.
    StepsOverflow,
    /// A lease of several forgets the largest fencing token.
    NoLastToken,
    /// Several keys: what comes after the first failure is kept.
    KeepsLaterKeys,
    /// R2: nil of the fast path is taken for "held elsewhere".
    NilMeansBusy,
    /// R2: F is not compared with those seen.
    NoFenceFloor,
    /// No `raise`.
    NoRaise,
    /// R5: a future that nobody polls keeps the lock.
    OffersForEver,
    /// R6: back in after the release of the old token, not before.
    ReentersAfterRelease,
    /// R5: who did not take the lock is back in before the release.
    DozersStayInFront,
    /// R6: back in with a new ticket.
    ReentryForgetsTicket,
    /// R7: nobody looks after the one a release handed the lock to.
    NoRepairTimer,
    /// `min_hold`: the lock expires when it is due, and nobody releases it.
    KeepWithoutRelease,
    /// R8: a batch that became empty is forgotten.
    CancelWithoutRelease,
    /// R9: no release after a connection was lost.
    NoJanitorRetry,
    /// R9: any answer of a release is final.
    AnswerIsFinal,
    /// R9: the janitor has a connection of its own.
    JanitorElsewhere,
    /// R11: no looks.
    NoLook,
    /// No look when the subscriber is back.
    NoLookAfterReconnect,
    /// R12: a look that found its entry in the queue counts as a lapse.
    AnyZeroIsLapse,
    /// R12: claims do not grow.
    ClaimNeverGrows,
    /// R12, R13: release of the old token before the new one's `acquire`.
    SwapsOutFirst,
    /// R13: mode `s` although the process cannot hear.
    KeepsMode,
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
            (AddsTwice, "lost queue", Stray),
            (ConfirmDoesNotExtend, "lost hints", Lease),
            (ConfirmReusesFence, "lost queue", Fencing),
            (NoSealMessage, "queue", Order),
            (SkipsNobody, "expiry", Idle),
            (BlindRelease, "lost queue", Exclusion),
            (ReleaseDoesNotRepair, "unreachable", Idle),
            (RenewShortens, "ttls that shrink", Lease),
            (RenewCreates, "lost queue", Stray),
            (NoNotAfter, "parked", Accounted),
            (DeadlineFromReply, "lag", Exclusion),
            (RenewalFromReply, "renewal", Lease),
            (NoDriftMargin, "lag", Exclusion),
            (NoExpiryCheck, "late grants", Lease),
            (DoubtIsHope, "renewal", Lease),
            (RefusedRenewalIgnored, "force release unheard", Robbed),
            (StartsOnHint, "forged hints", Exclusion),
            (EnteringIgnoresHint, "overtaking", Idle),
            (UnknownGrantReleases, "late hints", Kept),
            (SealIgnored, "queue", Order),
            (OwnedAdmits, "queue", Order),
            (TakenIgnored, "force release", Robbed),
            (HandsOverAfterRelease, "queue", Exclusion),
            (HandsOverAnyTtl, "ttls that grow", Ttl),
            (AnyRenewalRefreshes, "ttls that grow", Ttl),
            (StepsOverflow, "fences", Fencing),
            (SecondGrantKeepsFence, "force release unheard", Fencing),
            (OwnedIgnoresZero, "force release unheard", Fencing),
            (NoLastToken, "two keys", Fencing),
            (KeepsLaterKeys, "two keys", Idle),
            (NilMeansBusy, "take-over", Stray),
            (NoFenceFloor, "data loss", Fencing),
            (NoRaise, "data loss", Fencing),
            (OffersForEver, "unpolled", Idle),
            (DozersStayInFront, "unpolled", Idle),
            (ReentersAfterRelease, "lost lease", Order),
            (ReentryForgetsTicket, "lost lease", Order),
            (NoRepairTimer, "unreachable", Idle),
            (KeepWithoutRelease, "min_hold", Idle),
            (CancelWithoutRelease, "cancel", Accounted),
            (NoJanitorRetry, "connection", Accounted),
            (AnswerIsFinal, "connection", Accounted),
            (JanitorElsewhere, "cancel", Accounted),
            (NoLook, "lost hints", Idle),
            (NoLookAfterReconnect, "deaf unknowingly", Place),
            (AnyZeroIsLapse, "unreachable", Idle),
            (SwapsOutFirst, "mode n", Order),
            (KeepsMode, "mode n", Order),
        ]
    };

    /// Those that violate nothing, and why.
    pub const SURVIVORS: &[(Self, &str)] = {
        use Mutant::*;
        &[
            (
                AnswersFreshTicket,
                "the ticket is wrong only by what came within one message latency, which I7 allows",
            ),
            (SealsAnyBatch, "a batch that is sealed too early is only smaller"),
            (ClaimNeverGrows, "a confirmation that is late finds the lock free and takes it"),
        ]
    };
}
