//! Earlier connections of a link. Commands that were sent on them may still run (R9).

use std::ops::Range;

use redis::aio::MultiplexedConnection;
use redis::cmd;

/// The most earlier connections that are remembered if they cannot be closed.
const MOST_OPEN: usize = 8;

/// The earlier connections of a link to one server.
pub(crate) struct PreviousConnections {
    /// The number of that server.
    server: u64,
    /// The number of the first connection to it.
    first: u64,
    /// The connections that may still be open at the server.
    open: Vec<Peer>,
    /// Whether there are further connections whose names at the server are unknown.
    unnamed: bool,
    closed_below: u64,
}

/// The name of a connection at the server.
#[derive(Clone)]
pub(crate) struct Peer {
    id: String,
    addr: String,
}

impl Peer {
    /// Reads the reply to `CLIENT INFO`.
    pub(crate) fn of(info: &str) -> Option<Self> {
        let field = |name| info.split_whitespace().find_map(|field| field.strip_prefix(name));
        Some(Self { id: field("id=")?.to_owned(), addr: field("addr=")?.to_owned() })
    }
}

impl PreviousConnections {
    /// Makes an empty list. The first connection will have this number.
    pub(crate) fn none(first: u64) -> Self {
        Self { server: 0, first, open: Vec::new(), unnamed: false, closed_below: first }
    }

    /// Closes the earlier connections at the server, over the new connection with this number, if an ACL allows it.
    /// Commands that were sent on closed connections and not read yet can then never run. Returns the numbers of those
    /// connections that are certainly closed.
    ///
    /// If the server is another one than before, the connections to the earlier server are forgotten: that server is no
    /// longer asked, and their names mean nothing to the new one. Commands that were sent on them stay unsettled.
    ///
    /// Cancel safe: the state changes only after everything is done.
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
            // The id alone may be another client's: a restarted server counts from the beginning again.
            let mut kill = cmd("CLIENT");
            kill.arg("KILL").arg("ID").arg(&peer.id).arg("ADDR").arg(&peer.addr);
            // If one cannot be closed, the next one cannot be closed either.
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
        // This stands after the last await.
        *self = Self { open, unnamed, closed_below, ..*self };
        self.first..closed_below
    }
}
