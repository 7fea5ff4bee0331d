//! The watchdog: sends the renewals that lines ask for (R10).
//!
//! Renewals that are due together go out in one pipeline, very many in several, each with a time of
//! its own for its answer: one that takes too long must not be the loss of all leases. A renewal that
//! fails leaves the lease in doubt: its old deadline stands, and it is tried again inside what is left.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use distlock_core::catch_panic::shielded;
use distlock_core::line::{Line, Owned, Renew};
use distlock_core::name::LockName;
use distlock_core::store::{Fault, Renewal, Renewed, Store};
use tokio::sync::OwnedMutexGuard;

use super::effects::{Live, renewal};
use super::lease::Lease;
use super::services::Services;
use super::table::LockTable;
use crate::observe::Verb;

/// How many renewals go out in one pipeline.
const TOGETHER: usize = 1000;

/// Sends renewals. Call this on the engine's thread, or wherever a store answers at once.
pub(super) fn send(table: &Arc<LockTable>, renewals: Vec<Renew<Live>>) {
    let Services { clock, store, observers, background, by_engine, .. } = &table.services;
    if *by_engine {
        for (part, renewals) in by_part(renewals, &**store) {
            background.spawn(renew_all(part, renewals, table.clone()));
        }
        return;
    }
    let op = store.clone().renew(sendable(&renewals));
    let op = observers.timed(Verb::Renew, (*clock, clock.now()), op);
    let own = table.clone();
    table.services.follow(op, move |answer| answered(&renewals, answer, &own));
}

/// Sorts renewals by the part of the store that keeps their locks: one that is down must not keep the answers
/// of the others waiting.
fn by_part(renewals: Vec<Renew<Live>>, store: &dyn Store) -> BTreeMap<usize, Vec<Renew<Live>>> {
    let mut parts = BTreeMap::<usize, Vec<_>>::new();
    for renewal in renewals {
        parts.entry(store.part(&renewal.token.lock)).or_default().push(renewal);
    }
    parts
}

async fn renew_all(part: usize, mut renewals: Vec<Renew<Live>>, table: Arc<LockTable>) {
    let Services { clock, store, observers, .. } = &table.services;
    let many = renewals.len() > TOGETHER;
    if many {
        renewals.sort_by_key(|renewal| renewal.deadline);
    }
    for together in renewals.chunks(TOGETHER) {
        // One of many waits for the one before, and its time begins when it is sent: a server that
        // needs longer for all of them than for one answers each in time. A few do not wait for others.
        let turn = if many { Some(turn(part, &table).await) } else { None };
        let op = store.clone().renew(sendable(together));
        let op = observers.timed(Verb::Renew, (*clock, clock.now()), op);
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

/// Waits until no other task sends very many renewals to that part of the store.
async fn turn(part: usize, table: &LockTable) -> OwnedMutexGuard<()> {
    let of_part = {
        let mut parts = table.renewal_turns.lock().unwrap_or_else(PoisonError::into_inner);
        parts.entry(part).or_default().clone()
    };
    of_part.lock_owned().await
}

fn answered(renewals: &[Renew<Live>], answer: Result<Renewed, Fault>, table: &Arc<LockTable>) {
    match answer {
        Ok(Renewed { sent, answers }) => {
            for (renew, answer) in renewals.iter().zip(answers) {
                match answer {
                    Ok(owned) => {
                        let is_ours = matches!(owned, Owned::Yes { .. });
                        table.change_known(&renew.token.lock, |line, effects| {
                            let now = table.services.clock.now();
                            line.renewed(renew, sent, Ok(owned), now, effects);
                        });
                        if is_ours {
                            let lock = &renew.token.lock;
                            table.services.observers.renewed(lock);
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
    let now = table.services.clock.now();
    table.change_known(&renew.token.lock, |line, effects| {
        line.renewed(renew, now, Err::<Owned, _>(fault.clone()), now, effects);
    });
    table.services.observers.renew_failed(&renew.token.lock, fault);
    lasts(&renew.token.lock, table);
}

/// Reports that a lock is still held, whatever became of its renewal.
fn lasts(lock: &LockName, table: &LockTable) {
    let Services { clock, observers, .. } = &table.services;
    if observers.has_metrics()
        && let Some(oldest) = oldest_hold(lock, table)
    {
        observers.lasts(&oldest.account, clock.now());
    }
}

/// Returns the lease that has been held for longest, of those whose callers have it.
fn oldest_hold(lock: &LockName, table: &LockTable) -> Option<Arc<Lease>> {
    let oldest = |line: &Line<Live>| {
        let held = line.held().map(|(_, holder)| &holder.caller);
        let in_hand = held.filter(|lease| lease.is_in_hand());
        in_hand.min_by_key(|lease| lease.account.since()).cloned()
    };
    table.read(lock.stored(), oldest).flatten()
}

fn sendable(renewals: &[Renew<Live>]) -> Vec<Renewal> {
    renewals.iter().cloned().map(renewal).collect()
}
