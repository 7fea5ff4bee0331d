//! The order of commands for one lock.
//!
//! etcd carries out the requests of one connection in any order. An acquire must take effect after the releases of the
//! same lock that were requested before it, and a release after the acquires. Otherwise a lock that this process has
//! just released would seem to be held. So a command is sent once those before it were answered or given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The effect of a command on its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandEffect {
    Acquire,
    Release,
}

/// The commands under way, by the name of their lock.
#[derive(Debug, Default)]
pub(crate) struct CommandOrder(Mutex<PendingCommands>);

type PendingCommands = HashMap<Arc<str>, Vec<(CommandEffect, watch::Receiver<()>)>>;

/// A command under way. It ends when this is dropped.
pub(crate) struct OrderedCommand<'a> {
    order: &'a CommandOrder,
    name: Arc<str>,
    /// Closes on drop, which tells later commands that this one has ended.
    end: Option<watch::Sender<()>>,
    /// The ends of the commands that this one must not overtake.
    before: Vec<watch::Receiver<()>>,
}

impl CommandOrder {
    /// Registers a command. Call this at its first poll.
    pub(crate) fn begin(&self, name: &str, effect: CommandEffect) -> OrderedCommand<'_> {
        let (end, ended) = watch::channel(());
        let mut all = self.all();
        let name = all.get_key_value(name).map_or_else(|| name.into(), |(name, _)| name.clone());
        let pending = all.entry(name.clone()).or_default();
        let others = pending.iter().filter(|(other, _)| *other != effect);
        let before = others.map(|(_, ended)| ended.clone()).collect();
        pending.push((effect, ended));
        OrderedCommand { order: self, name, end: Some(end), before }
    }

    fn all(&self) -> MutexGuard<'_, PendingCommands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OrderedCommand<'_> {
    /// Resolves when the commands before it have ended. Limit the wait: a future that its caller neither polls nor
    /// drops never ends. If the wait is cut short, the worst outcome is that a lock which was just released seems to
    /// be held.
    pub(crate) async fn turn(&mut self) {
        for mut ended in self.before.drain(..) {
            // Nothing is ever sent: this resolves when the sender is dropped.
            let _ = ended.changed().await;
        }
    }
}

impl Drop for OrderedCommand<'_> {
    fn drop(&mut self) {
        self.end = None;
        let mut all = self.order.all();
        if let Some(pending) = all.get_mut(&self.name) {
            pending.retain(|(_, ended)| ended.has_changed().is_ok());
            if pending.is_empty() {
                all.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_ready(command: &mut OrderedCommand<'_>) -> bool {
        let turn = pin!(command.turn());
        turn.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn an_acquire_waits_for_releases_and_not_for_other_acquires() {
        let order = CommandOrder::default();
        let mut first = order.begin("k", CommandEffect::Acquire);
        assert!(is_ready(&mut first) && is_ready(&mut order.begin("k", CommandEffect::Acquire)));
        let mut release = order.begin("k", CommandEffect::Release);
        assert!(is_ready(&mut order.begin("other", CommandEffect::Release)));
        drop(first);
        assert!(is_ready(&mut release));
        let mut second = order.begin("k", CommandEffect::Acquire);
        drop(release);
        assert!(is_ready(&mut second));
        drop(second);
        assert!(order.all().is_empty());
    }

    #[test]
    fn an_acquire_waits_while_a_release_is_pending() {
        let order = CommandOrder::default();
        let _release = order.begin("k", CommandEffect::Release);
        assert!(!is_ready(&mut order.begin("k", CommandEffect::Acquire)));
    }
}
