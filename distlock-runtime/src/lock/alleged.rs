//! Locks that somebody says an operator took away.
//!
//! It is the store that is believed, or whoever may publish could end any lease. However much is said,
//! it is looked into together and not often: finding leases by their tokens takes a walk through all
//! of them, which the engine must not spend its time with while they have to be renewed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lease::Loss;
use super::table::LockTable;
use crate::options::SHORTEST_TTL;
use crate::shield::shielded;
use crate::store::{Owned, Renewal};
use crate::token::Token;

/// After a round, before the next one.
const PAUSE: Duration = Duration::from_millis(100);
/// What is said beyond that is not heard: the next renewal finds out.
const MOST: usize = 1000;

/// Tokens whose lock may have been taken away.
#[derive(Default)]
pub(super) struct Alleged(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    tokens: HashSet<String>,
    /// There is a task that looks into them.
    runs: bool,
}

impl Alleged {
    /// True if somebody has to begin looking into it.
    fn note(&self, token: &str) -> bool {
        let mut notes = self.notes();
        if notes.tokens.len() < MOST && !notes.tokens.contains(token) {
            notes.tokens.insert(token.to_owned());
        }
        !std::mem::replace(&mut notes.runs, true)
    }

    /// What was noted since; if nothing was, whoever notes something next has to begin again.
    fn take(&self) -> HashSet<String> {
        let mut notes = self.notes();
        notes.runs = !notes.tokens.is_empty();
        std::mem::take(&mut notes.tokens)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockTable {
    /// Somebody says that the lock of this token was taken away.
    pub(super) fn look_into(self: &Arc<Self>, token: &str) {
        let own = Token::parse(token).is_some_and(|token| token.process == self.owner.process());
        if !own || !self.alleged.note(token) {
            return;
        }
        let table = self.clone();
        self.background.spawn(async move {
            loop {
                let tokens = table.alleged.take();
                if tokens.is_empty() {
                    return;
                }
                shielded(check(&table, &tokens)).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

/// Asks the store whose the locks are.
async fn check(table: &Arc<LockTable>, tokens: &HashSet<String>) {
    // Also of those who took theirs past the line, who have no batch.
    let leases = table.schedule().leases().into_iter();
    let claims = leases.map(|lease| lease.claim.clone());
    let alleged = claims.filter(|claim| tokens.contains(&claim.token));
    // No lease is shorter: this extends nothing.
    let renewal = |claim| Renewal { claim, ttl: SHORTEST_TTL, draw: false };
    let renewals: Vec<_> = alleged.map(renewal).collect();
    if renewals.is_empty() {
        return;
    }
    let Ok(renewed) = table.store().clone().renew(renewals.clone()).await else {
        // The next renewal finds out.
        return;
    };
    for (Renewal { claim, .. }, answer) in renewals.iter().zip(renewed.answers) {
        if let Ok(Owned::No) = answer {
            table.taken_away(claim, Loss::Forced);
        }
    }
}
