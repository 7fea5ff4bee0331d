//! One question to several nodes at once.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use tokio::runtime::Handle;

use crate::store::{Fault, Op};

/// Answers as they come. Every node is asked at the first poll, in order, before any answer is looked at:
/// what is polled later comes later at each of them.
pub(super) struct Round<T> {
    open: Vec<(usize, Op<T>)>,
    ready: VecDeque<(usize, Result<T, Fault>)>,
}

impl<T: Send + 'static> Round<T> {
    pub(super) fn new(asked: impl Iterator<Item = (usize, Op<T>)>) -> Self {
        Self { open: asked.collect(), ready: VecDeque::new() }
    }

    /// The next answer, and of which node; `None` when all are in.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, Fault>)> {
        poll_fn(|cx| {
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
        })
        .await
    }

    /// The nodes that have not answered.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = usize> + '_ {
        let ready = self.ready.iter().map(|(node, _)| *node);
        self.open.iter().map(|(node, _)| *node).chain(ready)
    }

    /// What has not answered goes on by itself; nobody waits for it.
    pub(super) fn leave(mut self, handle: &Handle) {
        if !self.open.is_empty() {
            handle.spawn(async move { while self.next().await.is_some() {} });
        }
    }
}
