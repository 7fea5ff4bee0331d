//! A request to several nodes at once, and the replies to it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::select::until;
use distlock_core::store::{Fault, Op};
use distlock_core::timers::{Alarm, Alarms};
use tokio::runtime::Handle;

use super::stragglers::Stragglers;

/// How long to wait for the other nodes once enough have replied.
pub(super) const GRACE: Duration = Duration::from_millis(10);

/// A request to several nodes. The first poll sends it to every node, in order, before any reply is read: what is
/// polled later arrives later at each node.
pub(super) struct QuorumRequest<'a, T> {
    pending: PendingReplies<T>,
    alarms: &'a Alarms,
    grace: Option<Alarm<'a>>,
}

/// The replies of a request that are still missing. They can be awaited without the request.
pub(super) struct PendingReplies<T> {
    open: Vec<(usize, Op<T>)>,
    ready: VecDeque<(usize, Result<T, Fault>)>,
}

impl<'a, T: Send + 'static> QuorumRequest<'a, T> {
    pub(super) fn new(asked: impl Iterator<Item = (usize, Op<T>)>, alarms: &'a Alarms) -> Self {
        let pending = PendingReplies { open: asked.collect(), ready: VecDeque::new() };
        Self { pending, alarms, grace: None }
    }

    /// Returns the next reply and its node; `None` when all have arrived.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, Fault>)> {
        self.pending.next().await
    }

    /// Returns the next reply and its node; `None` also when the others are late. They are late some time after
    /// `enough` was `true` first.
    pub(super) async fn next_unless(&mut self, enough: bool) -> Option<(usize, Result<T, Fault>)> {
        let Self { pending, alarms, grace } = self;
        if enough && grace.is_none() {
            let over: Moment = Clock::Boottime.now().after(GRACE);
            *grace = Some(Alarm::at(alarms, Clock::Boottime, over));
        }
        match grace {
            Some(grace) => until(pending.next(), grace).await?,
            None => pending.next().await,
        }
    }

    /// Returns the nodes whose replies were not read yet.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = usize> + '_ {
        let ready = self.pending.ready.iter().map(|(node, _)| *node);
        self.pending.open.iter().map(|(node, _)| *node).chain(ready)
    }

    /// Returns the missing replies.
    pub(super) fn into_pending(self) -> PendingReplies<T> {
        self.pending
    }

    /// Leaves the missing replies to `stragglers`. No call waits for them.
    pub(super) fn leave(self, late: &Arc<Stragglers>) {
        let mut pending = self.pending;
        if !pending.open.is_empty() {
            late.leave(async move { while pending.next().await.is_some() {} });
        }
    }
}

impl<T> PendingReplies<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ready.is_empty()
    }

    /// Returns the next reply and its node; `None` when all have arrived.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, Fault>)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Result<T, Fault>)>> {
        let Self { open, ready } = self;
        if ready.is_empty() {
            open.retain_mut(|(node, op)| match op.as_mut().poll(cx) {
                Poll::Ready(answer) => {
                    ready.push_back((*node, answer));
                    false
                }
                Poll::Pending => true,
            });
        }
        match ready.pop_front() {
            Some(answer) => Poll::Ready(Some(answer)),
            None if open.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// Polls `work` once here, so that it sends its command now, and awaits the reply in a task.
pub(super) fn send(handle: &Handle, work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        handle.spawn(work);
    }
}
