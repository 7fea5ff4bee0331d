//! What one scenario allows: sizes, times, and how many faults may happen.

use distlock_core::line::Limit;

use crate::mutants::Mutant;

/// One way of asking for locks. Times are in ms.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// One key, or two in order.
    pub(crate) keys: Vec<u8>,
    /// How many may hold the lock.
    pub(crate) limit: Limit,
    pub(crate) ttl: u32,
    pub(crate) renew: bool,
    /// False is `wait = none`.
    pub(crate) patient: bool,
    pub(crate) min_hold: u32,
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
    /// The server saves its state, and comes back with what it has saved.
    pub(crate) saves: u8,
    pub(crate) restores: u8,
    /// The queue key alone is lost (it has an expiry).
    pub(crate) queue_losses: u8,
    /// Futures that are no longer polled.
    pub(crate) dozes: u8,
    /// Ticks in which one process's clock stands still while the others go on.
    pub(crate) slow_ticks: u8,
    pub(crate) cancels: u8,
    /// Answers that are not waited for.
    pub(crate) timeouts: u8,
    /// R15: questions of processes to each other, and messages that only look like one.
    pub(crate) questions: u8,
}

/// Bounds in ticks. Past them an invariant is violated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// I4: a live task waits, and no live holder uses the lock.
    pub(crate) idle: Option<u16>,
    /// I5: a live batch stands neither in the queue nor in the lock.
    pub(crate) outside: Option<u16>,
    /// I3: the lock is held in the name of a live process that does not know the token.
    pub(crate) stray: Option<u16>,
    /// A body whose lock was taken away from outside goes on.
    pub(crate) robbed: Option<u16>,
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
    /// The same for each process, where it differs.
    pub(crate) arrivals_of: Vec<u8>,
    /// Calls of one process under way at once.
    pub(crate) tasks: u8,
    /// The same for each process, where it differs.
    pub(crate) tasks_of: Vec<u8>,
    /// A holder leaves room for so many others under its counter value, as if many had been before it.
    pub(crate) few_tokens: bool,
    /// ms of one tick, and by how many one tick of a slow clock is shorter.
    pub(crate) tick: u32,
    pub(crate) drift: u32,
    /// Ticks a command and its answer may be under way in all. 0: every message takes less than a
    /// tick; otherwise hints may take for ever.
    pub(crate) lag: u8,
    /// An answer is delivered with the command's execution.
    pub(crate) prompt: bool,
    /// A message is delivered as it is published.
    pub(crate) prompt_hints: bool,
    /// What the engine's thread is asked to do is done at once.
    pub(crate) prompt_engine: bool,
    /// `SET NX` first. Without: `acquire` always, as on a cluster.
    pub(crate) fast_path: bool,
    /// `SET` and `INCR` are two commands.
    pub(crate) split_fast_path: bool,
    /// The first caller's fast path comes later than another caller's `acquire`, behind which it is not
    /// sent any more.
    pub(crate) take_over: bool,
    /// It is sent all the same: that it looks and that it sends are two steps.
    pub(crate) late_tries: bool,
    /// For how many ticks bytes of a dead connection may still run.
    pub(crate) stale_life: Option<u8>,
    /// `not_after` of an acquire, in ms from its sending.
    pub(crate) not_after: Option<u32>,
    /// Server time counts, and fences are compared with those seen before (R2, `raise`).
    pub(crate) server_time: bool,
    /// Connection C does not die.
    pub(crate) only_renewals_die: bool,
    /// A command of a dead connection may run more than once.
    pub(crate) doubles: bool,
    /// A lost subscription is noticed only when it comes back.
    pub(crate) silent: bool,
    /// `x` never arrives.
    pub(crate) taken_unheard: bool,
    /// Tasks that are not polled may be polled again.
    pub(crate) wakes: bool,
    /// Another process starts in the place of one that died.
    pub(crate) restarts: bool,
    /// A holder that has one lock alone may go on as a reader.
    pub(crate) downgrades: bool,
    /// Faults are not counted.
    pub(crate) endless: bool,
    /// I7: an expiry lets one newcomer pass, which only a fast path can.
    pub(crate) expiry_excuses: bool,
    /// Calls of this kind need not get the lock.
    pub(crate) hopeless: Option<u8>,
    /// I7: for how many ticks a sealed batch admits arrivals, which in the product are 5 ms.
    pub(crate) grace: u32,
    /// I7 is checked up to the first expiry only.
    pub(crate) expiry_ends_order: bool,
    /// I7 is checked.
    pub(crate) order: bool,
    pub(crate) faults: Faults,
    pub(crate) bounds: Bounds,
    pub(crate) mutant: Option<Mutant>,
}

impl Default for Ask {
    fn default() -> Self {
        let (keys, limit) = (vec![0], Limit::ALONE);
        Self { keys, limit, ttl: 3000, renew: false, patient: true, min_hold: 0 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            processes: 2,
            keys: 1,
            asks: vec![Ask::default()],
            who_asks: Vec::new(),
            arrivals: None,
            arrivals_of: Vec::new(),
            tasks: 1,
            tasks_of: Vec::new(),
            few_tokens: false,
            tick: 1000,
            drift: 10,
            lag: 0,
            prompt: false,
            prompt_hints: false,
            prompt_engine: true,
            fast_path: true,
            split_fast_path: false,
            take_over: false,
            late_tries: false,
            stale_life: Some(2),
            not_after: None,
            server_time: false,
            only_renewals_die: false,
            doubles: false,
            silent: false,
            taken_unheard: false,
            wakes: false,
            restarts: false,
            downgrades: false,
            endless: false,
            expiry_excuses: true,
            hopeless: None,
            grace: 0,
            expiry_ends_order: false,
            order: false,
            faults: Faults::default(),
            bounds: Bounds::default(),
            mutant: None,
        }
    }
}

impl Config {
    /// How many calls a process may make.
    pub(crate) fn arrivals_at(&self, place: u16) -> u8 {
        let own = self.arrivals_of.get(usize::from(place)).copied();
        own.or(self.arrivals).unwrap_or(u8::MAX)
    }

    /// Whether the checker runs this mutant.
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// All ages of a message from this one on count as the same.
    pub(crate) fn oldest(&self) -> u8 {
        self.lag
    }
}
