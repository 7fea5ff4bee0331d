//! Counters of several slots, brought level: every later holder of one of several locks that were taken together is to
//! have a larger fencing token than any of them.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use crate::server::Server;
use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use distlock_core::store::Fault;

/// Raises the counters of these locks to a value, where they may be lower; all at once.
pub(crate) async fn lift(
    server: &Server,
    locks: &[Arc<LockName>],
    fence: u64,
    answer_by: Moment,
) -> Result<(), Fault> {
    let mut lifts: Vec<_> =
        locks.iter().map(|lock| Box::pin(lift_one(server, lock, fence, answer_by))).collect();
    let mut first_error = Ok(());
    poll_fn(|cx| {
        lifts.retain_mut(|lift| match lift.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(error) => {
                first_error = error;
                false
            }
        });
        if lifts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    first_error
}

async fn lift_one(
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
    let mut route = server.route(lock.stored(), answer_by);
    loop {
        let mut live = route.commands().await?;
        let mut raised = server.fences.raise(counter, None, &mut live, answer_by).await;
        if !route.goes_on(&mut live, &mut raised) {
            return raised;
        }
    }
}
