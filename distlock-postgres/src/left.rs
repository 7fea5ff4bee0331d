//! Connections that were abandoned without an answer, until the server has closed them.
//!
//! A backend that waits for a lock, or for a standby, does not notice that its client has closed the socket.
//! Each connection that replaces it would be one more at the server. So an abandoned connection is canceled and
//! counts until it has ended, and the total is bounded.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{sleep, timeout};
use tokio_postgres::{CancelToken, Error, NoTls};

use crate::database::Shared;
use crate::select::race;
use crate::url::Address;

/// Counts one connection against the maximum.
pub(crate) type Permit = OwnedSemaphorePermit;

/// How long a request to cancel may take.
const REQUEST: Duration = Duration::from_secs(2);
/// Requests are repeated, because the backend may have further commands of this connection. Each request costs
/// the server a process, so the pause doubles up to this.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Cancels the server's work for a connection until the connection has ended. Answers that arrive later are not
/// read, because nobody waits for them. Resolves once the connection has ended.
pub(crate) fn leave(
    shared: &Arc<Shared>,
    connection: impl Future<Output = ()> + Unpin + Send + 'static,
    token: CancelToken,
    permit: Permit,
) -> oneshot::Receiver<()> {
    let (ended, receiver) = oneshot::channel();
    let shared = shared.clone();
    shared.handle.clone().spawn(async move {
        let cancel = async {
            let mut pause = FIRST_PAUSE;
            loop {
                let _ = timeout(REQUEST, cancel(&shared.address, &token)).await;
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        race(cancel, connection).await;
        drop(permit);
        let _ = ended.send(());
    });
    receiver
}

/// Lets an attempt that took too long finish in the background, and counts it until then.
pub(crate) fn leave_attempt(
    shared: &Shared,
    attempt: impl Future<Output = ()> + Send + 'static,
    permit: Permit,
) {
    shared.handle.spawn(async move {
        attempt.await;
        drop(permit);
    });
}

async fn cancel(address: &Address, token: &CancelToken) -> Result<(), Error> {
    #[cfg(feature = "tls")]
    if let Some(tls) = &address.tls {
        return token.cancel_query(tls.clone()).await;
    }
    let _ = address;
    token.cancel_query(NoTls).await
}
