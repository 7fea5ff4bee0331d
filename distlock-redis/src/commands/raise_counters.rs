//! Raises the fence counters of several slots of a cluster to one value.
//!
//! If several locks were acquired together, every later holder of one of them must get a larger fencing token than any
//! of them had. On one server they share a counter. In a cluster each slot has its own.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use distlock_core::store::Fault;

use crate::commands::server::Server;

/// Raises the counters of these locks to a value, where they may be lower. All are raised at once.
pub(crate) async fn raise_counters(
    server: &Server,
    locks: &[Arc<LockName>],
    fence: u64,
    answer_by: Moment,
) -> Result<(), Fault> {
    let mut raises: Vec<_> =
        locks.iter().map(|lock| Box::pin(raise_one(server, lock, fence, answer_by))).collect();
    let mut first_error = Ok(());
    poll_fn(|cx| {
        raises.retain_mut(|raise| match raise.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(error) => {
                first_error = error;
                false
            }
        });
        if raises.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    first_error
}

async fn raise_one(
    server: &Server,
    lock: &LockName,
    fence: u64,
    answer_by: Moment,
) -> Result<(), Fault> {
    let counter = &*server.fences.of(lock);
    if counter.seen() > fence {
        return Ok(());
    }
    counter.has_seen(fence);
    let mut route = server.routing.route(&server.alarms, lock.stored(), answer_by);
    loop {
        let mut connection = route.commands().await?;
        let mut raised = server.fences.raise(counter, None, &mut connection, answer_by).await;
        if !route.should_retry(&mut connection, &mut raised) {
            return raised;
        }
    }
}
