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

/// The interval between two looks for waiters whose leases must be kept alive.
const INTERVAL: Duration = Duration::from_millis(250);
/// The longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Keeps the leases of tokens alive. Returns for each lease whether it exists.
pub(crate) async fn keep_tokens_alive(
    tokens: &QueuedTokens,
    connection: &EtcdConnection,
    leases: &[EtcdLease],
) -> Result<Vec<bool>, EtcdFault> {
    let (exist, alive) = keep_alive(connection, leases).await?;
    tokens.kept_alive(leases, alive);
    Ok(exist)
}

/// Keeps leases alive. Returns for each whether it exists, and the time just before the request was sent.
pub(crate) async fn keep_alive(
    connection: &EtcdConnection,
    leases: &[EtcdLease],
) -> Result<(Vec<bool>, Instant), EtcdFault> {
    if leases.is_empty() {
        return Ok((Vec::new(), Instant::now()));
    }
    let auth_token = connection.channel.token_number();
    let mut kept = call(connection, leases).await;
    if connection.judge(connection.channel.must_repeat(&kept, auth_token).await)? {
        kept = call(connection, leases).await;
    }
    connection.judge(kept)
}

async fn call(
    connection: &EtcdConnection,
    leases: &[EtcdLease],
) -> Result<(Vec<bool>, Instant), EtcdFault> {
    let alive = Instant::now();
    let requests: Vec<_> = leases.iter().map(|lease| LeaseRequest { id: lease.id }).collect();
    let mut answers = connection.channel.ready().await?.send(grpc::KEEP_ALIVE, &requests)?;
    let mut exist = Vec::with_capacity(leases.len());
    for lease in leases {
        let answer: LeaseResponse = answers.next().await?.ok_or_else(EtcdFault::unexpected)?;
        if answer.id != lease.id {
            return Err(EtcdFault::unexpected());
        }
        exist.push(answer.ttl > 0);
    }
    Ok((exist, alive))
}

/// Keeps the leases of waiters alive, until the tokens are dropped.
pub(crate) async fn keep_waiters_alive(tokens: Weak<QueuedTokens>, link: Arc<EtcdLink>) {
    loop {
        sleep(INTERVAL).await;
        let Some(tokens) = tokens.upgrade() else { return };
        let due = tokens.waiters_to_keep_alive(Instant::now());
        let Some(connection) = link.up().filter(|_| !due.is_empty()) else { continue };
        let leases: Vec<_> = due.iter().map(|(_, lease)| *lease).collect();
        match timeout(ANSWER_TIMEOUT, keep_tokens_alive(&tokens, &connection, &leases)).await {
            Ok(Ok(alive)) => {
                // A waiter without a lease has lost its key, and enters the queue again when it looks.
                let gone = due.iter().zip(alive).filter(|(_, alive)| !alive);
                for ((token, _), _) in gone {
                    link.notify(token.turn());
                }
            }
            Ok(Err(_)) => {}
            Err(_) => connection.missed(),
        }
    }
}
