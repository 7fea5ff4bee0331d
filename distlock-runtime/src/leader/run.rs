//! A body that runs while this process leads.

use std::future::Future;
use std::pin::pin;

use super::campaign::{Campaign, Over};
use super::outcome::TermOutcome;
use super::request::LeaderRequest;
use super::term::Term;
use crate::error::LockError;
use crate::observe::term_failed;
use crate::request::hold_and_release;

impl LeaderRequest {
    /// Campaigns, runs `body` while this process leads, and campaigns again when that is over.
    ///
    /// - If the term is lost, because the store was away for longer than the `ttl` or the process stood
    ///   still, the body is dropped at its next await, and it is never polled while another process may lead.
    /// - If the body returns, the lead is given up; the next in line has it at once, and this process
    ///   campaigns again behind it. After an error, and after a body that returned within a second,
    ///   it pauses first: 50 ms to 5 s, longer each time.
    /// - If the body panics, so does this future, and the lead is given up.
    ///
    /// It returns `Ok` once the manager was [closed](crate::LockManager::close). To stop sooner, drop the
    /// future: the body is dropped, and the lead is given up.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::Term;
    ///
    /// async fn schedule(term: Term) -> Result<(), std::io::Error> {
    ///     loop {
    ///         // … start what is due; what is written carries `term.fencing_token()` …
    ///         tokio::time::sleep(Duration::from_secs(1)).await;
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// # let closing = locks.clone();
    /// # tokio::spawn(async move {
    /// #     tokio::time::sleep(Duration::from_secs(60)).await;
    /// #     closing.close(Duration::from_secs(5)).await
    /// # });
    /// locks.leader("scheduler").ttl(Duration::from_secs(10)).run(schedule).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidKey`](LockError::InvalidKey) and [`InvalidOption`](LockError::InvalidOption) for values that
    /// cannot work, [`WouldDeadlock`](LockError::WouldDeadlock) inside a body that leads under the same key. A
    /// store that cannot be reached is no error: the campaign goes on when it is back.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the body is dropped where it is, then the lead is given up.
    pub async fn run<B, F>(self, mut body: B) -> Result<(), LockError>
    where
        B: FnMut(Term) -> F,
        F: Future,
        F::Output: TermOutcome,
    {
        let mut campaign = Campaign::of(self);
        loop {
            let (mut guard, term) = match campaign.elected().await {
                Ok(elected) => elected,
                Err(Over::Closed) => return Ok(()),
                Err(Over::Hopeless(error)) => return Err(error),
            };
            let failure = {
                // Dropped before the guard: no other candidate leads while its destructors run.
                let body = pin!(body(term.clone()));
                let outcome = hold_and_release(&mut guard, body).await;
                outcome.ok().and_then(TermOutcome::failure)
            };
            drop(guard);
            if let Some(failure) = &failure {
                term_failed(campaign.request().label(), failure);
            }
            campaign.ended(&term, failure.is_some()).await;
        }
    }
}
