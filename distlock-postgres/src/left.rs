//! Connections that were left without an answer, until the server has let go of them.
//!
//! A backend that waits for a lock, or for a standby, does not notice that its client has closed the socket. Each
//! connection that is made instead of it would be one more at the server. So one that is left is canceled, counts
//! until it has ended, and no more may be made than the server would bear.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{sleep, timeout};
use tokio_postgres::{CancelToken, Error, NoTls};

use crate::address::Address;
use crate::select::race;
use crate::shared::Shared;

/// Counts one connection against the most that there may be.
pub(crate) type Permit = OwnedSemaphorePermit;

/// How long a request to cancel may take.
const REQUEST: Duration = Duration::from_secs(2);
/// Requests are repeated, for the backend may have further commands of this connection. Each costs the server a
/// process, so the pause doubles up to this.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Cancels what the server does for a connection until that has ended. Its answers are not read: one that
/// arrives after this is of no use to anybody. Resolves once the connection has ended.
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

/// Lets an attempt that was not done in time come to its end, and counts it until then.
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
