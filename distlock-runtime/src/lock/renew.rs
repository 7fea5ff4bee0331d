//! Renewal, the watchdog: extends leases before they run out, and ends those that did.
//!
//! Renewals that are due together go out in one pipeline, very many in several, each with a time of
//! its own for its answer: one that takes too long must not be the loss of all leases. A renewal that
//! fails leaves the lease in doubt: its old deadline stands, and it is tried again inside what is left.

use std::sync::Arc;
use std::time::Duration;

use super::claim::Claim;
use super::lease::Loss;
use super::table::LockTable;
use crate::clock::Moment;
use crate::limits::SHORTEST_TTL;
use crate::observe;
use crate::shield::{shield, shielded};
use crate::store::{Fault, Owned, Renewed};

/// What came due is not due again before this: a lease that has ended but was not given back yet must
/// not keep the engine from everything else.
const NOT_BEFORE: Duration = Duration::from_millis(1);
/// The same for a lease that could not be looked at.
const AFTER_PANIC: Duration = Duration::from_secs(1);
/// So many renewals go out in one pipeline.
const TOGETHER: usize = 1000;
/// When a renewal is tried again while the lease has no holder.
const RETRY: Duration = Duration::from_millis(50);

/// A renewal that is about to be sent, or under way.
struct Renewing {
    claim: Arc<Claim>,
    ttl: Duration,
    /// It is to draw a counter value as well.
    draw: bool,
}

/// Sees to leases that came due: expired ones are lost, the others renewed. To be called on the
/// engine's thread. // R10
pub(super) fn renew_due(claims: Vec<Arc<Claim>>, table: &Arc<LockTable>) {
    let now = table.clock().now();
    let mut renewals = Vec::new();
    for claim in claims {
        if shield(|| see_to(&claim, now, table, &mut renewals)).is_none() {
            claim.reschedule(now.after(AFTER_PANIC), table.timers());
        }
    }
    if !renewals.is_empty() {
        tokio::spawn(renew_all(renewals, table.clone()));
    }
}

async fn renew_all(mut renewals: Vec<Renewing>, table: Arc<LockTable>) {
    let many = renewals.len() > TOGETHER;
    if many {
        renewals.sort_by_key(|renewal| renewal.claim.deadline());
    }
    for together in renewals.chunks(TOGETHER) {
        // One of many waits for the one before, and its time begins when it is sent: a server that
        // needs longer for all of them than for one answers each in time. A few do not wait.
        let turn = if many { Some(table.many_renewals.lock().await) } else { None };
        if shielded(renew(together, &table)).await.is_none() {
            for renewal in together {
                try_again(&renewal.claim, &table);
            }
        }
        drop(turn);
    }
}

fn see_to(claim: &Arc<Claim>, now: Moment, table: &Arc<LockTable>, renewals: &mut Vec<Renewing>) {
    let Some(lease) = claim.holder() else {
        // It has no holder until it was renewed for the next one.
        match claim.wanted() {
            Some(_) if now >= claim.deadline() => {
                table.requeue_waiters(claim);
                table.release_lost(claim);
            }
            Some(ttl) => renew_to(claim, ttl, now, table, renewals),
            None => claim.stop_watching(table.timers()),
        }
        return;
    };
    if table.end_overdue(&lease, now) {
        // Its next holder, if it was handed over.
        if let Some(next) = claim.holder() {
            look_again(claim, next.due_at(), now, table);
        }
    } else if lease.is_renewable() {
        renew_to(claim, lease.renewal_ttl(), now, table, renewals);
    } else if claim.tenure.needs_fence() {
        // Never shorter than it is: this draws a counter value and extends nothing.
        renew_to(claim, SHORTEST_TTL, now, table, renewals);
    } else {
        look_again(claim, lease.due_at(), now, table);
    }
}

fn look_again(claim: &Arc<Claim>, at: Moment, now: Moment, table: &LockTable) {
    claim.reschedule(at.max(now.after(NOT_BEFORE)), table.timers());
}

fn renew_to(
    claim: &Arc<Claim>,
    ttl: Duration,
    now: Moment,
    table: &LockTable,
    renewals: &mut Vec<Renewing>,
) {
    if claim.begin_renewal() {
        renewals.push(Renewing { claim: claim.clone(), ttl, draw: claim.draws() });
    }
    // Until the answer is here the lease is due at its deadline, so that a renewal that hangs does
    // not keep its loss from being seen.
    let at = claim.holder().map_or(claim.deadline(), |lease| lease.due_at());
    look_again(claim, at, now, table);
}

async fn renew(renewals: &[Renewing], table: &Arc<LockTable>) {
    let asked = renewals.iter().map(|one| one.claim.renewal(one.ttl, one.draw)).collect();
    match table.store().clone().renew(asked).await {
        Ok(Renewed { sent, answers }) => {
            for (renewal, answer) in renewals.iter().zip(answers) {
                match answer {
                    Ok(owned) => renewed(renewal, sent, owned, table),
                    Err(fault) => in_doubt(renewal, &fault, table),
                }
            }
        }
        Err(fault) => {
            renewals.iter().for_each(|renewal| in_doubt(renewal, &fault, table));
        }
    }
}

fn renewed(renewal: &Renewing, sent: Moment, owned: Owned, table: &Arc<LockTable>) {
    let claim = &renewal.claim;
    claim.end_renewal(None);
    match owned {
        Owned::Yes { contended, fence } => {
            claim.tenure.renewed(sent, renewal.ttl, fence);
            if contended {
                table.seal(claim);
            }
            match claim.holder() {
                Some(lease) => claim.reschedule(lease.due_at(), table.timers()),
                // What was under way may have been for less than the next holder wants.
                None if claim.wanted().is_some_and(|wanted| wanted > renewal.ttl) => {
                    claim.reschedule(Moment::from_nanos(0), table.timers());
                }
                None => table.resume(claim, renewal.ttl),
            }
        }
        Owned::No => table.taken_away(claim, Loss::Taken),
    }
}

fn in_doubt(renewal: &Renewing, fault: &Fault, table: &LockTable) {
    let claim = &renewal.claim;
    claim.tenure.not_renewed(renewal.draw);
    try_again(claim, table);
    observe::renew_failed(&claim.owner.lock, fault.clone());
}

fn try_again(claim: &Arc<Claim>, table: &LockTable) {
    let now = table.clock().now();
    let retry_at = claim.holder().map_or(now.after(RETRY), |lease| lease.next_retry());
    claim.end_renewal(Some(retry_at));
    claim.reschedule(retry_at, table.timers());
}
