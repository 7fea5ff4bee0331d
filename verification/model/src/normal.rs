//! States that differ in names only are one: tokens, tasks and batches are named in the order in which
//! they are met, tickets, fences and times become ranks, and moments count from now.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::driver::{START, Visit, millis};
use crate::fingerprint::Mixer;
use crate::names::{Epochs, Names, Renaming};
use crate::server::Server;
use crate::setting::Setting;
use crate::world::World;

fn visit_keys(server: &mut Server, with: &mut impl Visit) {
    for key in &mut server.keys {
        key.lock.holders.iter_mut().for_each(|holder| with.token(&mut holder.token));
        for entry in &mut key.queue {
            with.number(&mut entry.ticket);
            with.token(&mut entry.token);
        }
    }
}

impl World {
    fn visit_server(&mut self, with: &mut impl Visit) {
        with.number(&mut self.server.fence);
        with.number(&mut self.server.clock);
        let saved = self.saved.iter_mut();
        for server in saved {
            with.number(&mut server.fence);
            with.number(&mut server.clock);
            visit_keys(server, with);
        }
        visit_keys(&mut self.server, with);
        self.visit_ghost(with);
    }

    fn visit_ghost(&mut self, with: &mut impl Visit) {
        let highest = self.ghost.highest.iter_mut().chain(&mut self.ghost.highest_alone);
        highest.for_each(|token| with.fencing(token));
        let noted = self.ghost.outside.iter_mut().chain(&mut self.ghost.stray);
        let noted = noted.chain(&mut self.ghost.robbed);
        noted.for_each(|noted| with.token(&mut noted.token));
        self.ghost.outdated.iter_mut().for_each(|(_, token)| with.token(token));
    }

    /// Makes states that are equivalent for our purposes equal. Returns the state's fingerprint.
    pub(crate) fn normalise(&mut self, setting: &Setting) -> u64 {
        self.take_started();
        let mut all = setting.names.borrow_mut();
        let all: &mut Names = &mut all;
        all.clear();
        all.numbers.push(0);
        self.visit_server(all);
        for process in &mut self.processes {
            if !process.is_named() {
                setting.settle(process);
            }
            all.extend(process.names());
        }
        all.numbers.sort_unstable();
        let epochs = self.epochs(setting.grace + 1);
        let gap = if setting.server_time { 8 } else { 1 };
        let longest = setting.asks.iter().map(|ask| ask.ttl.max(ask.min_hold)).max();
        let known = millis(longest.unwrap_or_default()) + Duration::from_secs(2);
        let known = u64::try_from(known.as_nanos()).unwrap_or(u64::MAX);
        let (all, epochs) = (&*all, &epochs);
        let mut names = Renaming { all, epochs, tasks: &[], gap, now: START, known, batches: 0 };
        self.visit_server(&mut names);
        for process in &mut self.processes {
            if !names.keeps(process) {
                setting.rename(process, names);
            }
        }
        self.rename_epochs(epochs);
        self.fingerprint()
    }

    fn epochs(&self, gap: u32) -> Epochs {
        if self.ghost.unordered {
            return Epochs::unordered();
        }
        let tasks = self.processes.iter().flat_map(|process| &process.tasks);
        let waiting = tasks.filter(|task| task.waits()).flat_map(|task| [task.epoch, task.stands]);
        Epochs::new(waiting.collect(), self.ghost.epoch, gap)
    }

    fn rename_epochs(&mut self, epochs: &Epochs) {
        // No call that arrived before the first of them can start any more.
        for expired in &mut self.ghost.expired {
            *expired = if *expired < epochs.first() { 0 } else { epochs.of(*expired) };
        }
        self.ghost.epoch = epochs.of(self.ghost.epoch);
    }

    fn fingerprint(&self) -> u64 {
        let mut mixer = Mixer::default();
        self.server.hash(&mut mixer);
        self.saved.hash(&mut mixer);
        self.faults.hash(&mut mixer);
        self.ghost.hash(&mut mixer);
        for process in &self.processes {
            mixer.write_u64(process.fingerprint());
        }
        mixer.finish()
    }
}
