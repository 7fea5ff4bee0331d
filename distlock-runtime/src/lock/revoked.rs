//! Locks that are said to have been taken away by an operator (`force_release`).
//!
//! The message alone proves nothing, or every client that may publish could end any lease: the store is
//! asked. However many messages come, they are checked together and not often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::core::Loss;
use super::table::LockTable;
use crate::name::StoredName;
use crate::shield::shielded;
use crate::store::{Message, Owned, Renewal};
use crate::token::Token;
use distlock_core::store::term::SHORTEST_TTL;

/// After a round, before the next one.
const PAUSE: Duration = Duration::from_millis(100);
/// Messages beyond that are ignored: the next renewal finds out.
const MOST: usize = 1000;

/// Tokens whose lock may have been taken away.
#[derive(Default)]
pub(super) struct ForceReleased(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    tokens: HashMap<String, StoredName>,
    /// There is a task that checks them.
    runs: bool,
}

impl ForceReleased {
    /// True if a task has to be started that checks it.
    fn note(&self, message: Message<'_>) -> bool {
        let mut notes = self.notes();
        if notes.tokens.len() < MOST && !notes.tokens.contains_key(message.token) {
            notes.tokens.insert(message.token.to_owned(), message.stored.clone());
        }
        !std::mem::replace(&mut notes.runs, true)
    }

    /// What was noted since; if nothing was, the next note has to start a task again.
    fn take(&self) -> HashMap<String, StoredName> {
        let mut notes = self.notes();
        notes.runs = !notes.tokens.is_empty();
        std::mem::take(&mut notes.tokens)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockTable {
    /// A message says that the lock of this token was taken away.
    pub(super) fn look_into(self: &Arc<Self>, message: Message<'_>) {
        let process = Token::parse(message.token).map(|token| token.process);
        if process != Some(self.process()) || !self.force_released.note(message) {
            return;
        }
        let table = self.clone();
        self.background().spawn(async move {
            loop {
                let tokens = table.force_released.take();
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
async fn check(table: &Arc<LockTable>, tokens: &HashMap<String, StoredName>) {
    let owners = tokens.iter().filter_map(|(token, stored)| table.owner_of(stored, token));
    // No lease is shorter: this extends nothing.
    let renewals: Vec<_> =
        owners.map(|owner| Renewal { owner, ttl: SHORTEST_TTL, draw: false, fence: 0 }).collect();
    if renewals.is_empty() {
        return;
    }
    let Ok(renewed) = table.store().clone().renew(renewals.clone()).await else {
        // The next renewal finds out.
        return;
    };
    for (Renewal { owner, .. }, answer) in renewals.iter().zip(renewed.answers) {
        if let Ok(Owned::No) = answer {
            table.taken_away(owner, Loss::Forced);
        }
    }
}
