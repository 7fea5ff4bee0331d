//! Releases that outlive their callers.
//!
//! A future that is dropped while its command is under way, an answer that never came, a guard
//! dropped outside any runtime: the token goes to the engine, which releases it until the store
//! has confirmed, or the lock has expired by itself.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::lock::release::KEEP_MARGIN;
use crate::observe;
use crate::store::{Claim, Freed, Op, Store};

/// After a connection died with an acquire unanswered, its bytes may still be on their way: the
/// release is repeated at these pauses.
const AFTERSHOCKS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(750), Duration::from_secs(3)];
const RETRY: Duration = Duration::from_millis(50);

/// Sees a release through that was begun elsewhere. With `due` the lock is to be kept until then.
pub(crate) async fn see_through(
    store: Arc<dyn Store>,
    claim: Arc<Claim>,
    due: Option<Moment>,
    begun: Op<Freed>,
) {
    let mut aftershocks = AFTERSHOCKS.into_iter();
    let mut op = begun;
    loop {
        let pause = match op.await {
            Ok(Freed { settled: true, .. }) => return,
            Ok(Freed { settled: false, .. }) => match aftershocks.next() {
                Some(pause) => pause,
                None => return,
            },
            Err(fault) => {
                if store.clock().now() >= claim.expired_by() {
                    observe::given_up(&fault);
                    return;
                }
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
        let left = due.map(|due| due.since(store.clock().now()));
        let keep = left.filter(|left| !left.is_zero()).map(|left| left + KEEP_MARGIN);
        op = store.clone().release(claim.clone(), keep, claim.expired_by().after(RETRY));
    }
}
