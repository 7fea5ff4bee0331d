//! Giving a lock back: once, in order behind the acquire, and whoever gives up on the answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::engine::{Engine, janitor};
use crate::lock::waiting::Waiting;
use crate::store::{Claim, Fault, Freed, Op, Store};

/// A lock that is kept after its release outlives the time the engine frees it by this much.
pub(crate) const KEEP_MARGIN: Duration = Duration::from_millis(100);

/// What releases work with.
#[derive(Clone)]
pub(crate) struct Releaser {
    pub(crate) engine: Arc<Engine>,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) patience: Duration,
}

impl Releaser {
    /// Begins a release in the background: its command is on its way when this returns (behind
    /// everything that was sent for the lock before), and the engine waits for the answer.
    pub(crate) fn let_go(&self, claim: Arc<Claim>, keep: Option<Duration>) {
        if claim.is_unsent() {
            return;
        }
        drop(self.release(claim, keep));
    }

    /// A release whose answer can be awaited. Dropped before that, the engine finishes it.
    ///
    /// With `keep` the lock is not free before that time, though nobody holds it any more: the
    /// store is told now, so that this also holds when the process ends.
    pub(crate) fn release(&self, claim: Arc<Claim>, keep: Option<Duration>) -> Releasing {
        let limit = self.engine.clock().now().after(self.patience);
        // Freed by its ttl a little after the engine frees it, or nobody would be told.
        let stored = keep.map(|keep| keep + KEEP_MARGIN);
        let mut op = self.engine.store.clone().release(claim.clone(), stored, limit);
        // Polled here and now, so that it is sent from here and now: what this task does next to
        // the same lock comes behind it.
        let begun = op.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let state = match begun {
            Poll::Ready(Ok(freed)) if freed.settled => State::Done(Ok(freed)),
            Poll::Ready(result) => State::Answered(result),
            Poll::Pending => State::Sent(op),
        };
        Releasing { releaser: self.clone(), claim, keep, state }
    }

    /// The store has answered: whoever waits here may look.
    fn freed(&self, claim: &Arc<Claim>, keep: Option<Duration>) {
        match keep {
            None => self.waiting.freed(claim.lock.stored()),
            Some(keep) => self.free_later(claim.clone(), keep),
        }
    }

    fn free_later(&self, claim: Arc<Claim>, keep: Duration) {
        let (store, waiting) = (self.engine.store.clone(), self.waiting.clone());
        self.engine.background(async move {
            tokio::time::sleep(keep).await;
            let limit = store.clock().now().after(KEEP_MARGIN);
            // The store frees it by itself if this fails.
            let _ = store.release(claim.clone(), None, limit).await;
            waiting.freed(claim.lock.stored());
        });
    }

    fn hand_to_engine(&self, claim: Arc<Claim>, keep: Option<Duration>, op: Op<Freed>) {
        let waiting = self.waiting.clone();
        let store: Arc<dyn Store> = self.engine.store.clone();
        let due = keep.map(|keep| store.clock().now().after(keep));
        self.engine.finish(async move {
            janitor::see_through(store, claim.clone(), due, op).await;
            waiting.freed(claim.lock.stored());
        });
    }
}

/// A release under way.
pub(crate) struct Releasing {
    releaser: Releaser,
    claim: Arc<Claim>,
    keep: Option<Duration>,
    state: State,
}

enum State {
    Sent(Op<Freed>),
    /// Answered, but not the end of it.
    Answered(Result<Freed, Fault>),
    Done(Result<Freed, Fault>),
    Gone,
}

impl Future for Releasing {
    type Output = Result<Freed, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match std::mem::replace(&mut this.state, State::Gone) {
                State::Sent(mut op) => match op.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.state = State::Sent(op);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(freed)) if freed.settled => this.state = State::Done(Ok(freed)),
                    Poll::Ready(result) => this.state = State::Answered(result),
                },
                State::Answered(result) => {
                    let repeated = Box::pin(std::future::ready(result.clone()));
                    this.releaser.hand_to_engine(this.claim.clone(), this.keep, repeated);
                    return Poll::Ready(result);
                }
                State::Done(result) => {
                    this.releaser.freed(&this.claim, this.keep);
                    return Poll::Ready(result);
                }
                State::Gone => unreachable!("a release was polled after it was done"),
            }
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        let op: Op<Freed> = match std::mem::replace(&mut self.state, State::Gone) {
            State::Gone => return,
            State::Done(_) => return self.releaser.freed(&self.claim, self.keep),
            State::Answered(result) => Box::pin(std::future::ready(result)),
            State::Sent(op) => op,
        };
        self.releaser.hand_to_engine(self.claim.clone(), self.keep, op);
    }
}
