//! Opening a connection to the first host that accepts it, and abandoning one that does not answer.
//!
//! A backend that waits for a lock, or for a standby, does not notice that its client has closed the socket.
//! Each connection that replaces it would be one more at the server. So this process cancels the backend of an
//! abandoned connection, counts the connection until it has ended, and bounds the total.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use distlock_core::back_off::BackOff;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Error, NoTls};

use crate::database::{ConnectionPermit, Database};
use crate::error::PostgresError;
use crate::tls;

/// Each host but the last has this much time, so that a frozen host does not keep the process from the others.
const HOST_TIMEOUT: Duration = Duration::from_secs(1);
/// The time that an unused connection has to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a request to cancel has.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Requests to cancel are repeated, because the backend may have further commands of this connection. Each
/// request costs the server a process, so the pause doubles up to the longest one.
const FIRST_CANCEL_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_CANCEL_PAUSE: Duration = Duration::from_secs(2);

/// The part of a connection that moves its bytes.
pub(crate) struct ConnectionDriver(Box<dyn PollMessage>);

/// A connection, with TLS or without. Its bytes move only while it is polled.
trait PollMessage: Send {
    /// Returns the next message; `None` when the connection has ended.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>>;
}

impl<S, T> PollMessage for tokio_postgres::Connection<S, T>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>> {
        self.poll_message(cx)
    }
}

impl ConnectionDriver {
    /// Drives the connection until it has ended, and calls `on` for every message.
    pub(crate) fn drive(mut self, on: impl Fn(&AsyncMessage) + Send + 'static) -> Driving {
        let mut ended = false;
        let drive = poll_fn(move |cx| {
            while !ended {
                match ready!(self.0.poll_message(cx)) {
                    Some(Ok(message)) => on(&message),
                    _ => ended = true,
                }
            }
            Poll::Ready(())
        });
        Driving(Box::pin(drive))
    }
}

/// A connection that is driven while this future is polled. It resolves when the connection has ended, and may be polled
/// again after that. Dropping it closes the socket.
pub(crate) struct Driving(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Future for Driving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

/// An open connection, and the permit that counts it.
pub(crate) struct OpenConnection {
    pub(crate) client: Client,
    pub(crate) driver: ConnectionDriver,
    pub(crate) permit: ConnectionPermit,
    /// The index of its host in the URL.
    pub(crate) host: usize,
}

type Opening = Pin<Box<dyn Future<Output = Result<(Client, ConnectionDriver), Error>> + Send>>;

/// Connects to the last good host, or else to the others in order. Waits while too many abandoned connections
/// are still open at the server.
pub(crate) async fn connect(database: &Arc<Database>) -> Result<OpenConnection, PostgresError> {
    let hosts = &database.url.hosts;
    let preferred = database.preferred_host.load(Ordering::Acquire) % hosts.len();
    let others = (0..hosts.len()).filter(|&host| host != preferred);
    let (begun, mut outcome) = (Instant::now(), None::<PostgresError>);
    for (at, host) in std::iter::once(preferred).chain(others).enumerate() {
        let permit = database.permit().await?;
        let rest = database.connect_timeout.saturating_sub(begun.elapsed());
        let time =
            if at + 1 == hosts.len() { rest.max(HOST_TIMEOUT) } else { HOST_TIMEOUT.min(rest) };
        match connect_to(database, host, time, permit).await {
            Ok(open) => {
                database.preferred_host.store(host, Ordering::Release);
                return Ok(open);
            }
            Err(mut error) => {
                // If one host may come back, another attempt may succeed.
                error.fault.passing |= outcome.is_some_and(|before| before.fault.passing);
                outcome = Some(error);
            }
        }
    }
    Err(outcome.unwrap_or_else(PostgresError::connect_timed_out))
}

async fn connect_to(
    database: &Arc<Database>,
    host: usize,
    time: Duration,
    permit: ConnectionPermit,
) -> Result<OpenConnection, PostgresError> {
    let mut config = database.url.hosts[host].clone();
    // A name may have several addresses, the first of which may not answer.
    let of_address = (time / 2).min(config.get_connect_timeout().copied().unwrap_or(time));
    config.connect_timeout(of_address);
    let mut opening = open(database, config);
    match timeout(time, &mut opening).await {
        Ok(opened) => {
            let (client, driver) = opened.map_err(|error| explain(database, &error))?;
            Ok(OpenConnection { client, driver, permit, host })
        }
        Err(_) => {
            // The server may have accepted the connection, so it counts until the server has closed it.
            database.handle.spawn(async move {
                if let Ok((client, driver)) = opening.await {
                    drop(client);
                    let _ = timeout(CLOSE_TIMEOUT, driver.drive(|_| ())).await;
                }
                drop(permit);
            });
            Err(PostgresError::connect_timed_out())
        }
    }
}

fn open(database: &Database, host: Config) -> Opening {
    if let Some(tls) = database.tls() {
        return Box::pin(async move {
            let (client, connection) = host.connect(tls).await?;
            Ok((client, ConnectionDriver(Box::new(connection))))
        });
    }
    Box::pin(async move {
        let (client, connection) = host.connect(NoTls).await?;
        Ok((client, ConnectionDriver(Box::new(connection))))
    })
}

fn explain(database: &Database, error: &Error) -> PostgresError {
    let error = match database.tls() {
        Some(_) => tls::explain(error),
        None => PostgresError::of(error),
    };
    if error.is_of_a_limit() {
        return error.and(&format!(
            ": this manager wants {} connections; raise the limit of the role or of the server, or give fewer with \
             `connections`",
            database.connections
        ));
    }
    error
}

/// Cancels the server's work for a connection until the connection has ended. Discards later answers, because
/// nobody waits for them. The receiver resolves once the connection has ended.
pub(crate) fn abandon(
    database: &Arc<Database>,
    connection: Driving,
    token: CancelToken,
    permit: ConnectionPermit,
) -> oneshot::Receiver<()> {
    let (ended, receiver) = oneshot::channel();
    let database = database.clone();
    database.handle.clone().spawn(async move {
        let cancel = async {
            let mut back_off = BackOff::new(FIRST_CANCEL_PAUSE, LONGEST_CANCEL_PAUSE);
            loop {
                let _ = timeout(CANCEL_TIMEOUT, cancel(&database, &token)).await;
                sleep(back_off.pause()).await;
            }
        };
        race(cancel, connection).await;
        drop(permit);
        let _ = ended.send(());
    });
    receiver
}

async fn cancel(database: &Database, token: &CancelToken) -> Result<(), Error> {
    match database.tls() {
        Some(tls) => token.cancel_query(tls).await,
        None => token.cancel_query(NoTls).await,
    }
}

/// Runs `work` until `end` resolves. Returns `None` if `end` came first.
pub(crate) async fn race<T>(work: impl Future<Output = T>, end: impl Future) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|cx| {
        // Poll `end` first: it is mostly the driver of a connection, which moves the bytes.
        let ended = end.as_mut().poll(cx).is_ready();
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if ended => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
