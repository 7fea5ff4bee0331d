//! The order of commands: etcd carries out what comes over one connection in any order.
//!
//! A command that may take a lock must take effect behind a release of the same lock that was asked for before it,
//! and the other way round, or a lock that this process has just given back would seem to be taken. So it is
//! sent when those have been answered, or given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What a command does to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Take,
    Free,
}

/// The commands that are under way, by the name of their lock.
#[derive(Debug, Default)]
pub(crate) struct Sequence(Mutex<UnderWay>);

type UnderWay = HashMap<Arc<str>, Vec<(Does, watch::Receiver<()>)>>;

/// A command that is under way, until this is dropped.
pub struct Under<'a> {
    sequence: &'a Sequence,
    name: Arc<str>,
    /// Closed when it is dropped.
    end: Option<watch::Sender<()>>,
    before: Vec<watch::Receiver<()>>,
}

impl Sequence {
    /// To be called at the first poll of a command.
    pub(crate) fn begin(&self, name: &str, does: Does) -> Under<'_> {
        let (end, ended) = watch::channel(());
        let mut all = self.all();
        let name = all.get_key_value(name).map_or_else(|| name.into(), |(name, _)| name.clone());
        let under_way = all.entry(name.clone()).or_default();
        let others = under_way.iter().filter(|(other, _)| *other != does);
        let before = others.map(|(_, ended)| ended.clone()).collect();
        under_way.push((does, ended));
        Under { sequence: self, name, end: Some(end), before }
    }

    fn all(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Under<'_> {
    /// Resolves when those before it have ended. Not to be waited for for long: a future that its caller neither
    /// polls nor drops does not end. Out of order nothing is wrong, but a lock may seem to be taken that was just
    /// given back.
    pub async fn turn(&mut self) {
        for mut ended in self.before.drain(..) {
            // Nothing is ever sent: it resolves when the other end is dropped.
            let _ = ended.changed().await;
        }
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.end = None;
        let mut all = self.sequence.all();
        if let Some(under_way) = all.get_mut(&self.name) {
            under_way.retain(|(_, ended)| ended.has_changed().is_ok());
            if under_way.is_empty() {
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

    fn is_ready(under: &mut Under<'_>) -> bool {
        let turn = pin!(under.turn());
        turn.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn what_takes_a_lock_is_behind_what_frees_it_and_not_behind_its_like() {
        let sequence = Sequence::default();
        let mut first = sequence.begin("k", Does::Take);
        assert!(is_ready(&mut first) && is_ready(&mut sequence.begin("k", Does::Take)));
        let mut free = sequence.begin("k", Does::Free);
        assert!(is_ready(&mut sequence.begin("other", Does::Free)));
        drop(first);
        assert!(is_ready(&mut free));
        let mut second = sequence.begin("k", Does::Take);
        drop(free);
        assert!(is_ready(&mut second));
        drop(second);
        assert!(sequence.all().is_empty());
    }

    #[test]
    fn it_waits() {
        let sequence = Sequence::default();
        let _free = sequence.begin("k", Does::Free);
        assert!(!is_ready(&mut sequence.begin("k", Does::Take)));
    }
}
