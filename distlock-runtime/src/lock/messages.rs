//! Messages of the store to this process: a lock was reserved for it, taken away from it, or is asked about.
//!
//! Most of them name an owner token, and change the line that knows it. A token that no line knows may be
//! [orphaned](super::orphans).

use std::sync::{Arc, Weak};

use distlock_core::line::Line;
use distlock_core::name::LockName;
use distlock_core::store::{Message, Notification};

use super::effects::Live;
use super::orphans::PAUSE;
use super::revoked::Revoked;
use super::services::{Due, Services};
use super::table::LockTable;

/// Hears what the store tells this process.
pub(super) struct MessageHandler {
    table: Weak<LockTable>,
    revoked: Arc<Revoked>,
}

impl MessageHandler {
    /// Makes the handler for a table; it does not keep the table alive.
    pub(super) fn new(table: &Arc<LockTable>) -> Self {
        Self { table: Arc::downgrade(table), revoked: Arc::default() }
    }

    pub(super) fn handle(&self, notification: Notification<'_>) {
        let Some(table) = &self.table.upgrade() else { return };
        match notification {
            Notification::Reserved(message) => reserved(table, message),
            Notification::WaiterBehind(message) => {
                let now = table.services.clock.now();
                hear(table, message, |line| line.sealed(|own| own.token == message.token, now));
            }
            Notification::TakenAway(message) => self.revoked.look_into(table, message),
            Notification::Question { prefix, text } => table.asked(prefix, text),
            Notification::Answer(text) => table.questions.answered(text),
            Notification::Interrupted => interrupted(table, |_| true),
            Notification::InterruptedFor(which) => interrupted(table, which.0),
        }
    }
}

/// Makes every waiter for one of these locks poll, because the store may have come back in an older state.
pub(crate) fn interrupted(table: &Arc<LockTable>, which: impl Fn(&LockName) -> bool) {
    table.services.orphans.is_another_store();
    for lock in table.locks().iter().filter(|lock| which(lock)) {
        table.change_known(lock, |line, _| line.look_all());
    }
}

/// Has the waiter with this token look: the lock may have been reserved for it. // R4
pub(super) fn reserved(table: &Arc<LockTable>, message: Message<'_>) {
    hear(table, message, |line| line.called(|own| own.token == message.token));
}

/// Passes a message about a token to its line, or has the token released if no call uses it. // R4
fn hear(table: &Arc<LockTable>, message: Message<'_>, act: impl FnOnce(&mut Line<Live>)) {
    let mut known = false;
    table.change_stored(message.stored, |line| {
        known = line.knows(|own| own.token == message.token);
        if known {
            act(line);
        }
    });
    // Where no engine looks at lines, the store ends with this process.
    if known || !table.services.by_engine || table.is_closed() {
        return;
    }
    let Services { clock, identity, orphans, timers, .. } = &table.services;
    let now = clock.now();
    if orphans.ask(message, identity, now) {
        timers.insert(now.after(PAUSE), Due::Orphans);
    }
}
