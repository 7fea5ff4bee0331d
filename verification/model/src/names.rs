//! What a state mentions, in the order in which it is met, and the names that it gets from there.

use crate::driver::{Moment, Process, START, Shared, TOKENS_PER_FENCE, Task, Visit};
use crate::token::Token;

/// Tokens, numbers and tasks that are mentioned somewhere.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) tokens: Vec<Token>,
    /// Tickets and counter values.
    pub(crate) numbers: Vec<u64>,
    /// Fencing tokens.
    pub(crate) fencing: Vec<u64>,
    /// Of one process.
    pub(crate) tasks: Vec<u32>,
}

impl Visit for Names {
    fn token(&mut self, token: &mut Token) {
        add(&mut self.tokens, *token);
    }

    fn number(&mut self, number: &mut u64) {
        add(&mut self.numbers, *number);
    }

    fn fencing(&mut self, token: &mut u64) {
        add(&mut self.numbers, *token / TOKENS_PER_FENCE);
        add(&mut self.fencing, *token);
    }

    fn task(&mut self, task: &mut u32) {
        add(&mut self.tasks, *task);
    }

    fn moment(&mut self, _: &mut Moment) {}

    fn batch(&mut self, _: &mut u64) {}
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

impl Names {
    /// Those in a process.
    pub(crate) fn of(process: &mut Process) -> Self {
        let mut names = Self::default();
        process.visit(&mut names);
        names
    }

    /// None, in what was taken up by others.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.numbers.clear();
        self.fencing.clear();
        self.tasks.clear();
    }

    /// What is mentioned elsewhere, behind what is mentioned here.
    pub(crate) fn extend(&mut self, others: &Self) {
        others.tokens.iter().for_each(|token| add(&mut self.tokens, *token));
        others.numbers.iter().for_each(|number| add(&mut self.numbers, *number));
        others.fencing.iter().for_each(|token| add(&mut self.fencing, *token));
    }

    /// How many tokens of this process there are.
    fn tokens_of(&self, process: u16) -> u32 {
        self.tokens.iter().filter(|token| token.process == process).count() as u32
    }
}

/// The ticks in which the waiters arrived, of which the order is kept, and the distances as far as they
/// count.
#[derive(Debug)]
pub(crate) struct Epochs {
    /// In order, with their names. Empty where no order is kept.
    ranks: Vec<(u32, u32)>,
}

impl Epochs {
    /// Of these, and of the present one.
    pub(crate) fn new(mut epochs: Vec<u32>, present: u32, gap: u32) -> Self {
        epochs.sort_unstable();
        epochs.dedup();
        epochs.push(present.max(epochs.last().copied().unwrap_or_default()));
        let (mut rank, mut before) = (1, epochs[0]);
        let ranks = epochs.into_iter().map(|epoch| {
            rank += (epoch - before).min(gap);
            before = epoch;
            (epoch, rank)
        });
        Self { ranks: ranks.collect() }
    }

    pub(crate) fn unordered() -> Self {
        Self { ranks: Vec::new() }
    }

    pub(crate) fn first(&self) -> u32 {
        self.ranks.first().map_or(u32::MAX, |(epoch, _)| *epoch)
    }

    pub(crate) fn of(&self, epoch: u32) -> u32 {
        let at = self.ranks.partition_point(|(other, _)| *other < epoch);
        self.ranks.get(at).map_or(0, |(_, rank)| *rank)
    }

    /// What is kept of a task's ghosts: its epochs, its licence, and that it has slept.
    fn of_task(&self, task: &Task) -> (u32, u32, u8, bool) {
        match (self.ranks.is_empty(), task.waits()) {
            (true, _) => (0, 0, 0, task.slept),
            (false, true) => (self.of(task.epoch), self.of(task.stands), task.licence, task.slept),
            (false, false) => (0, 0, 0, false),
        }
    }
}

/// Gives everything its new name.
#[derive(Clone, Copy)]
pub(crate) struct Renaming<'a> {
    /// All that the state mentions, the numbers in order.
    pub(crate) all: &'a Names,
    pub(crate) epochs: &'a Epochs,
    /// Of one process.
    pub(crate) tasks: &'a [u32],
    /// A counter that begins again stays below what was seen.
    pub(crate) gap: u64,
    pub(crate) now: Moment,
    /// What is longer ago than anything counts is all one.
    pub(crate) known: u64,
    pub(crate) batches: u64,
}

impl Renaming<'_> {
    fn rank(&self, number: u64) -> u64 {
        self.all.numbers.binary_search(&number).unwrap_or_default() as u64 * self.gap
    }

    /// Every new name in a process.
    pub(crate) fn of(self, process: &Shared, mut name: impl FnMut(u64)) {
        let (mut naming, names) = (self, process.names());
        name(self.all.tokens_of(process.identity).into());
        for mut token in names.tokens.iter().copied() {
            naming.token(&mut token);
            name(token.seq.into());
        }
        names.numbers.iter().for_each(|number| name(self.rank(*number)));
        for mut token in names.fencing.iter().copied() {
            naming.fencing(&mut token);
            name(token);
        }
        for task in &process.tasks {
            let (epoch, stands, licence, slept) = self.epochs.of_task(task);
            name(u64::from(epoch) << 32 | u64::from(stands));
            name(u64::from(licence) << 8 | u64::from(slept));
        }
    }

    /// Nothing in it would get another name.
    pub(crate) fn keeps(self, process: &Shared) -> bool {
        let same_token = |token: &Token| {
            let (mut naming, mut renamed) = (self, *token);
            naming.token(&mut renamed);
            renamed == *token
        };
        let same_fencing = |token: &u64| {
            let (mut naming, mut renamed) = (self, *token);
            naming.fencing(&mut renamed);
            renamed == *token
        };
        let same_task = |task: &Task| {
            (task.epoch, task.stands, task.licence, task.slept) == self.epochs.of_task(task)
        };
        let names = process.names();
        process.is_named()
            && process.next_token == self.all.tokens_of(process.identity)
            && names.tokens.iter().all(same_token)
            && names.numbers.iter().all(|number| self.rank(*number) == *number)
            && names.fencing.iter().all(same_fencing)
            && process.tasks.iter().all(same_task)
    }

    /// A process with its new names.
    pub(crate) fn renamed(self, process: &Shared) -> Shared {
        let tasks = &process.names().tasks;
        let mut renamed = Process::clone(process);
        let mut names = Renaming { tasks, now: process.now, batches: 0, ..self };
        renamed.visit(&mut names);
        let tokens = self.all.tokens_of(process.identity);
        renamed.rest(tokens, tasks.len() as u32, names.batches);
        for task in &mut renamed.tasks {
            (task.epoch, task.stands, task.licence, task.slept) = self.epochs.of_task(task);
        }
        Shared::named(renamed)
    }
}

impl Visit for Renaming<'_> {
    /// Tokens are numbered for each process, so that what one does changes the names in few others.
    fn token(&mut self, token: &mut Token) {
        let before = self.all.tokens.iter().take_while(|other| *other != token);
        token.seq = before.filter(|other| other.process == token.process).count() as u32;
    }

    fn number(&mut self, number: &mut u64) {
        *number = self.rank(*number);
    }

    /// How many holders came before under one counter value matters where half of it is used, and
    /// where all of it is.
    fn fencing(&mut self, token: &mut u64) {
        let (fence, step) = (*token / TOKENS_PER_FENCE, *token % TOKENS_PER_FENCE);
        let half = TOKENS_PER_FENCE / 2;
        let first = match step {
            step if step > half => half + 1,
            step if step > 0 && step < half => 1,
            _ => step,
        };
        let from = fence * TOKENS_PER_FENCE + first;
        let below = self.all.fencing.iter().filter(|other| (from..*token).contains(other)).count();
        let last = step + 2 > half && step <= half || step + 2 > TOKENS_PER_FENCE;
        let step = if last { step } else { first + below as u64 };
        *token = self.rank(fence) * TOKENS_PER_FENCE + step;
    }

    fn task(&mut self, task: &mut u32) {
        let place = self.tasks.iter().position(|other| other == task);
        *task = place.map_or(0, |place| place as u32 + 1);
    }

    fn moment(&mut self, moment: &mut Moment) {
        const NEVER: u64 = u64::MAX / 2;
        let (start, now, at) = (START.as_nanos(), self.now.as_nanos(), moment.as_nanos());
        *moment = match at {
            at if at > NEVER => return,
            at if at >= now => Moment::from_nanos(start + (at - now)),
            at => Moment::from_nanos(start - (now - at).min(self.known)),
        };
    }

    fn batch(&mut self, batch: &mut u64) {
        self.batches += 1;
        *batch = self.batches;
    }
}
