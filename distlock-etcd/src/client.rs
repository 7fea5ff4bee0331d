//! The state that the commands share, and the steps that several of them need: the base of the fencing tokens, a lease,
//! and a transaction beside which the lease is kept alive.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::store::{LinkWatch, Owner};
use prost::Message;
use tokio::runtime::Handle;

use crate::connection::{ConnectSettings, EtcdConnection, EtcdLink};
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

/// How much later than its time to live a lease may end. etcd looks for ended leases at intervals, and leases restart
/// their time to live when a leader is elected.
pub(crate) const LATE_EXPIRY: Duration = Duration::from_secs(3);

/// A client of one etcd, shared by all commands.
pub(crate) struct EtcdClient {
    pub(crate) link: Arc<EtcdLink>,
    /// The key of the base of fencing tokens, for locks without a base of their own.
    pub(crate) fence_key: String,
    pub(crate) fence: FenceBases,
    pub(crate) leases: Arc<LeasePool>,
    pub(crate) tokens: Arc<QueuedTokens>,
    pub(crate) order: CommandOrder,
    pub(crate) handle: Handle,
}

/// The notes on a command that may grant the lock to a token, for the token's owner.
pub(crate) struct GrantNotes<'a> {
    owner: &'a Owner,
    connection: u64,
    /// The command may leave the token in the queue.
    may_wait: bool,
    sent: AtomicU64,
}

impl<'a> GrantNotes<'a> {
    pub(crate) fn new(owner: &'a Owner, connection: &EtcdConnection, may_wait: bool) -> Self {
        Self { owner, connection: connection.number(), may_wait, sent: AtomicU64::new(0) }
    }

    /// Returns when the last command was sent.
    pub(crate) fn sent(&self) -> Moment {
        Moment::from_nanos(self.sent.load(Ordering::Acquire))
    }

    /// Notes that a command is about to be sent, and may keep the lock for this long. Returns `false` if nothing may be
    /// sent, because the release has begun.
    fn sending(&self, keeps: Duration) -> bool {
        let now = Clock::Boottime.now();
        // R7: after a release began, no command is sent that could take the lock.
        if !self.owner.may_send(now, keeps, self.connection) {
            return false;
        }
        if self.may_wait {
            self.owner.leaves_a_trace();
        }
        self.sent.store(now.as_nanos(), Ordering::Release);
        true
    }

    fn answered(&self) {
        self.owner.answered(self.connection);
    }
}

impl EtcdClient {
    /// Starts on a runtime with I/O and timers. It connects on first use.
    pub(crate) fn start(
        settings: ConnectSettings,
        fence_key: String,
        handle: &Handle,
        watch: Box<dyn LinkWatch>,
    ) -> Self {
        let link = EtcdLink::start(settings, handle, watch);
        let tokens = Arc::default();
        handle.spawn(keep_waiters_alive(Arc::downgrade(&tokens), link.clone()));
        Self {
            link,
            fence_key,
            fence: FenceBases::default(),
            leases: Arc::new(LeasePool::new()),
            tokens,
            order: CommandOrder::default(),
            handle: handle.clone(),
        }
    }

    /// Returns the key of the base of a lock's fencing tokens.
    pub(crate) fn fence_key<'a>(&'a self, lock: &'a LockName) -> &'a str {
        lock.fence().map_or(&self.fence_key, |fence| fence)
    }

    /// Returns how long the key of a token may exist if its lease is no longer renewed.
    pub(crate) fn lasts(&self, token: &str) -> Option<Duration> {
        self.tokens.get(token)?.leases().map(|lease| lease.ttl() + LATE_EXPIRY).max()
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
    notes: &GrantNotes<'_>,
) -> Result<(TxnResponse, bool), EtcdFault> {
    let token = connection.channel.token_number();
    let (mut answer, mut kept, mut alive) = send(connection, request, lease, notes).await?;
    if matches!(&answer, Err(fault) if fault.signed_out) {
        // The transaction had no effect. Once the caller has given up, it must not be sent again.
        notes.answered();
        if connection.judge(connection.channel.sign_in_again(token).await)? {
            (answer, kept, alive) = send(connection, request, lease, notes).await?;
        }
    } else if matches!(&kept, Err(fault) if fault.signed_out) {
        alive = Instant::now();
        let request = LeaseRequest { id: lease.id };
        kept = connection.channel.call(grpc::KEEP_ALIVE, &request).await;
    }
    let answer = connection.judge(answer.and_then(TxnResponse::checked));
    if answer.as_ref().map_or_else(|fault| fault.answered, |_| true) {
        notes.answered();
    }
    let answer = answer?;
    if answer.succeeded {
        notes.owner.leaves_a_trace();
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
    notes: &GrantNotes<'_>,
) -> Result<TxnAndKeepAlive, EtcdFault> {
    let channel = &connection.channel;
    let (first, second) = (channel.ready().await?, channel.ready().await?);
    if !notes.sending(lease.ttl() + LATE_EXPIRY) {
        return Err(EtcdFault::given_up());
    }
    let alive = Instant::now();
    let answer = first.send(grpc::TXN, slice::from_ref(request));
    let kept = second.send(grpc::KEEP_ALIVE, &[LeaseRequest { id: lease.id }]);
    let (answer, kept) = both(only(answer), only(kept)).await;
    Ok((answer, kept, alive))
}

async fn only<R: Message + Default>(
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
