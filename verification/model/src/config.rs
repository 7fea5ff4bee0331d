//! What one scenario allows: sizes, times in ticks, and how many faults may happen.

use crate::mutants::Mutant;

/// One way of asking for locks.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// One key, or two in order.
    pub(crate) keys: Vec<u8>,
    pub(crate) ttl: u8,
    pub(crate) renew: bool,
    /// False is `wait = none`.
    pub(crate) patient: bool,
    pub(crate) min_hold: u8,
}

impl Default for Ask {
    fn default() -> Self {
        Self { keys: vec![0], ttl: 3, renew: false, patient: true, min_hold: 0 }
    }
}

/// How many of each fault may still happen. Part of the state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Faults {
    /// A process dies and its connections are closed.
    pub(crate) crashes: u8,
    /// A process is cut off: the server still believes that it listens.
    pub(crate) vanishings: u8,
    pub(crate) lost_hints: u8,
    pub(crate) forged_hints: u8,
    /// Connections C and R that die with what they carry.
    pub(crate) disconnects: u8,
    /// Subscribers that are cut off, and come back later.
    pub(crate) deafenings: u8,
    pub(crate) force_releases: u8,
    /// The server loses everything.
    pub(crate) data_losses: u8,
    /// The queue key alone is lost (it has an expiry).
    pub(crate) queue_losses: u8,
    /// Futures that nobody polls any more.
    pub(crate) dozes: u8,
    /// Ticks in which one process's clock stands still while the others go on.
    pub(crate) slow_ticks: u8,
    pub(crate) cancels: u8,
}

/// Bounds in ticks. Past them an invariant is violated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// I4: a live task waits, and no live holder uses the lock.
    pub(crate) idle: Option<u8>,
    /// I5: a live batch stands neither in the queue nor in the lock.
    pub(crate) outside: Option<u8>,
    /// I3: the lock is held in the name of a live process that does not know the token.
    pub(crate) stray: Option<u8>,
    /// A body whose lock was taken away from outside goes on.
    pub(crate) robbed: Option<u8>,
}

/// A scenario's parameters.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) processes: u8,
    pub(crate) keys: u8,
    pub(crate) asks: Vec<Ask>,
    /// Which of `asks` a process may use; all when empty.
    pub(crate) who_asks: Vec<Vec<u8>>,
    /// Calls each process may make in all; `None`: any number.
    pub(crate) arrivals: Option<u8>,
    /// Calls of one process under way at once.
    pub(crate) tasks: u8,
    /// Ticks a command and its answer may be under way in all. 0: every message takes less than a
    /// tick; otherwise hints may take for ever.
    pub(crate) lag: u8,
    /// An answer is delivered with the command's execution.
    pub(crate) prompt: bool,
    /// A message is delivered as it is published.
    pub(crate) prompt_hints: bool,
    /// `SET NX` first. Without: `acquire` always, as on a cluster.
    pub(crate) fast_path: bool,
    /// `SET` and `INCR` are two commands.
    pub(crate) split_fast_path: bool,
    /// The first caller's fast path may be sent later than another caller's `acquire`.
    pub(crate) take_over: bool,
    pub(crate) margin: u8,
    pub(crate) claim: u8,
    pub(crate) look: u8,
    pub(crate) renew_every: u8,
    /// R4b: ticks for which a sealed batch that is not owned admits arrivals.
    pub(crate) grace: u8,
    /// R6: how old the last answer may be at a local hand-over.
    pub(crate) contact: u8,
    /// R5: hand-overs under one F (1024 in the product).
    pub(crate) steps: u8,
    /// For how long bytes of a dead connection may still run.
    pub(crate) stale_life: Option<u8>,
    /// `not_after` of an acquire, in ticks from its sending.
    pub(crate) not_after: Option<u8>,
    /// R13: a process that cannot hear uses mode `n`. Otherwise it looks every tick.
    pub(crate) mode_n: bool,
    /// Server time counts, and fences are compared with those seen before (R2, `raise`).
    pub(crate) server_time: bool,
    /// A command of a dead connection may run more than once.
    pub(crate) doubles: bool,
    /// A lost subscription is noticed only when it comes back.
    pub(crate) silent: bool,
    /// `x` never arrives.
    pub(crate) taken_unheard: bool,
    /// I7: an expiry lets one newcomer pass, which only a fast path can.
    pub(crate) expiry_excuses: bool,
    /// I7 is checked.
    pub(crate) order: bool,
    pub(crate) faults: Faults,
    pub(crate) bounds: Bounds,
    pub(crate) mutant: Option<Mutant>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            processes: 2,
            keys: 1,
            asks: vec![Ask::default()],
            who_asks: Vec::new(),
            arrivals: None,
            tasks: 1,
            lag: 0,
            prompt: false,
            prompt_hints: false,
            fast_path: true,
            split_fast_path: false,
            take_over: false,
            margin: 0,
            claim: 2,
            look: 5,
            renew_every: 1,
            grace: 0,
            contact: 1,
            steps: 2,
            stale_life: Some(2),
            not_after: None,
            mode_n: false,
            server_time: false,
            doubles: false,
            silent: false,
            taken_unheard: false,
            expiry_excuses: true,
            order: false,
            faults: Faults::default(),
            bounds: Bounds::default(),
            mutant: None,
        }
    }
}

impl Config {
    /// Whether the checker runs this mutant.
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// No age is told apart past this one.
    pub(crate) fn oldest(&self) -> u8 {
        let longest = self.asks.iter().map(|ask| ask.ttl).max().unwrap_or_default();
        self.lag.min(longest + 1)
    }
}
