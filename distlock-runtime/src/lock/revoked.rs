//! Locks that are said to have been taken away by an operator (`force_release`).
//!
//! The message alone proves nothing, or every client that may publish could end any lease: the store is
//! asked. However many messages come, they are checked together and not often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::catch_panic::shielded;
use distlock_core::line::Loss;
use distlock_core::name::StoredName;
use distlock_core::store::term::SHORTEST_TTL;
use distlock_core::store::{Message, Owned, Renewal};
use distlock_core::token::Token;

use super::table::LockTable;

/// The pause between two rounds of checks.
const PAUSE: Duration = Duration::from_millis(100);
/// Messages beyond that number are ignored: the next renewal finds out.
const MOST: usize = 1000;

/// Tokens whose lock may have been taken away.
#[derive(Default)]
pub(super) struct Revoked(Mutex<Unchecked>);

#[derive(Default)]
struct Unchecked {
    tokens: HashMap<String, StoredName>,
    /// Whether there is a task that checks them.
    runs: bool,
}

impl Revoked {
    /// Checks a message which says that the lock of a token was taken away.
    pub(super) fn look_into(self: &Arc<Self>, table: &Arc<LockTable>, message: Message<'_>) {
        let process = Token::parse(message.token).map(|token| token.process);
        if process != Some(table.process()) || !self.note(message) {
            return;
        }
        let (revoked, own) = (self.clone(), table.clone());
        table.services.background.spawn(async move {
            loop {
                let tokens = revoked.take();
                if tokens.is_empty() {
                    return;
                }
                shielded(check(&own, &tokens)).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Notes a token. Returns whether a task must be started that checks it.
    fn note(&self, message: Message<'_>) -> bool {
        let mut unchecked = self.unchecked();
        if unchecked.tokens.len() < MOST && !unchecked.tokens.contains_key(message.token) {
            unchecked.tokens.insert(message.token.to_owned(), message.stored.clone());
        }
        !std::mem::replace(&mut unchecked.runs, true)
    }

    /// Takes the tokens that were noted since. If there are none, the next note must start a task again.
    fn take(&self) -> HashMap<String, StoredName> {
        let mut unchecked = self.unchecked();
        unchecked.runs = !unchecked.tokens.is_empty();
        std::mem::take(&mut unchecked.tokens)
    }

    fn unchecked(&self) -> MutexGuard<'_, Unchecked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the store who owns the locks.
async fn check(table: &Arc<LockTable>, tokens: &HashMap<String, StoredName>) {
    let owners = tokens.iter().filter_map(|(token, stored)| table.owner_of(stored, token));
    // No lease is shorter: this extends nothing.
    let renewals: Vec<_> =
        owners.map(|owner| Renewal { owner, ttl: SHORTEST_TTL, draw: false, fence: 0 }).collect();
    if renewals.is_empty() {
        return;
    }
    let Ok(renewed) = table.services.store.clone().renew(renewals.clone()).await else {
        // The next renewal finds out.
        return;
    };
    for (Renewal { owner, .. }, answer) in renewals.iter().zip(renewed.answers) {
        if let Ok(Owned::No) = answer {
            table.taken_away(owner, Loss::Forced);
        }
    }
}
