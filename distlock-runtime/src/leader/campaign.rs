//! When a process that does not lead tries again.

use std::time::Duration;

use super::request::LeaderRequest;
use super::term::Term;
use crate::clock::{Clock, Moment};
use crate::error::LockError;
use crate::jitter::jittered;
use crate::lock::guard::LockGuard;

/// A term that was shorter counts as failed.
const SHORT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One process's campaign, from term to term.
pub(super) struct Campaign {
    request: LeaderRequest,
    pause: Duration,
}

/// Why a campaign is over.
pub(super) enum Over {
    /// The manager was closed.
    Closed,
    /// It cannot succeed.
    Hopeless(LockError),
}

impl Campaign {
    pub(super) fn of(request: LeaderRequest) -> Self {
        Self { request, pause: FIRST_PAUSE }
    }

    pub(super) fn request(&self) -> &LeaderRequest {
        &self.request
    }

    pub(super) fn clock(&self) -> Clock {
        self.request.manager.locks().table.clock()
    }

    /// Waits until this process leads. What passes is waited for; it waits in line while others lead.
    pub(super) async fn elected(&mut self) -> Result<(LockGuard, Term), Over> {
        loop {
            match self.request.lock().acquire().await {
                Ok(guard) => {
                    if let Some(term) = Term::of(&guard, self.clock()) {
                        return Ok((guard, term));
                    }
                }
                Err(LockError::Closed) => return Err(Over::Closed),
                Err(
                    LockError::Busy { .. } | LockError::Backend { .. } | LockError::Lost { .. },
                ) => {}
                Err(hopeless) => return Err(Over::Hopeless(hopeless)),
            }
            self.pause().await;
        }
    }

    /// A term is over. After short ones, and after one that failed, it pauses before it campaigns again:
    /// what went wrong once does so again as a rule, and others can lead meanwhile.
    pub(super) async fn ended(&mut self, term: &Term, failed: bool) {
        if term.age() < SHORT || failed {
            self.pause().await;
        } else {
            self.pause = FIRST_PAUSE;
        }
    }

    async fn pause(&mut self) {
        let pause = jittered(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let until: Moment = self.clock().now().after(pause);
        self.request.manager.locks().alarm(until).await;
    }
}
