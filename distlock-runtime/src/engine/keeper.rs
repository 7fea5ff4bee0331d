//! The watchdog: renews leases before they run out, and says so when one did.
//!
//! All renewals that are due together go out in one pipeline. A renewal that fails leaves the
//! lease in doubt: its old deadline stands, and it is tried again inside what is left.

use std::sync::Arc;

use super::janitor;
use crate::clock::Clock;
use crate::lock::lease::{Lease, Loss};
use crate::observe;
use crate::store::{Fault, Renewal, Renewed, Store};

/// Looks at leases that came due: expired ones are lost, the others renewed. To be called on the
/// engine's thread.
pub(crate) fn tend(leases: Vec<Arc<Lease>>, store: &Arc<dyn Store>, clock: Clock) {
    let mut renewals = Vec::new();
    for lease in leases {
        if clock.now() >= lease.deadline() {
            lease.lose(Loss::Expired);
        } else if lease.is_abandoned() {
            lease.lose(Loss::Abandoned);
            let (store, claim) = (store.clone(), lease.claim.clone());
            let release = store.clone().release(claim.clone(), None, lease.deadline());
            tokio::spawn(janitor::see_through(store, claim, None, release));
        } else if lease.claim.term.renewed {
            // Until the answer is here the lease is due at its deadline, so that a renewal that
            // hangs does not keep its loss from being seen.
            lease.reschedule(lease.deadline());
            renewals.push(lease);
        } else {
            lease.reschedule(lease.deadline());
        }
    }
    if !renewals.is_empty() {
        tokio::spawn(renew(renewals, store.clone()));
    }
}

async fn renew(leases: Vec<Arc<Lease>>, store: Arc<dyn Store>) {
    let renewals: Vec<_> = leases
        .iter()
        .map(|lease| Renewal { claim: lease.claim.clone(), ttl: lease.renewal_ttl() })
        .collect();
    match store.renew(renewals.clone()).await {
        Ok(Renewed { sent, answers }) => {
            for ((lease, renewal), answer) in leases.iter().zip(&renewals).zip(answers) {
                match answer {
                    Ok(true) => {
                        lease.renewed(sent, renewal.ttl);
                        lease.reschedule(lease.next_renewal(sent));
                    }
                    Ok(false) => {
                        lease.lose(Loss::Taken);
                    }
                    Err(fault) => in_doubt(lease, &fault),
                }
            }
        }
        Err(fault) => leases.iter().for_each(|lease| in_doubt(lease, &fault)),
    }
}

fn in_doubt(lease: &Arc<Lease>, fault: &Fault) {
    observe::renew_failed(lease.name(), fault);
    lease.reschedule(lease.next_retry());
}
