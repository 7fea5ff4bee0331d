//! The watchdog: sends the renewals that lines ask for (R10).
//!
//! Renewals that are due together go out in one pipeline, very many in several, each with a time of
//! its own for its answer: one that takes too long must not be the loss of all leases. A renewal that
//! fails leaves the lease in doubt: its old deadline stands, and it is tried again inside what is left.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::core::{Line, Owned, Renew};
use super::effects::{Live, renewal};
use super::lease::Lease;
use super::table::LockTable;
use crate::name::LockName;
use crate::observe::Verb;
use crate::shield::shielded;
use crate::store::{Fault, Renewal, Renewed, Store};

/// So many renewals go out in one pipeline.
const TOGETHER: usize = 1000;

/// Whose turn it is to renew very many leases, for each part of the store.
#[derive(Default)]
pub(super) struct Turns {
    of_parts: Mutex<HashMap<usize, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    fn of(&self, part: usize) -> Arc<tokio::sync::Mutex<()>> {
        let mut parts = self.of_parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.entry(part).or_default().clone()
    }
}

impl LockTable {
    /// Sends renewals. On the engine's thread, or wherever a store answers at once.
    pub(super) fn renew_soon(self: &Arc<Self>, renewals: Vec<Renew<Live>>) {
        if self.agenda.is_the_engines() {
            for (part, renewals) in by_part(renewals, &**self.store()) {
                let table = self.clone();
                self.background().spawn(async move { renew_all(part, renewals, table).await });
            }
            return;
        }
        let sent = (self.clock(), self.clock().now());
        let op = self.store.clone().renew(sendable(&renewals));
        let op = self.observers().timed(Verb::Renew, sent, op);
        let table = self.clone();
        self.follow(op, move |answer| answered(&renewals, answer, &table));
    }
}

/// The lease that has been held for longest, of those whose callers have it.
fn oldest_hold(lock: &LockName, table: &LockTable) -> Option<Arc<Lease>> {
    let oldest = |line: &Line<Live>| {
        let held = line.held().map(|(_, holder)| &holder.caller);
        let in_hand = held.filter(|lease| lease.is_in_hand());
        in_hand.min_by_key(|lease| lease.account().since()).cloned()
    };
    table.read(lock, oldest).flatten()
}

/// Sorts them by the part of the store that keeps their locks: one that is down must not keep the answers
/// of the others waiting.
fn by_part(renewals: Vec<Renew<Live>>, store: &dyn Store) -> BTreeMap<usize, Vec<Renew<Live>>> {
    let mut parts = BTreeMap::<usize, Vec<_>>::new();
    for renewal in renewals {
        parts.entry(store.part(&renewal.token.lock)).or_default().push(renewal);
    }
    parts
}

async fn renew_all(part: usize, mut renewals: Vec<Renew<Live>>, table: Arc<LockTable>) {
    let many = renewals.len() > TOGETHER;
    if many {
        renewals.sort_by_key(|renewal| renewal.deadline);
    }
    for together in renewals.chunks(TOGETHER) {
        // One of many waits for the one before, and its time begins when it is sent: a server that
        // needs longer for all of them than for one answers each in time. A few do not wait for others.
        let turn = if many { Some(table.many_renewals.of(part).lock_owned().await) } else { None };
        let op = table.store().clone().renew(sendable(together));
        let op = table.observers().timed(Verb::Renew, (table.clock(), table.clock().now()), op);
        match shielded(op).await {
            Some(answer) => answered(together, answer, &table),
            None => {
                let fault = Fault::given_up();
                together.iter().for_each(|renew| in_doubt(renew, fault.clone(), &table));
            }
        }
        drop(turn);
    }
}

fn answered(renewals: &[Renew<Live>], answer: Result<Renewed, Fault>, table: &Arc<LockTable>) {
    match answer {
        Ok(Renewed { sent, answers }) => {
            for (renew, answer) in renewals.iter().zip(answers) {
                match answer {
                    Ok(owned) => {
                        let is_ours = matches!(owned, Owned::Yes { .. });
                        table.change_known(&renew.token.lock, |line, turn| {
                            line.renewed(renew, sent, Ok(owned), table.clock().now(), turn);
                        });
                        if is_ours {
                            let lock = &renew.token.lock;
                            table.observers().renewed(lock);
                            lasts(lock, table);
                        }
                    }
                    Err(fault) => in_doubt(renew, fault, table),
                }
            }
        }
        Err(fault) => {
            renewals.iter().for_each(|renew| in_doubt(renew, fault.clone(), table));
        }
    }
}

fn in_doubt(renew: &Renew<Live>, fault: Fault, table: &Arc<LockTable>) {
    let now = table.clock().now();
    table.change_known(&renew.token.lock, |line, turn| {
        line.renewed(renew, now, Err::<Owned, _>(fault.clone()), now, turn);
    });
    table.observers().renew_failed(&renew.token.lock, fault);
    lasts(&renew.token.lock, table);
}

/// A lock is still held, whatever became of its renewal.
fn lasts(lock: &LockName, table: &LockTable) {
    if table.observers().has_metrics()
        && let Some(oldest) = oldest_hold(lock, table)
    {
        table.observers().lasts(oldest.account(), table.clock().now());
    }
}

fn sendable(renewals: &[Renew<Live>]) -> Vec<Renewal> {
    renewals.iter().cloned().map(renewal).collect()
}
