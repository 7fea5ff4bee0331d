//! Callers of this process that wait at one place of the store's queue, in order of arrival.

use std::collections::VecDeque;

use super::request::{Denied, Kinds, Request};
use super::shell::Shell;
use crate::clock::Moment;
use crate::shrink::shrink_queue;

/// Callers that wait, the next one in front.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiters<K: Kinds> {
    /// By `at`. Those that left are still among them for a while.
    queue: VecDeque<Waiting<K>>,
    /// How many of them have not left.
    live: usize,
    /// Below every number that was given out in front.
    lowest: i64,
    /// Above every number that was given out behind.
    next: i64,
}

/// A caller that waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiting<K: Kinds> {
    /// Its number in the batch.
    pub at: i64,
    /// What it wants.
    pub request: Request,
    /// `None` once it has left.
    pub seat: Option<K::Seat>,
}

/// So many places may be empty, however few waiters are left: fewer are not worth the work.
const EMPTY: usize = 16;

impl<K: Kinds> Waiters<K> {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), live: 0, lowest: 0, next: 0 }
    }

    /// A number for a caller behind all others.
    pub(super) fn number(&mut self) -> i64 {
        self.next += 1;
        self.next - 1
    }

    /// Puts a caller behind all others, under the last number that was given out.
    #[inline]
    pub(super) fn push_back(&mut self, at: i64, request: Request, seat: K::Seat) {
        self.live += 1;
        self.queue.push_back(Waiting { at, request, seat: Some(seat) });
    }

    /// Puts a caller in front of all others, and says under which number.
    pub(super) fn push_front(&mut self, request: Request, seat: K::Seat) -> i64 {
        self.live += 1;
        self.lowest -= 1;
        self.queue.push_front(Waiting { at: self.lowest, request, seat: Some(seat) });
        self.lowest
    }

    /// How many have not left.
    pub fn live(&self) -> usize {
        self.live
    }

    /// There are waiters left to serve.
    pub(super) fn any_live(&self, now: Moment) -> bool {
        self.queue.iter().any(|waiting| waiting.is_live(now))
    }

    /// What the next one to serve wants. Those before it that left are forgotten, and those that are past
    /// their time: they are woken, because nothing else in the line knows of them any more.
    #[inline]
    pub(super) fn next<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) -> Option<&Request> {
        while self.queue.front().is_some_and(|first| !first.is_live(now)) {
            if let Some(seat) = self.queue.pop_front().and_then(|late| late.seat) {
                self.live -= 1;
                shell.wake(&seat);
            }
        }
        self.queue.front().map(|first| &first.request)
    }

    /// The caller in front is served.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(i64, Request, K::Seat)> {
        let Waiting { at, request, seat } = self.queue.pop_front()?;
        shrink_queue(&mut self.queue);
        let seat = seat?;
        self.live -= 1;
        Some((at, request, seat))
    }

    /// A caller left; false if it does not wait here.
    pub(super) fn leave(&mut self, at: i64) -> bool {
        let Ok(index) = self.queue.binary_search_by_key(&at, |waiting| waiting.at) else {
            return false;
        };
        if self.queue[index].seat.take().is_none() {
            return false;
        }
        self.live -= 1;
        // Half of the places empty pays for walking past all of them: constant time on average.
        if self.queue.len() > EMPTY && self.queue.len() / 2 > self.live {
            self.queue.retain(|waiting| waiting.seat.is_some());
            shrink_queue(&mut self.queue);
        }
        true
    }

    /// Those that have not left.
    pub fn iter(&self) -> impl Iterator<Item = (&K::Seat, &Request)> {
        let present = |waiting: &'_ Waiting<K>| waiting.seat.is_some();
        self.queue
            .iter()
            .filter(move |waiting| present(waiting))
            .filter_map(|waiting| waiting.seat.as_ref().map(|seat| (seat, &waiting.request)))
    }

    /// None of them gets the lock.
    pub(super) fn deny_all<X: Shell<K>>(
        &mut self,
        shell: &mut X,
        why: impl Fn(&Request) -> Denied<K::Fault>,
    ) {
        for Waiting { request, seat, .. } in self.queue.drain(..) {
            if let Some(seat) = seat {
                shell.deny(&seat, why(&request));
            }
        }
        self.live = 0;
    }

    #[cfg(feature = "model")]
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Waiting<K>> {
        self.queue.iter_mut()
    }

    #[cfg(feature = "model")]
    pub(super) fn at_of(&self, seat: &K::Seat) -> Option<i64> {
        let own = self.queue.iter().find(|waiting| waiting.seat.as_ref() == Some(seat));
        own.map(|waiting| waiting.at)
    }

    #[cfg(feature = "model")]
    pub(super) fn ends_mut(&mut self) -> (&mut i64, &mut i64) {
        (&mut self.lowest, &mut self.next)
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.queue.len()
    }
}

impl<K: Kinds> Waiting<K> {
    /// Neither gone nor past its time: the lock may be granted to it.
    fn is_live(&self, now: Moment) -> bool {
        self.seat.is_some() && now < self.request.answer_by
    }
}
