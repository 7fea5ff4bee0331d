//! One question to several nodes at once.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_core::alarm::{Alarm, Alarms};
use distlock_core::clock::{Clock, Moment};
use distlock_core::select::until;
use distlock_core::store::{Fault, Op};
use tokio::runtime::Handle;

use super::stragglers::Stragglers;

/// How long the others are waited for once enough have answered.
pub(super) const GRACE: Duration = Duration::from_millis(10);

/// Answers as they come. Every node is asked at the first poll, in order, before any answer is looked at:
/// what is polled later comes later at each of them.
pub(super) struct QuorumRequest<'a, T> {
    pending: PendingReplies<T>,
    alarms: &'a Alarms,
    grace: Option<Alarm<'a>>,
}

/// The questions of a request that goes on by itself.
pub(super) struct PendingReplies<T> {
    open: Vec<(usize, Op<T>)>,
    ready: VecDeque<(usize, Result<T, Fault>)>,
}

impl<'a, T: Send + 'static> QuorumRequest<'a, T> {
    pub(super) fn new(asked: impl Iterator<Item = (usize, Op<T>)>, alarms: &'a Alarms) -> Self {
        let pending = PendingReplies { open: asked.collect(), ready: VecDeque::new() };
        Self { pending, alarms, grace: None }
    }

    /// The next answer, and of which node; `None` when all are in.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, Fault>)> {
        self.pending.next().await
    }

    /// The same, but `None` as well when the others have had their time since `enough` was true first.
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

    /// The nodes that have not answered.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = usize> + '_ {
        let ready = self.pending.ready.iter().map(|(node, _)| *node);
        self.pending.open.iter().map(|(node, _)| *node).chain(ready)
    }

    /// What has not answered.
    pub(super) fn into_pending(self) -> PendingReplies<T> {
        self.pending
    }

    /// What has not answered goes on by itself; no call waits for it.
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

    /// The next answer, and of which node; `None` when all are in.
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

/// Has `work` send what it has to send, here and now, and see to the answer by itself.
pub(super) fn send(handle: &Handle, work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        handle.spawn(work);
    }
}
