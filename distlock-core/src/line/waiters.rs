//! The callers of this process that wait in one batch, in order of arrival.

use std::collections::VecDeque;

use super::holder::Recipient;
use super::request::{Denied, Kinds, Request};
use super::shell::Shell;
use crate::clock::Moment;
use crate::collections::shrink_queue;

/// The waiters of one batch, the next one to be served first.
///
/// A waiter that leaves stays in the queue as an empty entry for a while, so that leaving takes constant time on
/// average, however many wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiters<K: Kinds> {
    /// The waiters by number, and the empty entries of those that left.
    queue: VecDeque<LocalWaiter<K>>,
    /// How many waiters have not left.
    live: usize,
    /// The lowest number that was given out. A waiter that returns (R5) gets the one below.
    lowest: i64,
    /// The next number to be given out.
    next: i64,
}

/// A waiter, or the empty entry of one that left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalWaiter<K: Kinds> {
    /// The caller's number in its batch.
    pub at: i64,
    /// The caller's request.
    pub request: Request,
    /// The caller. `None` once it has left.
    pub caller: Option<K::Caller>,
}

/// How many entries a queue may have before empty ones are removed.
const EMPTY: usize = 16;

impl<K: Kinds> Waiters<K> {
    /// Creates an empty queue.
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), live: 0, lowest: 0, next: 0 }
    }

    /// Returns a number for a caller behind all others.
    pub(super) fn number(&mut self) -> i64 {
        self.next += 1;
        self.next - 1
    }

    /// Adds a caller behind all others. `at` is the last number that was given out.
    #[inline]
    pub(super) fn push_back(&mut self, at: i64, request: Request, caller: K::Caller) {
        self.live += 1;
        self.queue.push_back(LocalWaiter { at, request, caller: Some(caller) });
    }

    /// Adds a caller before all others (R5), and returns its number.
    pub(super) fn push_front(&mut self, request: Request, caller: K::Caller) -> i64 {
        self.live += 1;
        self.lowest -= 1;
        self.queue.push_front(LocalWaiter { at: self.lowest, request, caller: Some(caller) });
        self.lowest
    }

    /// Returns how many waiters have not left.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Returns whether a waiter is left whose time is not over.
    pub(super) fn any_live(&self, now: Moment) -> bool {
        self.queue.iter().any(|waiter| waiter.is_live(now))
    }

    /// Returns the request of the next waiter to be served. Removes those before it that left or whose time is over.
    /// The latter are woken, because the line does not know them any more.
    #[inline]
    pub(super) fn next<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) -> Option<&Request> {
        while self.queue.front().is_some_and(|first| !first.is_live(now)) {
            if let Some(caller) = self.queue.pop_front().and_then(|late| late.caller) {
                self.live -= 1;
                shell.wake(&caller);
            }
        }
        self.queue.front().map(|first| &first.request)
    }

    /// Removes the next waiter, to be served.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Recipient<K>> {
        let LocalWaiter { at, request, caller } = self.queue.pop_front()?;
        shrink_queue(&mut self.queue);
        let caller = caller?;
        self.live -= 1;
        Some(Recipient { at, request, caller })
    }

    /// Removes a caller that leaves. Returns false if it does not wait here.
    pub(super) fn leave(&mut self, at: i64) -> bool {
        let Ok(index) = self.queue.binary_search_by_key(&at, |waiter| waiter.at) else {
            return false;
        };
        if self.queue[index].caller.take().is_none() {
            return false;
        }
        self.live -= 1;
        // The work is in proportion to the number of empty entries, which is constant time for each on average.
        if self.queue.len() > EMPTY && self.queue.len() / 2 > self.live {
            self.queue.retain(|waiter| waiter.caller.is_some());
            shrink_queue(&mut self.queue);
        }
        true
    }

    /// Returns the waiters that have not left, the next one first.
    pub fn iter(&self) -> impl Iterator<Item = (&K::Caller, &Request)> {
        let present = |waiter: &'_ LocalWaiter<K>| waiter.caller.is_some();
        self.queue
            .iter()
            .filter(move |waiter| present(waiter))
            .filter_map(|waiter| waiter.caller.as_ref().map(|caller| (caller, &waiter.request)))
    }

    /// Tells all waiters that they do not get the lock.
    pub(super) fn deny_all<X: Shell<K>>(
        &mut self,
        shell: &mut X,
        why: impl Fn(&Request) -> Denied<K::Fault>,
    ) {
        for LocalWaiter { request, caller, .. } in self.queue.drain(..) {
            if let Some(caller) = caller {
                shell.deny(&caller, why(&request));
            }
        }
        self.live = 0;
    }

    /// Returns all entries.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut LocalWaiter<K>> {
        self.queue.iter_mut()
    }

    /// Returns the number of a caller that waits here.
    pub(super) fn at_of(&self, caller: &K::Caller) -> Option<i64> {
        let own = self.queue.iter().find(|waiter| waiter.caller.as_ref() == Some(caller));
        own.map(|waiter| waiter.at)
    }

    /// Returns the lowest number, and the next one to be given out.
    pub(super) fn ends_mut(&mut self) -> (&mut i64, &mut i64) {
        (&mut self.lowest, &mut self.next)
    }

    /// Returns the number of entries, empty ones included.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.queue.len()
    }
}

impl<K: Kinds> LocalWaiter<K> {
    /// Returns whether the lock may be granted to this waiter: it has not left, and its time is not over.
    fn is_live(&self, now: Moment) -> bool {
        self.caller.is_some() && now < self.request.answer_by
    }
}
