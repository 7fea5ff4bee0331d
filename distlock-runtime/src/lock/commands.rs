//! Carries out the effects of a change, and looks at the lines that are due.
//!
//! Everything that could create a lock for a waiting batch is sent from here, on the engine's thread
//! (in memory, where no answer is awaited, on whatever thread) and never twice at the same time. So a
//! release that is sent later comes later.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::catch_panic::shield;
use distlock_core::line::{Enter, Entered};
use distlock_core::name::LockName;
use distlock_core::store::Entry;
use distlock_core::store::owner::Owner;

use super::effects::{Command, Effects, Live, wake};
use super::renew;
use super::services::{Due, Services};
use super::table::LockTable;
use crate::observe::Verb;

/// The pause before a line is looked at again whose look has panicked.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Carries out the effects of a change, while no mutex is held. `is_due` says whether the line is to be looked
/// at now.
pub(super) fn carry_out(table: &Arc<LockTable>, effects: Effects<'_>, is_due: bool) {
    let Effects { services, lock, woken, more, .. } = effects;
    let more = more.map(|more| *more).unwrap_or_default();
    more.shown.into_iter().for_each(|(lease, event)| lease.show(&services.observers, event));
    woken.into_iter().chain(more.woken).for_each(wake);
    for command in more.commands {
        match command {
            Command::Enter(command) => enter(table, command),
            Command::Release(owner, keep) => release(table, owner, keep),
        }
    }
    // Last, since an observer may be slow.
    more.lost.into_iter().for_each(|(lease, loss)| lease.report(loss, &services.observers));
    if is_due {
        look_soon(table, lock);
    }
}

/// Has a batch enter the store's queue, or look at it.
fn enter(table: &Arc<LockTable>, enter: Enter<Live>) {
    let Services { clock, store, observers, command_timeout, .. } = &table.services;
    let Enter { token: owner, term, ticket } = enter;
    let entry = Entry { owner: owner.clone(), term, ticket };
    let now = clock.now();
    owner.will_stand(now);
    let verb = if ticket == 0 { Verb::Acquire } else { Verb::Confirm };
    let op = store.clone().enter(entry, now.after(*command_timeout));
    let op = observers.timed(verb, (*clock, now), op);
    let own = table.clone();
    table.services.follow(op, move |answer| {
        if let Ok(Entered::Granted { .. }) = answer {
            owner.set_granted();
        }
        own.change_known(&owner.lock, |line, effects| {
            line.entered(&owner, term, answer, own.services.clock.now(), effects);
        });
    });
}

/// Releases a token that left the queue, after what was sent for it.
fn release(table: &Arc<LockTable>, owner: Arc<Owner>, keep: Option<Duration>) {
    if table.services.by_engine {
        let own = table.clone();
        let release = async move { own.release_in_background(owner, keep) };
        table.services.background.finish(release);
    } else {
        table.release_in_background(owner, keep);
    }
}

/// Does what is due of a line, where commands are sent.
fn look_soon(table: &Arc<LockTable>, lock: &Arc<LockName>) {
    if table.services.by_engine {
        let (own, lock) = (table.clone(), lock.clone());
        table.services.background.spawn(async move { look(&own, &lock) });
    } else {
        look(table, lock);
    }
}

/// Does what is due of a line, renewals included.
pub(super) fn look(table: &Arc<LockTable>, lock: &Arc<LockName>) {
    let renewals = table.look(lock);
    if !renewals.is_empty() {
        renew::send(table, renewals);
    }
}

/// Does everything that is due, each by itself: an error in one must not keep the others from being done.
/// Call this on the engine's thread.
pub(super) fn serve(table: &Arc<LockTable>, due: Vec<Due>) {
    let Services { clock, timers, .. } = &table.services;
    let mut renewals = Vec::new();
    for due in due {
        match due {
            Due::Line(lock) => match shield(|| table.look(&lock)) {
                Some(due) => renewals.extend(due),
                None => _ = timers.insert(clock.now().after(AFTER_PANIC), Due::Line(lock)),
            },
            Due::Recheck => drop(shield(|| table.recheck_releases())),
            Due::Orphans => drop(shield(|| table.release_orphans())),
        }
    }
    // All that are due go together.
    if !renewals.is_empty() {
        renew::send(table, renewals);
    }
}
