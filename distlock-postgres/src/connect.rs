//! Opens a connection, with TLS or without, to the first host that accepts it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls};

use crate::database::Shared;
use crate::error::Fault;
use crate::left::{Permit, leave_attempt};
use crate::url::Address;

/// Each host but the last has this long, so that a frozen host does not keep the process from the others.
const SHARE: Duration = Duration::from_secs(1);

/// How long an unused connection may take to close.
const GOODBYE: Duration = Duration::from_secs(5);

/// Moves the bytes of a connection.
pub(crate) struct Connection(Box<dyn Messages>);

/// What is heard on a connection. It has to be asked, or nothing of the connection moves.
trait Messages: Send {
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

impl Connection {
    /// Returns the next message; `None` when the connection has ended.
    pub(crate) fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<AsyncMessage, Error>>> {
        self.0.poll_message(cx)
    }

    /// Drives the connection until it has ended, and calls `on` for every message. It may be polled again after
    /// that.
    pub(crate) fn drive(
        mut self,
        on: impl Fn(&AsyncMessage) + Send + Unpin,
    ) -> impl Future<Output = ()> + Unpin + Send {
        let mut ended = false;
        poll_fn(move |cx| {
            while !ended {
                match ready!(self.poll_message(cx)) {
                    Some(Ok(message)) => on(&message),
                    _ => ended = true,
                }
            }
            Poll::Ready(())
        })
    }

    pub(crate) async fn ended(self) {
        self.drive(|_| ()).await;
    }
}

/// A connection, and the permit that counts it.
pub(crate) struct Made {
    pub(crate) client: Client,
    pub(crate) connection: Connection,
    pub(crate) permit: Permit,
    /// Which host of the address it leads to.
    pub(crate) host: usize,
}

type Attempt = Pin<Box<dyn Future<Output = Result<(Client, Connection), Error>> + Send>>;

/// Connects to the last good host, or else to the others in order. Waits while too many abandoned connections
/// are still open at the server.
pub(crate) async fn connect(shared: &Arc<Shared>) -> Result<Made, Fault> {
    let hosts = &shared.address.hosts;
    let preferred = shared.preferred.load(Ordering::Acquire) % hosts.len();
    let others = (0..hosts.len()).filter(|&number| number != preferred);
    let (begun, mut outcome) = (Instant::now(), None::<Fault>);
    for (at, number) in std::iter::once(preferred).chain(others).enumerate() {
        let permit = shared.permit().await?;
        let rest = shared.connect_timeout.saturating_sub(begun.elapsed());
        let time = if at + 1 == hosts.len() { rest.max(SHARE) } else { SHARE.min(rest) };
        match one(shared, number, time, permit).await {
            Ok(made) => {
                shared.preferred.store(number, Ordering::Release);
                return Ok(made);
            }
            Err(fault) => {
                // If one host may come back, another attempt may succeed.
                let passing = fault.passing || outcome.is_some_and(|before| before.passing);
                outcome = Some(Fault { passing, ..fault });
            }
        }
    }
    Err(outcome.unwrap_or_else(Fault::timed_out))
}

async fn one(
    shared: &Arc<Shared>,
    number: usize,
    time: Duration,
    permit: Permit,
) -> Result<Made, Fault> {
    let mut host = shared.address.hosts[number].clone();
    // A name may have several addresses, the first of which may not answer.
    let of_address = (time / 2).min(host.get_connect_timeout().copied().unwrap_or(time));
    host.connect_timeout(of_address);
    let mut attempt = attempt(&shared.address, host);
    match timeout(time, &mut attempt).await {
        Ok(made) => {
            let (client, connection) = made.map_err(|error| fault_of(shared, &error))?;
            Ok(Made { client, connection, permit, host: number })
        }
        Err(_) => {
            // The server may have accepted the connection, so it counts until the server has closed it.
            let closed = async move {
                if let Ok((client, connection)) = attempt.await {
                    drop(client);
                    let _ = timeout(GOODBYE, connection.ended()).await;
                }
            };
            leave_attempt(shared, closed, permit);
            Err(Fault::timed_out())
        }
    }
}

fn attempt(address: &Address, host: Config) -> Attempt {
    #[cfg(feature = "tls")]
    if let Some(tls) = address.tls.clone() {
        return Box::pin(async move {
            let (client, connection) = host.connect(tls).await?;
            Ok((client, Connection(Box::new(connection))))
        });
    }
    let _ = address;
    Box::pin(async move {
        let (client, connection) = host.connect(NoTls).await?;
        Ok((client, Connection(Box::new(connection))))
    })
}

fn fault_of(shared: &Shared, error: &Error) -> Fault {
    #[cfg(feature = "tls")]
    let fault = match &shared.address.tls {
        Some(_) => crate::tls::fault_of(error),
        None => Fault::of(error),
    };
    #[cfg(not(feature = "tls"))]
    let fault = Fault::of(error);
    if fault.is_of_a_limit() {
        let words = format!(
            "{}: this manager wants {} connections; raise the limit of the role or of the server, or give fewer \
             with `connections`",
            fault.words, shared.wanted
        );
        return Fault { words, ..fault };
    }
    fault
}
