//! Connections and subscriptions that are lost and come back.

use super::shell::Fault;
use super::{Origin, Turn};
use crate::network::{Connection, Sent};

impl Turn<'_> {
    /// A connection has died with what it carried, and another one is there. What the server had not
    /// read yet is gone, or `lingers` and may still run.
    pub(crate) fn reconnect(&mut self, connection: Connection, lingers: bool) {
        let wire = std::mem::take(self.process.line(connection));
        let lost: Vec<Sent> = wire.under_way().copied().collect();
        if lingers {
            let again =
                wire.requests.into_iter().map(|sent| Sent { age: 0, is_stale: true, ..sent });
            self.process.stale.extend(again);
        }
        for (key, token) in lost.iter().filter_map(|sent| sent.command.creates()) {
            self.process.entry(key, token).suspect = 1;
        }
        if connection == Connection::Main {
            // A task that waits here may not stand in the queue yet: others may come first until it does.
            self.process.tasks.iter_mut().for_each(|task| task.exempt = true);
            self.raise();
        }
        for sent in lost {
            self.unanswered(sent, Fault::Lost);
        }
        self.settle();
    }

    /// The first awaited answer on a connection does not come in time. It may come later, and is
    /// ignored then.
    pub(crate) fn time_out(&mut self, connection: Connection) {
        let wire = self.process.line(connection);
        let Some(sent) = wire.under_way_mut().find(|sent| sent.is_awaited()) else { return };
        let left = *sent;
        sent.origin = Origin::Unawaited;
        self.unanswered(left, Fault::TimedOut);
        self.settle();
    }

    /// The subscription is lost, and the process may notice.
    pub(crate) fn deafen(&mut self) {
        self.process.subscribed = false;
        self.process.hints.clear();
        self.process.census.deafen();
        self.process.tasks.iter_mut().for_each(|task| task.exempt = true);
        if !self.cfg.silent {
            self.process.notified = false;
            self.look_all();
        }
    }

    /// It is back.
    pub(crate) fn hear_again(&mut self) {
        self.process.notified = true;
        self.process.subscribed = true;
        self.look_all();
    }

    fn look_all(&mut self) {
        for key in 0..self.cfg.keys {
            self.on(key, |line, _, _| line.look_all());
        }
        self.settle();
    }
}
