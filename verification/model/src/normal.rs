//! States that differ in names only are one: tokens are named in the order in which they are met,
//! tickets, fences and times become ranks.

use crate::config::Config;
use crate::invariants;
use crate::network::{Command, Result};
use crate::process::Lease;
use crate::server::Acquired;
use crate::token::Token;
use crate::world::World;

impl World {
    /// Every token.
    fn tokens(&mut self, see: &mut impl FnMut(&mut Token)) {
        for key in &mut self.server.keys {
            key.lock.iter_mut().for_each(|lock| see(&mut lock.token));
            key.queue.iter_mut().for_each(|entry| see(&mut entry.token));
        }
        for process in &mut self.processes {
            for state in &mut process.keys {
                state.batches.iter_mut().for_each(|batch| see(&mut batch.token));
            }
            for line in [&mut process.main, &mut process.renewals] {
                for sent in &mut line.requests {
                    sent.command.token_mut().into_iter().for_each(&mut *see);
                }
                for answer in &mut line.answers {
                    answer.command.token_mut().into_iter().for_each(&mut *see);
                    if let Result::Released(released) = &mut answer.result {
                        released.to.iter_mut().for_each(&mut *see);
                    }
                }
            }
            for sent in &mut process.stale {
                sent.command.token_mut().into_iter().for_each(&mut *see);
            }
            process.hints.iter_mut().for_each(|hint| see(&mut hint.token));
            process.chores.iter_mut().for_each(|chore| see(&mut chore.token));
            for state in &mut process.keys {
                state.repair.iter_mut().for_each(|repair| see(&mut repair.token));
            }
        }
    }

    /// Every ticket, fence and time. Only their order matters.
    fn numbers(&mut self, see: &mut impl FnMut(&mut u16)) {
        see(&mut self.server.fence);
        see(&mut self.server.clock);
        for key in &mut self.server.keys {
            key.queue.iter_mut().for_each(|entry| see(&mut entry.ticket));
        }
        for highest in &mut self.ghost.highest {
            see(&mut highest.fence);
        }
        for process in &mut self.processes {
            see(&mut process.seen);
            for line in [&mut process.main, &mut process.renewals] {
                for sent in &mut line.requests {
                    numbers_of_command(&mut sent.command, see);
                }
                for answer in &mut line.answers {
                    numbers_of_command(&mut answer.command, see);
                    numbers_of_result(&mut answer.result, see);
                }
            }
            for sent in &mut process.stale {
                numbers_of_command(&mut sent.command, see);
            }
            for batch in process.keys.iter_mut().flat_map(|state| &mut state.batches) {
                see(&mut batch.ticket);
                if let Some(Lease { fence, next_fence, last, .. }) = batch.lease_mut() {
                    see(fence);
                    see(next_fence);
                    last.iter_mut().for_each(|last| see(&mut last.fence));
                }
            }
        }
    }

    /// Equal for our purposes is equal: numbers become ranks, epochs keep only the gaps that matter.
    pub(crate) fn normalise(&mut self, cfg: &Config) {
        let mut all = Vec::new();
        self.numbers(&mut |number| all.push(*number));
        all.push(0);
        all.sort_unstable();
        all.dedup();
        let rank = |number: &u16| all.binary_search(number).unwrap_or_default() as u16;
        // A counter that begins again stays below what was seen.
        let gap = if cfg.server_time { 8 } else { 1 };
        self.numbers(&mut |number| *number = rank(number) * gap);
        let mut names = [[u8::MAX; 32]; 4];
        let mut next = [0_u8; 4];
        self.tokens(&mut |token| {
            let process = usize::from(token.process);
            let name = &mut names[process][usize::from(token.seq)];
            if *name == u8::MAX {
                *name = next[process];
                next[process] += 1;
            }
            token.seq = *name;
        });
        self.names = next;
        invariants::normalise(self, cfg);
    }
}
fn numbers_of_command(command: &mut Command, see: &mut impl FnMut(&mut u16)) {
    match command {
        Command::Take { seen, .. } | Command::Draw { seen, .. } => see(seen),
        Command::Acquire { ticket, .. } => see(ticket),
        Command::Raise { least } => see(least),
        Command::Release { .. } | Command::Renew { .. } => {}
    }
}

fn numbers_of_result(result: &mut Result, see: &mut impl FnMut(&mut u16)) {
    match result {
        Result::Taken { fence, .. }
        | Result::Acquired(Acquired::Granted { fence, .. })
        | Result::Renewed(Some((_, fence)))
        | Result::Raised { fence } => see(fence),
        Result::Acquired(Acquired::Queued { ticket, .. }) => see(ticket),
        Result::Acquired(Acquired::Stale) | Result::Released(_) | Result::Renewed(None) => {}
    }
}
