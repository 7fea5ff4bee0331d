//! A call for a lock, or for several: what is wanted, and for how long.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop::consume_budget;

use super::acquire::Acquiring;
use super::core::{Limit, Request};
use super::guard::LockGuard;
use super::lease::Lease;
use super::locks::Locks;
use super::table::LockTable;
use super::told::Told;
use super::{nested, outage};
use crate::clock::Moment;
use crate::error::LockError;
use crate::name::LockName;
use crate::one_or_many::OneOrMany;
use crate::options::{OnLost, Release, Resolved};

/// How long after its time a call for several locks may still come to an end by itself.
const LATE: Duration = Duration::from_millis(50);

/// What is asked for, with the manager's defaults filled in.
pub(crate) struct Ask {
    /// In stored order, each once.
    pub(crate) wanted: OneOrMany<Arc<LockName>>,
    pub(crate) options: Resolved,
}

/// A call for one lock or several that has begun.
pub(crate) struct Call {
    pub(super) locks: Arc<Locks>,
    pub(super) request: Request,
    /// How many calls of this process may wait for a lock, this one included; 0 if it does not wait.
    line: u32,
    /// What is to be taken, and what an outer call holds.
    pub(super) open: OneOrMany<Arc<LockName>>,
    joined: OneOrMany<Arc<Lease>>,
    on_lost: OnLost,
    release: Release,
    /// The store has been gone for so long that the call does not wait for it as it would for others.
    cut_short: bool,
    pub(super) told: Told,
}

impl Call {
    /// A call that begins at `asked`, in a poll of its caller's.
    #[inline(always)]
    pub(crate) fn new(locks: Arc<Locks>, ask: Ask, asked: Moment) -> Result<Self, LockError> {
        let Ask { wanted, options } = ask;
        let Resolved { term, wait, on_lost, reentrant, max_waiters, release, limit } = options;
        let table = &locks.table;
        let answer_by = asked.after(wait.max(locks.settings.command_timeout));
        let (open, joined) = match nested::is_nested() {
            true => apart(wanted, table, reentrant, limit)?,
            false => (wanted, OneOrMany::none()),
        };
        let several = open.len() > 1;
        // What is taken first must not be held for a future that is no longer polled.
        let part_until = several.then(|| answer_by.after(LATE));
        let wait_until = asked.after(wait);
        let request =
            Request { limit, term, asked, wait_until, answer_by, part_until, hurried: false };
        let line = match max_waiters {
            _ if wait.is_zero() => 0,
            None => u32::MAX,
            Some(most) => most,
        };
        let cut_short = outage::cuts_short(&locks, &request);
        let told = Told::Nothing;
        Ok(Self { locks, request, line, open, joined, on_lost, release, cut_short, told })
    }

    /// One of its locks.
    pub(super) fn lock(&self) -> &Arc<LockName> {
        one_of(&self.open, &self.joined)
    }

    /// Acquires within max(`wait`, `command_timeout`), and sooner where the store has been gone for
    /// long.
    ///
    /// Not an `async fn`, which would keep twice what it is given.
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn acquire(
        mut self,
    ) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        async move {
            if std::mem::take(&mut self.cut_short) {
                return outage::acquire_meanwhile(self).await;
            }
            let (lease, queued) = {
                let mut acquiring = Acquiring {
                    locks: &self.locks,
                    request: &mut self.request,
                    wanted: one_of(&self.open, &self.joined),
                    line: self.line,
                    has_waited: false,
                    told: self.told,
                    wait: None,
                };
                match (&self.open, self.joined.is_empty()) {
                    (OneOrMany::One(_), true) => {
                        let outcome = acquiring.one().await;
                        let queued = acquiring.ended(outcome.as_ref().err());
                        (outcome?, queued)
                    }
                    (several, _) => {
                        let all = acquiring.all(several, &self.joined, self.on_lost);
                        let outcome = Box::pin(all).await;
                        let queued = acquiring.ended(outcome.as_ref().err());
                        let guard = outcome?.releasing(self.release);
                        guard.complete(queued);
                        if !queued {
                            give_way().await;
                        }
                        return Ok(guard);
                    }
                }
            };
            let guard = LockGuard::of(self.locks, (self.on_lost, self.release), lease);
            guard.complete(queued);
            if !queued {
                give_way().await;
            }
            Ok(guard)
        }
    }
}

/// A call that was not queued, but reads with others, or in memory, may have waited for nothing: a loop of them
/// would keep its thread from everything else.
fn give_way() -> impl Future<Output = ()> {
    consume_budget()
}

/// What is to be taken, and what an outer call holds.
type Apart = (OneOrMany<Arc<LockName>>, OneOrMany<Arc<Lease>>);

/// Looks which of the locks an outer call holds; an error if one of them cannot be joined.
fn apart(
    wanted: OneOrMany<Arc<LockName>>,
    table: &Arc<LockTable>,
    reentrant: bool,
    limit: Limit,
) -> Result<Apart, LockError> {
    let (mut open, mut joined) = (OneOrMany::none(), OneOrMany::none());
    for one in wanted {
        match nested::holder(|lease| lease.is_lock(one.stored(), table)) {
            None => open.push(one),
            Some(outer) if reentrant && outer.limit() <= limit => joined.push(outer),
            Some(outer) => {
                let error = LockError::would_deadlock(&one, outer.limit(), limit);
                table.observers().refused(&one, Duration::ZERO, Some(&error), false);
                return Err(error);
            }
        }
    }
    Ok((open, joined))
}

fn one_of<'a>(open: &'a [Arc<LockName>], joined: &'a [Arc<Lease>]) -> &'a Arc<LockName> {
    match (open.first(), joined.first()) {
        (Some(open), _) => open,
        (None, Some(outer)) => outer.name(),
        (None, None) => unreachable!("a request names a lock"),
    }
}
