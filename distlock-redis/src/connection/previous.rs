//! Earlier connections of a link: commands that were sent on them may still run (R9).

use std::ops::Range;

use redis::aio::MultiplexedConnection;
use redis::cmd;

/// More earlier connections than this, where they cannot be closed, are not remembered.
const MOST_OPEN: usize = 8;

/// Earlier connections of a link, all to one server.
pub(crate) struct PreviousConnections {
    /// Which server that is.
    server: u64,
    /// The number of the first connection to it.
    first: u64,
    /// Those that are not known to be closed at the server.
    open: Vec<Peer>,
    /// There are more, whose names at the server are not known.
    unnamed: bool,
    closed_below: u64,
}

/// What a server calls a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    id: String,
    addr: String,
}

impl Peer {
    /// From what it answers to `CLIENT INFO`.
    pub(crate) fn of(info: &str) -> Option<Self> {
        let field = |name| info.split_whitespace().find_map(|field| field.strip_prefix(name));
        Some(Self { id: field("id=")?.to_owned(), addr: field("addr=")?.to_owned() })
    }
}

impl PreviousConnections {
    /// There are none: the first one will have this number.
    pub(crate) fn none(first: u64) -> Self {
        Self { server: 0, first, open: Vec::new(), unnamed: false, closed_below: first }
    }

    /// Closes them at the server, over its `own` new connection of this number, where an ACL allows it: what
    /// was sent on them and not read yet can then never run. Returns the numbers of those of which that is
    /// certain.
    ///
    /// Connections to another server than before are forgotten: it is no longer asked, and to the new one
    /// their names mean nothing. What was sent on them stays unsettled.
    ///
    /// Cancel safe: nothing is noted before all is done.
    pub(crate) async fn close(
        &mut self,
        connection: &MultiplexedConnection,
        own: Option<Peer>,
        number: u64,
        server: u64,
    ) -> Range<u64> {
        if self.server != server {
            *self = Self { server, ..Self::none(number) };
        }
        let mut connection = connection.clone();
        let mut open = Vec::new();
        for peer in &self.open {
            // The number alone may be another client's: a server that was restarted counts anew.
            let mut kill = cmd("CLIENT");
            kill.arg("KILL").arg("ID").arg(&peer.id).arg("ADDR").arg(&peer.addr);
            // Where one cannot be closed the next one cannot either.
            if !open.is_empty() || kill.query_async::<i64>(&mut connection).await.is_err() {
                open.push(peer.clone());
            }
        }
        let forgotten = open.len().saturating_sub(MOST_OPEN);
        open.drain(..forgotten);
        let unnamed = self.unnamed || own.is_none() || forgotten > 0;
        let all_closed = open.is_empty() && !self.unnamed;
        let closed_below = if all_closed { number } else { self.closed_below };
        open.extend(own);
        // After the last await.
        *self = Self { open, unnamed, closed_below, ..*self };
        self.first..closed_below
    }
}
