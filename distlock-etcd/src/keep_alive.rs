//! Keep-alives of leases: those that a command needs, and regularly those of waiters.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::connection::{EtcdConnection, EtcdLink};
use crate::fault::EtcdFault;
use crate::grpc;
use crate::lease::EtcdLease;
use crate::proto::{LeaseRequest, LeaseResponse};
use crate::waiters::QueuedTokens;
use crate::watch::Message;

/// The interval between two looks for waiters whose leases must be kept alive.
const INTERVAL: Duration = Duration::from_millis(250);
/// The longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Keeps leases alive. Returns for each whether it exists.
pub(crate) async fn keep_alive(
    tokens: &QueuedTokens,
    connection: &EtcdConnection,
    leases: &[EtcdLease],
) -> Result<Vec<bool>, EtcdFault> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let auth_token = connection.channel.token_number();
    let mut kept = call(connection, leases).await;
    if connection.judge(connection.channel.must_repeat(&kept, auth_token).await)? {
        kept = call(connection, leases).await;
    }
    let (kept, alive) = connection.judge(kept)?;
    tokens.kept_alive(leases, alive);
    Ok(kept)
}

/// Returns which of the leases exist, and the time just before they were kept alive.
async fn call(
    connection: &EtcdConnection,
    leases: &[EtcdLease],
) -> Result<(Vec<bool>, Instant), EtcdFault> {
    let alive = Instant::now();
    let requests: Vec<_> = leases.iter().map(|lease| LeaseRequest { id: lease.id }).collect();
    let mut answers = connection.channel.ready().await?.send(grpc::KEEP_ALIVE, &requests)?;
    let mut kept = Vec::with_capacity(leases.len());
    for lease in leases {
        let answer: LeaseResponse = answers.next().await?.ok_or_else(EtcdFault::unexpected)?;
        if answer.id != lease.id {
            return Err(EtcdFault::unexpected());
        }
        kept.push(answer.ttl > 0);
    }
    Ok((kept, alive))
}

/// Keeps the leases of waiters alive, until the tokens are dropped.
pub(crate) async fn keep_waiters_alive(tokens: Weak<QueuedTokens>, link: Arc<EtcdLink>) {
    loop {
        sleep(INTERVAL).await;
        let Some(tokens) = tokens.upgrade() else { return };
        let due = tokens.waiters_to_keep_alive(Instant::now());
        let Some(connection) = link.up().filter(|_| !due.is_empty()) else { continue };
        let leases: Vec<_> = due.iter().map(|(_, lease)| *lease).collect();
        match timeout(ANSWER_TIMEOUT, keep_alive(&tokens, &connection, &leases)).await {
            Ok(Ok(alive)) => {
                // A waiter without a lease has lost its key, and enters the queue again when it looks.
                let gone = due.iter().zip(alive).filter(|(_, alive)| !alive);
                for ((owner, _), _) in gone {
                    link.notify(Message::Turn(&owner.name, &owner.token));
                }
            }
            Ok(Err(_)) => {}
            Err(_) => connection.missed(),
        }
    }
}
