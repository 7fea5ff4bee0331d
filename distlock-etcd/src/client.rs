//! The queues of all locks in one etcd, and what each call needs of them: the base of the fencing tokens, a
//! lease, and a transaction beside which the lease is kept alive.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use prost::Message;
use tokio::runtime::Handle;

use crate::connection::{Link, Live};
use crate::fault::Fault;
use crate::fence::{Base, Fence};
use crate::grpc;
use crate::lease::{LONGEST, Lease, Leases};
use crate::ordering::Sequence;
use crate::proto::{
    Compare, LeaseGrantRequest, LeaseRequest, LeaseResponse, RequestOp, ResponseHeader, TxnRequest,
    TxnResponse,
};
use crate::waiters::Places;

/// A lease may last so much longer than it is said to: etcd looks for those that have ended now and then, and a
/// new leader gives all of them a new start.
pub(crate) const LATER: Duration = Duration::from_secs(3);

/// The queues of all locks in one etcd.
pub struct Queues {
    pub(crate) link: Arc<Link>,
    pub(crate) fence: Fence,
    pub(crate) leases: Leases,
    pub(crate) places: Places,
    pub(crate) sequence: Sequence,
    pub(crate) handle: Handle,
    /// The lease of what this process says of itself.
    pub(crate) record: Mutex<Option<Lease>>,
}

/// What a caller notes of a command that may give its token the lock.
pub trait Note: Sync {
    /// To be called right before it is sent: it may keep the lock for so long. `false` if nothing is to be sent
    /// any more.
    fn sending(&self, keeps: Duration) -> bool;
    /// It was answered.
    fn answered(&self);
    /// It may have left something.
    fn leaves_a_trace(&self);
}

impl Queues {
    /// The connection, as soon as it is there; an error where trying again cannot help.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn live(&self) -> Result<Live, Fault> {
        self.link.live().await
    }

    /// The connection, or why the first attempt to make it failed.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn first(&self) -> Result<Live, Fault> {
        self.link.first().await
    }

    /// Whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.link.up().is_some()
    }

    /// Since when there is no connection, and why; `None` if there is one, or none was ever used.
    pub fn outage(&self) -> Option<(Instant, Fault)> {
        self.link.outage()
    }

    /// How long what is stored of a token may last if it is no longer renewed.
    pub fn lasts(&self, token: &str) -> Option<Duration> {
        self.places.get(token)?.leases().map(|lease| lease.ttl() + LATER).max()
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Option<Lease>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A round trip, answered by a majority.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn ping(&self, live: &Live, fence: &str) -> Result<(), Fault> {
        let look = TxnRequest::unconditional(vec![RequestOp::get(fence.into())]);
        txn(live, &look).await.map(|_| ())
    }

    /// The base of the fencing tokens under this key, which is made if there is none.
    pub(crate) async fn base(&self, live: &Live, key: &[u8]) -> Result<Base, Fault> {
        if let Some(base) = self.fence.base(key) {
            return Ok(base);
        }
        let look = TxnRequest::unconditional(vec![RequestOp::get(key.to_vec())]);
        let found = txn(live, &look).await?;
        match self.fence.learn(key, found.last_keys().first())? {
            Some(base) => Ok(base),
            None => self.raise(live, key, None, found.header).await,
        }
    }

    /// Raises it, unless another process has done so.
    pub(crate) async fn raise(
        &self,
        live: &Live,
        key: &[u8],
        known: Option<&Base>,
        header: ResponseHeader,
    ) -> Result<Base, Fault> {
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
        let raised = txn(live, &raise).await?;
        let base = self.fence.learn(key, raised.last_keys().first())?;
        base.ok_or_else(Fault::unsteady)
    }

    /// A lease of so many seconds: one that is there, or a new one.
    pub(crate) async fn lease(self: &Arc<Self>, live: &Live, seconds: u64) -> Result<Lease, Fault> {
        let Some((lease, is_last)) = self.leases.take(seconds, live.number()) else {
            return self.grant(live, seconds).await;
        };
        if is_last {
            // The next lock is to be taken in one round trip as well.
            let (queues, live) = (self.clone(), live.clone());
            self.handle.spawn(async move {
                let granted = tokio::time::timeout(LATER, queues.grant(&live, seconds)).await;
                if let Ok(Ok(lease)) = granted {
                    queues.leases.give_back(lease);
                }
            });
        }
        Ok(lease)
    }

    pub(crate) async fn grant(&self, live: &Live, seconds: u64) -> Result<Lease, Fault> {
        let (id, alive) = (self.leases.name(), Instant::now());
        let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
        let granted = live.channel.call::<()>(grpc::GRANT, &LeaseGrantRequest { ttl, id }).await;
        live.heard(granted)?;
        Ok(Lease { id, seconds, connection: live.number(), alive })
    }

    /// How long a lease still runs; `None` if it has ended.
    pub(crate) async fn remaining(
        &self,
        live: &Live,
        lease: i64,
    ) -> Result<Option<Duration>, Fault> {
        if lease == 0 {
            // Not made by us: it has no end.
            return Ok(Some(Duration::from_secs(LONGEST)));
        }
        let request = LeaseRequest { id: lease };
        let answer = live.channel.call(grpc::TIME_TO_LIVE, &request).await;
        let LeaseResponse { ttl, .. } = live.heard(answer)?;
        Ok(u64::try_from(ttl).ok().map(Duration::from_secs))
    }

    /// Sends a transaction that may give a token the lock, and keeps its lease alive beside it. Says whether the
    /// lease is there still.
    pub(crate) async fn ask(
        &self,
        live: &Live,
        ask: &TxnRequest,
        lease: &mut Lease,
        note: &dyn Note,
    ) -> Result<(TxnResponse, bool), Fault> {
        let signature = live.channel.signature();
        let (mut asked, mut kept, mut alive) = send(live, ask, lease, note).await?;
        if matches!(&asked, Err(fault) if fault.signed_out) {
            // The server did nothing. Once the caller has given up, the request must not be sent again.
            note.answered();
            if live.heard(live.channel.sign_in_again(signature).await)? {
                (asked, kept, alive) = send(live, ask, lease, note).await?;
            }
        } else if matches!(&kept, Err(fault) if fault.signed_out) {
            alive = Instant::now();
            kept = live.channel.call(grpc::KEEP_ALIVE, &LeaseRequest { id: lease.id }).await;
        }
        let asked = live.heard(asked.and_then(TxnResponse::checked));
        if asked.as_ref().map_or_else(|fault| fault.answered, |_| true) {
            note.answered();
        }
        let asked = asked?;
        if asked.succeeded {
            note.leaves_a_trace();
        }
        // Something may be stored all the same.
        let kept = live.heard(kept).map_err(|fault| Fault { answered: false, ..fault })?;
        if kept.ttl > 0 {
            lease.alive = alive;
        }
        Ok((asked, kept.ttl > 0))
    }
}

/// The answers to a transaction and to a keep-alive, and when the keep-alive was requested.
type Asked = (Result<TxnResponse, Fault>, Result<LeaseResponse, Fault>, Instant);

/// Sends both at once.
async fn send(
    live: &Live,
    ask: &TxnRequest,
    lease: &Lease,
    note: &dyn Note,
) -> Result<Asked, Fault> {
    let (first, second) = (live.channel.ready().await?, live.channel.ready().await?);
    if !note.sending(lease.ttl() + LATER) {
        return Err(Fault::given_up());
    }
    let alive = Instant::now();
    let asked = first.send(grpc::TXN, slice::from_ref(ask));
    let kept = second.send(grpc::KEEP_ALIVE, &[LeaseRequest { id: lease.id }]);
    let (asked, kept) = both(answer(asked), answer(kept)).await;
    Ok((asked, kept, alive))
}

async fn answer<R: Message + Default>(call: Result<grpc::Answers, Fault>) -> Result<R, Fault> {
    call?.only().await
}

/// Sends a transaction that grants no lock.
pub(crate) async fn txn(live: &Live, ask: &TxnRequest) -> Result<TxnResponse, Fault> {
    live.heard(live.channel.txn(ask).await)
}

/// Both, at the same time.
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

/// All, at the same time, in their order.
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
