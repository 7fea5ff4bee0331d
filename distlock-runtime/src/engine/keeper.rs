//! The watchdog: renews leases before they run out, and says so when one did.
//!
//! Renewals that are due together go out in one pipeline, very many in several, each with a time of
//! its own for its answer: one that takes too long must not be the loss of all leases. A renewal that
//! fails leaves the lease in doubt: its old deadline stands, and it is tried again inside what is left.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::lock::claim::Claim;
use crate::lock::lease::Loss;
use crate::lock::table::LockTable;
use crate::observe;
use crate::options::SHORTEST_TTL;
use crate::shield::{shield, shielded};
use crate::store::{Fault, Owned, Renewal, Renewed};

/// What came due is not due again before this: a lease that has ended but is still in somebody's hand
/// must not keep the engine from everything else.
const NOT_BEFORE: Duration = Duration::from_millis(1);
/// The same for a lease that could not be looked at.
const AFTER_PANIC: Duration = Duration::from_secs(1);
/// So many renewals go out in one pipeline.
const TOGETHER: usize = 1000;
/// When a renewal is tried again that nobody holds the lease for.
const RETRY: Duration = Duration::from_millis(50);

/// Looks at leases that came due: expired ones are lost, the others renewed. To be called on the
/// engine's thread.
pub(crate) fn tend(claims: Vec<Arc<Claim>>, table: &Arc<LockTable>) {
    let now = table.clock().now();
    let mut renewals = Vec::new();
    for claim in claims {
        if shield(|| tend_one(&claim, now, table, &mut renewals)).is_none() {
            claim.reschedule(now.after(AFTER_PANIC), table.schedule());
        }
    }
    if !renewals.is_empty() {
        tokio::spawn(renew_all(renewals, table.clone()));
    }
}

async fn renew_all(mut renewals: Vec<Renewal>, table: Arc<LockTable>) {
    let many = renewals.len() > TOGETHER;
    if many {
        renewals.sort_by_key(|renewal| renewal.claim.deadline());
    }
    for together in renewals.chunks(TOGETHER) {
        // One of many waits for the one before, and its time begins when it is sent: a server that
        // needs longer for all of them than for one answers each in time. Few wait for nobody.
        let turn = if many { Some(table.many_renewals.lock().await) } else { None };
        if shielded(renew(together, &table)).await.is_none() {
            for renewal in together {
                try_again(&renewal.claim, &table);
            }
        }
        drop(turn);
    }
}

fn tend_one(claim: &Arc<Claim>, now: Moment, table: &Arc<LockTable>, renewals: &mut Vec<Renewal>) {
    let Some(lease) = claim.holder() else {
        // Nobody holds it until it was renewed for the next one.
        match claim.wanted() {
            Some(_) if now >= claim.deadline() => {
                table.orphaned(claim);
                table.give_back_lost(claim);
            }
            Some(ttl) => renew_to(claim, ttl, now, table, renewals),
            None => claim.untend(table.schedule()),
        }
        return;
    };
    if table.ended(&lease, now) {
        // Whoever has it now, because its holder was done or it was passed on.
        if let Some(next) = claim.holder() {
            look_again(claim, next.tend_at(), now, table);
        }
    } else if lease.is_renewable() {
        renew_to(claim, lease.renewal_ttl(), now, table, renewals);
    } else if claim.needs_fence() {
        // Never shorter than it is: this draws a counter value and extends nothing.
        renew_to(claim, SHORTEST_TTL, now, table, renewals);
    } else {
        look_again(claim, lease.tend_at(), now, table);
    }
}

fn look_again(claim: &Arc<Claim>, at: Moment, now: Moment, table: &LockTable) {
    claim.reschedule(at.max(now.after(NOT_BEFORE)), table.schedule());
}

fn renew_to(
    claim: &Arc<Claim>,
    ttl: Duration,
    now: Moment,
    table: &LockTable,
    renewals: &mut Vec<Renewal>,
) {
    if claim.begin_renewal() {
        renewals.push(Renewal { claim: claim.clone(), ttl, draw: claim.draws() });
    }
    // Until the answer is here the lease is due at its deadline, so that a renewal that hangs does
    // not keep its loss from being seen.
    let at = claim.holder().map_or(claim.deadline(), |lease| lease.tend_at());
    look_again(claim, at, now, table);
}

async fn renew(renewals: &[Renewal], table: &Arc<LockTable>) {
    match table.store().clone().renew(renewals.to_vec()).await {
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

fn renewed(renewal: &Renewal, sent: Moment, owned: Owned, table: &Arc<LockTable>) {
    let claim = &renewal.claim;
    claim.end_renewal(None);
    match owned {
        Owned::Yes { contended, fence } => {
            claim.renewed(sent, renewal.ttl, fence);
            if contended {
                table.seal(claim);
            }
            match claim.holder() {
                Some(lease) => claim.reschedule(lease.tend_at(), table.schedule()),
                // What was under way may have been for less than the next holder wants.
                None if claim.wanted().is_some_and(|wanted| wanted > renewal.ttl) => {
                    claim.reschedule(Moment::from_nanos(0), table.schedule());
                }
                None => table.resume(claim, renewal.ttl),
            }
        }
        Owned::No => table.taken_away(claim, Loss::Taken),
    }
}

fn in_doubt(renewal: &Renewal, fault: &Fault, table: &LockTable) {
    let claim = &renewal.claim;
    claim.not_renewed(renewal.draw);
    try_again(claim, table);
    observe::renew_failed(&claim.lock, fault);
}

fn try_again(claim: &Arc<Claim>, table: &LockTable) {
    let now = table.clock().now();
    let retry_at = claim.holder().map_or(now.after(RETRY), |lease| lease.next_retry());
    claim.end_renewal(Some(retry_at));
    claim.reschedule(retry_at, table.schedule());
}
