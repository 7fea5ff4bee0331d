//! States that differ in names only are one: tokens, tasks and batches are named in the order in which
//! they are met, tickets, fences and times become ranks, and moments count from now.

use std::time::Duration;

use crate::config::Config;
use crate::driver::{Moment, START, TOKENS_PER_FENCE, Visit, millis};
use crate::invariants;
use crate::token::Token;
use crate::world::World;

/// What there is, in the order in which it is met.
#[derive(Default)]
struct Seen {
    tokens: Vec<Token>,
    numbers: Vec<u64>,
    fencing: Vec<u64>,
    /// Of one process.
    tasks: Vec<u32>,
}

impl Visit for Seen {
    fn token(&mut self, token: &mut Token) {
        if !self.tokens.contains(token) {
            self.tokens.push(*token);
        }
    }

    fn number(&mut self, number: &mut u64) {
        self.numbers.push(*number);
    }

    fn fencing(&mut self, token: &mut u64) {
        self.numbers.push(*token / TOKENS_PER_FENCE);
        self.fencing.push(*token);
    }

    fn task(&mut self, task: &mut u32) {
        if !self.tasks.contains(task) {
            self.tasks.push(*task);
        }
    }

    fn moment(&mut self, _: &mut Moment) {}

    fn batch(&mut self, _: &mut u64) {}
}

/// Gives everything its new name.
struct Renamed<'a> {
    seen: &'a Seen,
    tasks: &'a [u32],
    /// A counter that begins again stays below what was seen.
    gap: u64,
    now: Moment,
    /// What is longer ago than anything counts is all one.
    known: u64,
    batches: u64,
}

impl Renamed<'_> {
    fn rank(&self, number: u64) -> u64 {
        self.seen.numbers.binary_search(&number).unwrap_or_default() as u64 * self.gap
    }
}

impl Visit for Renamed<'_> {
    fn token(&mut self, token: &mut Token) {
        token.seq = position(&self.seen.tokens, token);
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
        let below = self.seen.fencing.iter().filter(|other| (from..*token).contains(other)).count();
        let last = step + 2 > half && step <= half || step + 2 > TOKENS_PER_FENCE;
        let step = if last { step } else { first + below as u64 };
        *token = self.rank(fence) * TOKENS_PER_FENCE + step;
    }

    fn task(&mut self, task: &mut u32) {
        *task = position(self.tasks, task) + 1;
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

fn position<T: PartialEq>(list: &[T], wanted: &T) -> u32 {
    list.iter().position(|other| other == wanted).map_or(u32::MAX, |at| at as u32)
}

impl World {
    fn visit_server(&mut self, with: &mut impl Visit) {
        with.number(&mut self.server.fence);
        with.number(&mut self.server.clock);
        for key in &mut self.server.keys {
            key.lock.holders.iter_mut().for_each(|holder| with.token(&mut holder.token));
            for entry in &mut key.queue {
                with.number(&mut entry.ticket);
                with.token(&mut entry.token);
            }
        }
        let highest = self.ghost.highest.iter_mut().chain(&mut self.ghost.highest_alone);
        highest.for_each(|token| with.fencing(token));
        let noted = self.ghost.outside.iter_mut().chain(&mut self.ghost.stray);
        let noted = noted.chain(&mut self.ghost.robbed);
        noted.for_each(|noted| with.token(&mut noted.token));
        self.ghost.outdated.iter_mut().for_each(|(_, token)| with.token(token));
    }

    /// Equal for our purposes is equal.
    pub(crate) fn normalise(&mut self, cfg: &Config) {
        self.take_started();
        let mut seen = Seen { numbers: vec![0], ..Seen::default() };
        self.visit_server(&mut seen);
        let mut tasks = Vec::with_capacity(self.processes.len());
        for process in &mut self.processes {
            process.forget();
            process.visit(&mut seen);
            tasks.push(std::mem::take(&mut seen.tasks));
        }
        seen.numbers.sort_unstable();
        seen.numbers.dedup();
        seen.fencing.sort_unstable();
        seen.fencing.dedup();
        let gap = if cfg.server_time { 8 } else { 1 };
        let longest = cfg.asks.iter().map(|ask| ask.ttl.max(ask.min_hold)).max();
        let known = millis(longest.unwrap_or_default()) + Duration::from_secs(2);
        let known = u64::try_from(known.as_nanos()).unwrap_or(u64::MAX);
        let (now, batches) = (START, 0);
        let mut names = Renamed { seen: &seen, tasks: &[], gap, now, known, batches };
        self.visit_server(&mut names);
        for (process, tasks) in self.processes.iter_mut().zip(&tasks) {
            (names.tasks, names.now, names.batches) = (tasks, process.now, 0);
            process.visit(&mut names);
            process.rest(seen.tokens.len() as u32, tasks.len() as u32, names.batches);
        }
        invariants::normalise(self, cfg);
    }
}
