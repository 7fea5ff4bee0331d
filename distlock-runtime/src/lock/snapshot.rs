//! A snapshot of what this process holds and waits for, for others that ask (R15) and for its own manager.
//! Taking it changes nothing.

use std::sync::Arc;

use distlock_core::clock::{Clock, Moment};
use distlock_core::line::{Batch, Line, Stage};
use distlock_core::name::StoredName;
use distlock_core::process_info::Process;
use distlock_core::store::ProcessMessage;
use distlock_core::store::owner::Owner;
use distlock_core::token::Token;

use super::effects::Live;
use super::services::Services;
use super::table::{LockTable, SHARDS};
use crate::peers::{Asker, HeldLock, LONGEST_MESSAGE, ReportWriter, Subject, WaitingCalls};

impl LockTable {
    /// Returns what this process has of one lock: its leases, and the places at which calls of it wait, in order.
    pub(crate) fn has(&self, stored: &StoredName) -> (Vec<HeldLock>, Vec<WaitingCalls>) {
        let now = self.services.clock.now();
        let both = |line: &Line<Live>| (held(line, now).collect(), places(line, now).collect());
        self.read(stored, both).unwrap_or_default()
    }

    /// Answers a process that asks under this prefix: on the engine's thread, once a second. // R15
    pub(super) fn asked(self: &Arc<Self>, prefix: &str, question: &str) {
        let now = Clock::Boottime.now();
        let Some(pause) = self.answers.asked(prefix, question, now) else { return };
        let table = self.clone();
        self.services.background.spawn(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            table.answer().await;
        });
    }

    async fn answer(self: &Arc<Self>) {
        let askers = self.answers.take(Clock::Boottime.now());
        // All of them together get no more than one would.
        let longest = LONGEST_MESSAGE / askers.len().max(1);
        let mut messages = Vec::with_capacity(askers.len());
        for asker in askers {
            let account = match &self.services.itself {
                Some(itself) => self.account(&itself.process(), &asker, longest).await,
                // At once, so that the other process does not wait for it.
                None => "{}".to_owned(),
            };
            let text = format!("a {} {account}", asker.nonces.join(","));
            messages.push(ProcessMessage { prefix: asker.prefix, to: asker.process, text });
        }
        let Services { clock, store, command_timeout, .. } = &self.services;
        let limit = clock.now().after(*command_timeout);
        // If this fails, the askers get no answer.
        let _ = store.clone().tell(messages, limit).await;
    }

    /// Writes down what this process has under the asker's prefix, beginning with what it asked about.
    async fn account(&self, process: &Process, asker: &Asker, longest: usize) -> String {
        let longest =
            longest.saturating_sub(asker.nonces.iter().map(|nonce| nonce.len() + 1).sum());
        let mut writer = ReportWriter::new(process, longest);
        let now = self.services.clock.now();
        if let Subject::Watch(_) = asker.subject {
            let tally = self.services.observers.tally();
            tally.watched(now);
            let (counted, calls) = tally.counted(&asker.prefix, now);
            writer.counted(counted, calls);
        }
        let is_asked = |stored: &str| asker.subject.locks().iter().any(|asked| asked == stored);
        for stored in asker.subject.locks() {
            let stored = StoredName::new(stored.clone());
            self.read(&stored, |line| write(line, now, &mut writer));
        }
        for shard in 0..SHARDS {
            self.read_shard(shard, |lock, line| {
                if lock.prefix() == asker.prefix && !is_asked(lock.stored()) {
                    write(line, now, &mut writer);
                }
                !writer.is_full()
            });
            if writer.is_full() {
                break;
            }
            // Renewals and all else on this thread have their turn.
            tokio::task::yield_now().await;
        }
        writer.end()
    }
}

fn write(line: &Line<Live>, now: Moment, writer: &mut ReportWriter) {
    held(line, now).for_each(|held| writer.held(held));
    places(line, now).for_each(|place| writer.waiting(place));
}

fn held(line: &Line<Live>, now: Moment) -> impl Iterator<Item = HeldLock> {
    line.held().map(move |(token, holder)| {
        let lock = &holder.caller.lock;
        HeldLock {
            stored: lock.stored().to_string(),
            lease: lease(token),
            name: lock.name().to_owned(),
            template: lock.template().map(str::to_owned),
            age: now.since(holder.caller.account.since()),
            fencing_token: holder.fencing_token,
        }
    })
}

fn places(line: &Line<Live>, now: Moment) -> impl Iterator<Item = WaitingCalls> {
    line.batches().filter_map(move |batch| {
        let (seat, request) = batch.waiters.iter().next()?;
        let lock = &seat.lock;
        Some(WaitingCalls {
            stored: lock.stored().to_string(),
            lease: lease(token(batch)),
            name: lock.name().to_owned(),
            template: lock.template().map(str::to_owned),
            age: now.since(request.asked),
            calls: batch.waiters.live(),
        })
    })
}

/// Returns the token under which a batch stands at the store.
fn token(batch: &Batch<Live>) -> &Owner {
    match &batch.stage {
        Stage::Leading { token, .. } => token,
        Stage::Queued(queued) => &queued.token,
        Stage::Owned(claims) => &claims.first().token,
    }
}

fn lease(token: &Owner) -> String {
    Token::parse(&token.token).map_or("", |token| token.number).to_owned()
}
