//! The state that the commands share, and the steps that several of them need: the base of the fencing tokens, a lease,
//! and a transaction beside which the lease is kept alive.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use prost::Message as ProtoMessage;
use tokio::runtime::Handle;

use crate::connection::{EtcdConnection, EtcdLink, EtcdSettings, OnLinkChange};
use crate::fault::EtcdFault;
use crate::fence::{FenceBase, FenceBases};
use crate::grpc;
use crate::keep_alive::keep_waiters_alive;
use crate::lease::{EtcdLease, LONGEST_TTL, LeasePool};
use crate::ordering::CommandOrder;
use crate::proto::{
    Compare, LeaseGrantRequest, LeaseRequest, LeaseResponse, RequestOp, ResponseHeader, TxnRequest,
    TxnResponse,
};
use crate::waiters::QueuedTokens;
use crate::watch::Message;

/// How much later than its time to live a lease may end. etcd looks for ended leases at intervals, and leases restart
/// their time to live when a leader is elected.
pub(crate) const LATE_EXPIRY: Duration = Duration::from_secs(3);

/// The queues of all locks in one etcd.
pub struct EtcdClient {
    pub(crate) link: Arc<EtcdLink>,
    pub(crate) fence: FenceBases,
    pub(crate) leases: Arc<LeasePool>,
    pub(crate) tokens: Arc<QueuedTokens>,
    pub(crate) order: CommandOrder,
    pub(crate) handle: Handle,
    /// The lease of the record of this process.
    pub(crate) record: Mutex<Option<EtcdLease>>,
}

/// The caller's notes on a command that may grant the lock to its token.
pub trait Note: Sync {
    /// Notes that the command is about to be sent, and may keep the lock for this long. Returns `false` if nothing may
    /// be sent any more.
    fn sending(&self, keeps: Duration) -> bool;
    /// Notes that it was answered.
    fn answered(&self);
    /// Notes that it may have left something in the store.
    fn leaves_a_trace(&self);
}

impl EtcdClient {
    /// Starts on a runtime with I/O and timers. It connects on first use.
    pub fn start(
        settings: EtcdSettings,
        handle: &Handle,
        on_change: OnLinkChange,
        on_notification: impl Fn(Message<'_>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let link = EtcdLink::start(settings, handle, on_change, Box::new(on_notification));
        let tokens = Arc::default();
        handle.spawn(keep_waiters_alive(Arc::downgrade(&tokens), link.clone()));
        Arc::new(Self {
            link,
            fence: FenceBases::default(),
            leases: Arc::new(LeasePool::new()),
            tokens,
            order: CommandOrder::default(),
            handle: handle.clone(),
            record: Mutex::default(),
        })
    }

    /// Returns the connection as soon as there is one.
    ///
    /// # Errors
    ///
    /// Fails if another attempt to connect cannot succeed.
    pub async fn live(&self) -> Result<EtcdConnection, EtcdFault> {
        self.link.live().await
    }

    /// Returns the first connection.
    ///
    /// # Errors
    ///
    /// Fails if the first attempt to connect fails.
    pub async fn first(&self) -> Result<EtcdConnection, EtcdFault> {
        self.link.first().await
    }

    /// Returns whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.link.up().is_some()
    }

    /// Returns since when there is no connection, and why. `None` if there is one, or none was needed yet.
    pub fn outage(&self) -> Option<(Instant, EtcdFault)> {
        self.link.outage()
    }

    /// Returns how long the key of a token may exist if its lease is no longer renewed.
    pub fn lasts(&self, token: &str) -> Option<Duration> {
        self.tokens.get(token)?.leases().map(|lease| lease.ttl() + LATE_EXPIRY).max()
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Option<EtcdLease>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a round trip that only a member with a quorum answers.
    ///
    /// # Errors
    ///
    /// Fails if etcd did not answer.
    pub async fn ping(&self, connection: &EtcdConnection, fence: &str) -> Result<(), EtcdFault> {
        let read = TxnRequest::unconditional(vec![RequestOp::get(fence.into())]);
        txn(connection, &read).await.map(|_| ())
    }

    /// Returns the base of the fencing tokens under this key. Creates it if there is none.
    pub(crate) async fn base(
        &self,
        connection: &EtcdConnection,
        key: &[u8],
    ) -> Result<FenceBase, EtcdFault> {
        if let Some(base) = self.fence.known(key) {
            return Ok(base);
        }
        let read = TxnRequest::unconditional(vec![RequestOp::get(key.to_vec())]);
        let found = txn(connection, &read).await?;
        match self.fence.learn(key, found.last_keys().first())? {
            Some(base) => Ok(base),
            None => self.raise(connection, key, None, found.header).await,
        }
    }

    /// Raises the base, unless another process has done so. Returns the base that is stored then.
    pub(crate) async fn raise(
        &self,
        connection: &EtcdConnection,
        key: &[u8],
        known: Option<&FenceBase>,
        header: ResponseHeader,
    ) -> Result<FenceBase, EtcdFault> {
        let base = self.fence.higher(known, header);
        let unchanged = match known {
            Some(known) => Compare::has_value(key.to_vec(), known.text.clone()),
            None => Compare::absent(key.to_vec()),
        };
        let raise = TxnRequest {
            compare: vec![unchanged],
            success: vec![RequestOp::put(key.to_vec(), base.text, 0), RequestOp::get(key.to_vec())],
            failure: vec![RequestOp::get(key.to_vec())],
        };
        let raised = txn(connection, &raise).await?;
        let base = self.fence.learn(key, raised.last_keys().first())?;
        base.ok_or_else(EtcdFault::unsteady)
    }

    /// Returns a lease of this many seconds: an idle one, or a new one.
    pub(crate) async fn lease(
        &self,
        connection: &EtcdConnection,
        seconds: u64,
    ) -> Result<EtcdLease, EtcdFault> {
        let Some((lease, is_last)) = self.leases.take(seconds, connection.number()) else {
            return grant(&self.leases, connection, seconds).await;
        };
        if is_last {
            // Grant a lease in advance, so that the next lock also takes one round trip only.
            let (leases, connection) = (self.leases.clone(), connection.clone());
            self.handle.spawn(async move {
                let granting = grant(&leases, &connection, seconds);
                if let Ok(Ok(lease)) = tokio::time::timeout(LATE_EXPIRY, granting).await {
                    leases.give_back(lease);
                }
            });
        }
        Ok(lease)
    }
}

/// Grants a new lease of this many seconds.
pub(crate) async fn grant(
    leases: &LeasePool,
    connection: &EtcdConnection,
    seconds: u64,
) -> Result<EtcdLease, EtcdFault> {
    let (id, alive) = (leases.new_id(), Instant::now());
    let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
    let request = LeaseGrantRequest { ttl, id };
    connection.judge(connection.channel.call::<()>(grpc::GRANT, &request).await)?;
    Ok(EtcdLease { id, seconds, connection: connection.number(), alive })
}

/// Returns the rest of a lease, or `None` if it has ended.
pub(crate) async fn remaining(
    connection: &EtcdConnection,
    lease: i64,
) -> Result<Option<Duration>, EtcdFault> {
    if lease == 0 {
        // Another program wrote this key. It has no lease, and never ends.
        return Ok(Some(Duration::from_secs(LONGEST_TTL)));
    }
    let request = LeaseRequest { id: lease };
    let answer = connection.channel.call(grpc::TIME_TO_LIVE, &request).await;
    let LeaseResponse { ttl, .. } = connection.judge(answer)?;
    Ok(u64::try_from(ttl).ok().map(Duration::from_secs))
}

/// Sends a transaction that may grant a lock to a token, and keeps the token's lease alive beside it. Returns
/// whether the lease exists.
pub(crate) async fn txn_with_lease(
    connection: &EtcdConnection,
    request: &TxnRequest,
    lease: &mut EtcdLease,
    note: &dyn Note,
) -> Result<(TxnResponse, bool), EtcdFault> {
    let token = connection.channel.token_number();
    let (mut answer, mut kept, mut alive) = send(connection, request, lease, note).await?;
    if matches!(&answer, Err(fault) if fault.signed_out) {
        // The transaction had no effect. Once the caller has given up, it must not be sent again.
        note.answered();
        if connection.judge(connection.channel.sign_in_again(token).await)? {
            (answer, kept, alive) = send(connection, request, lease, note).await?;
        }
    } else if matches!(&kept, Err(fault) if fault.signed_out) {
        alive = Instant::now();
        let request = LeaseRequest { id: lease.id };
        kept = connection.channel.call(grpc::KEEP_ALIVE, &request).await;
    }
    let answer = connection.judge(answer.and_then(TxnResponse::checked));
    if answer.as_ref().map_or_else(|fault| fault.answered, |_| true) {
        note.answered();
    }
    let answer = answer?;
    if answer.succeeded {
        note.leaves_a_trace();
    }
    // The transaction may have had an effect even if the keep-alive failed.
    let kept = connection.judge(kept).map_err(|fault| EtcdFault { answered: false, ..fault })?;
    if kept.ttl > 0 {
        lease.alive = alive;
    }
    Ok((answer, kept.ttl > 0))
}

/// The answers to a transaction and to a keep-alive, and the time just before the keep-alive was sent.
type TxnAndKeepAlive = (Result<TxnResponse, EtcdFault>, Result<LeaseResponse, EtcdFault>, Instant);

/// Sends a transaction and a keep-alive at the same time.
async fn send(
    connection: &EtcdConnection,
    request: &TxnRequest,
    lease: &EtcdLease,
    note: &dyn Note,
) -> Result<TxnAndKeepAlive, EtcdFault> {
    let channel = &connection.channel;
    let (first, second) = (channel.ready().await?, channel.ready().await?);
    if !note.sending(lease.ttl() + LATE_EXPIRY) {
        return Err(EtcdFault::given_up());
    }
    let alive = Instant::now();
    let answer = first.send(grpc::TXN, slice::from_ref(request));
    let kept = second.send(grpc::KEEP_ALIVE, &[LeaseRequest { id: lease.id }]);
    let (answer, kept) = both(only(answer), only(kept)).await;
    Ok((answer, kept, alive))
}

async fn only<R: ProtoMessage + Default>(
    call: Result<grpc::ResponseStream, EtcdFault>,
) -> Result<R, EtcdFault> {
    call?.only().await
}

/// Sends a transaction that grants no lock.
pub(crate) async fn txn(
    connection: &EtcdConnection,
    request: &TxnRequest,
) -> Result<TxnResponse, EtcdFault> {
    connection.judge(connection.channel.txn(request).await)
}

/// Runs two futures at the same time, and returns both results.
pub(crate) async fn both<A, B>(
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut a, mut b) = (None, None);
    poll_fn(move |cx| {
        if a.is_none()
            && let Poll::Ready(done) = one.as_mut().poll(cx)
        {
            a = Some(done);
        }
        if b.is_none()
            && let Poll::Ready(done) = other.as_mut().poll(cx)
        {
            b = Some(done);
        }
        match (a.take(), b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (one_done, other_done) => {
                (a, b) = (one_done, other_done);
                Poll::Pending
            }
        }
    })
    .await
}

/// Runs all futures at the same time, and returns their results in order.
pub(crate) async fn all<T>(works: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut works: Vec<_> = works.into_iter().map(Box::pin).collect();
    let mut done: Vec<_> = works.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (work, done) in works.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(now) = work.as_mut().poll(cx)
            {
                *done = Some(now);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
