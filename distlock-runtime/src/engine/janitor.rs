//! Releases that outlive their callers.
//!
//! A future that is dropped while its command is under way, an answer that never came, a guard
//! dropped outside any runtime: the token goes to the engine, which releases it until the store
//! has confirmed, or the lock has expired by itself, which one that may still be granted has not.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::lock::claim::Claim;
use crate::lock::release::KEEP_MARGIN;
use crate::observe;
use crate::store::{Freed, Op, Store};

/// After a connection died with an acquire unanswered, its bytes may still be on their way: the
/// release is repeated at these pauses.
const AFTERSHOCKS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(750), Duration::from_secs(3)];
const RETRY: Duration = Duration::from_millis(50);
/// How long one try waits for a connection once the lock would have expired by itself.
const LATE_TRY: Duration = Duration::from_secs(1);
/// An acquire without an answer may run long after its time, when a server that stood still goes
/// on, and its ttl counts from there. A server that stands still for longer is not waited for.
const LATEST: Duration = Duration::from_secs(10 * 60);

/// Sees a release through that was begun elsewhere, and says what came of it. With `due` the lock is
/// to be kept until then.
pub(crate) async fn see_through(
    store: Arc<dyn Store>,
    claim: Arc<Claim>,
    due: Option<Moment>,
    begun: Op<Freed>,
) -> Freed {
    let mut aftershocks = AFTERSHOCKS.into_iter();
    let mut op = begun;
    loop {
        let pause = match op.await {
            Ok(freed) if freed.settled => return freed,
            Ok(freed) => match aftershocks.next() {
                Some(pause) => pause,
                None => return freed,
            },
            Err(fault) => {
                if store.clock().now() >= last_try(&claim) {
                    observe::given_up(&fault);
                    return Freed { was_ours: false, settled: true, next: None };
                }
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
        let left = due.map(|due| due.since(store.clock().now()));
        let keep = left.filter(|left| !left.is_zero()).map(|left| left + KEEP_MARGIN);
        let limit = claim.expired_by().after(RETRY).max(store.clock().now().after(LATE_TRY));
        op = store.clone().release(claim.clone(), keep, limit);
    }
}

/// From when on nothing can be left of a claim.
fn last_try(claim: &Claim) -> Moment {
    let expired = claim.expired_by();
    if claim.in_doubt() { expired.after(LATEST) } else { expired }
}
