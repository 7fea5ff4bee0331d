//! The watchdog: renews leases before they run out, and says so when one did.
//!
//! All renewals that are due together go out in one pipeline. A renewal that fails leaves the
//! lease in doubt: its old deadline stands, and it is tried again inside what is left.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::lock::claim::Claim;
use crate::lock::lease::Loss;
use crate::lock::table::LockTable;
use crate::observe;
use crate::options::SHORTEST_TTL;
use crate::store::{Fault, Owned, Renewal, Renewed};

/// Looks at leases that came due: expired ones are lost, the others renewed. To be called on the
/// engine's thread.
pub(crate) fn tend(claims: Vec<Arc<Claim>>, table: &Arc<LockTable>) {
    let now = table.clock().now();
    let mut renewals = Vec::new();
    for claim in claims {
        let Some(lease) = claim.holder() else {
            // Nobody holds it until it was renewed for the next one.
            match claim.wanted() {
                Some(_) if now >= claim.deadline() => {
                    table.orphaned(&claim);
                    table.give_back_lost(&claim);
                }
                Some(ttl) => renew_to(&claim, ttl, table, &mut renewals),
                None => claim.untend(table.schedule()),
            }
            continue;
        };
        if table.ended(&lease, now) {
            // Whoever has it now, because its holder was done or it was passed on.
            if let Some(next) = claim.holder() {
                claim.reschedule(next.tend_at(), table.schedule());
            }
        } else if lease.is_renewable() {
            renew_to(&claim, lease.renewal_ttl(), table, &mut renewals);
        } else if claim.needs_fence() {
            // Never shorter than it is: this draws a counter value and extends nothing.
            renew_to(&claim, SHORTEST_TTL, table, &mut renewals);
        } else {
            claim.reschedule(lease.tend_at(), table.schedule());
        }
    }
    if !renewals.is_empty() {
        tokio::spawn(renew(renewals, table.clone()));
    }
}

fn renew_to(claim: &Arc<Claim>, ttl: Duration, table: &LockTable, renewals: &mut Vec<Renewal>) {
    if claim.begin_renewal() {
        renewals.push(Renewal { claim: claim.clone(), ttl, draw: claim.needs_fence() });
    }
    // Until the answer is here the lease is due at its deadline, so that a renewal that hangs does
    // not keep its loss from being seen.
    let at = claim.holder().map_or(claim.deadline(), |lease| lease.tend_at());
    claim.reschedule(at, table.schedule());
}

async fn renew(renewals: Vec<Renewal>, table: Arc<LockTable>) {
    match table.store().clone().renew(renewals.clone()).await {
        Ok(Renewed { sent, answers }) => {
            for (renewal, answer) in renewals.iter().zip(answers) {
                match answer {
                    Ok(owned) => renewed(renewal, sent, owned, &table),
                    Err(fault) => in_doubt(&renewal.claim, &fault, &table),
                }
            }
        }
        Err(fault) => {
            renewals.iter().for_each(|renewal| in_doubt(&renewal.claim, &fault, &table));
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
        Owned::No => match claim.holder() {
            Some(lease) => drop(lease.lose(Loss::Taken)),
            None => table.orphaned(claim),
        },
    }
}

fn in_doubt(claim: &Arc<Claim>, fault: &Fault, table: &LockTable) {
    observe::renew_failed(&claim.lock, fault);
    let now = table.clock().now();
    let pause = Duration::from_millis(50);
    let retry_at = claim.holder().map_or(now.after(pause), |lease| lease.next_retry());
    claim.end_renewal(Some(retry_at));
    claim.reschedule(retry_at, table.schedule());
}
