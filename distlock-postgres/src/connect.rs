//! A new connection, with TLS or without.

use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{AsyncMessage, Client, Error, NoTls};

use crate::address::Address;
use crate::fault::Fault;

/// Moves the bytes of a connection.
pub(crate) type Connection = Box<dyn Messages>;

/// What is heard on a connection. It has to be asked, or nothing of the connection moves.
pub(crate) trait Messages: Send {
    /// The next message; `None` when it has ended.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>>;
}

impl<S, T> Messages for tokio_postgres::Connection<S, T>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>> {
        self.poll_message(cx)
    }
}

pub(crate) async fn connect(address: &Address) -> Result<(Client, Connection), Fault> {
    #[cfg(feature = "tls")]
    if let Some(tls) = &address.tls {
        let made = address.config.connect(tls.clone()).await;
        let (client, connection) = made.map_err(|error| crate::tls::fault_of(&error))?;
        return Ok((client, Box::new(connection)));
    }
    let made = address.config.connect(NoTls).await;
    let (client, connection) = made.map_err(|error| Fault::of(&error))?;
    Ok((client, Box::new(connection)))
}
