//! Queries that change nothing, and operations that concern all nodes alike.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::select::until;
use distlock_core::store::{
    BackendKind, Fault, Held, Holder, Op, ProcessDirectory as _, ProcessMessage, Records, Store,
};
use distlock_core::timers::Alarm;

use super::quorum::{FailedNodes, QuorumStore};

/// How long to wait for the other nodes once a majority is fine. A mistake in the list shows sooner, and a frozen node
/// is not waited for here either.
const OTHERS: Duration = Duration::from_secs(1);
/// How often to check whether watched servers count yet, because another process may have watched them for
/// longer.
const LOOK: Duration = Duration::from_millis(100);

/// Makes every node identify itself. Reports mistakes in the list of servers.
pub(super) async fn ready(quorum: &QuorumStore, answer_by: Moment) -> Result<(), Fault> {
    let mut request = quorum.ask(quorum.nodes.iter().enumerate().map(|(at, node)| {
        let node = node.clone();
        let known: Op<()> = Box::pin(async move {
            node.store.clone().ready(answer_by).await?;
            node.known(answer_by).await.map(|_| ())
        });
        (at, known)
    }));
    let (mut well, mut missing) = (0, FailedNodes::default());
    let mut over = answer_by;
    while let Some(Some((at, answer))) =
        until(request.next(), Alarm::at(&quorum.alarms, Clock::Boottime, over)).await
    {
        match answer {
            Ok(()) => {
                well += 1;
                if well == quorum.majority() {
                    over = over.min(Clock::Boottime.now().after(OTHERS));
                }
            }
            // Unlike a node that is down, this does not go away by itself. Nor does a replica, which must not be a node
            // even if it is promoted: it forgets the grants of its primary.
            Err(fault) if !fault.passing || fault.kind == BackendKind::ReadOnly => {
                return Err(fault.and(&format!(" (that was {})", quorum.nodes[at].addr)));
            }
            Err(fault) => missing.add(at, fault),
        }
    }
    request.unanswered().for_each(|at| missing.add(at, Fault::timed_out()));
    request.leave(&quorum.stragglers);
    if well < quorum.majority() {
        return Err(quorum.no_majority(missing));
    }
    counts(quorum).await;
    Ok(())
}

/// Resolves when a majority of the servers counts. If a process gave up instead and was started again, it would
/// begin to watch them again each time.
async fn counts(quorum: &QuorumStore) {
    let mut is_said = false;
    while let Some(wait) = quorum.starting() {
        if !std::mem::replace(&mut is_said, true) {
            quorum.events.quorum_waits(wait);
        }
        let next = Clock::Boottime.now().after(wait.min(LOOK));
        Alarm::at(&quorum.alarms, Clock::Boottime, next).await;
    }
}

/// Returns the holder of the lock at a majority, and the waiters in the longest queue.
pub(super) async fn inspect(
    quorum: &QuorumStore,
    lock: Arc<LockName>,
    answer_by: Moment,
) -> Result<Option<Held>, Fault> {
    let all = quorum.answers(|node| node.inspect(lock.clone(), answer_by)).await?;
    let (mut holders, mut queue) = (Vec::new(), Vec::new());
    for held in all.into_iter().flatten() {
        holders.extend(held.holders);
        if held.queue.len() > queue.len() {
            queue = held.queue;
        }
    }
    let holders = by_majority(quorum.majority(), holders);
    Ok((!holders.is_empty()).then_some(Held { holders, queue }))
}

/// Returns the holders that a majority has, of the holders of one lock on all nodes.
pub(super) fn by_majority(majority: usize, on_all: Vec<Holder>) -> Vec<Holder> {
    let mut leases: HashMap<String, Vec<Option<Duration>>> = HashMap::new();
    for Holder { token, remaining } in on_all {
        leases.entry(token).or_default().push(remaining);
    }
    let mut holders: Vec<_> = leases
        .into_iter()
        .filter(|(_, leases)| leases.len() >= majority)
        .map(|(token, mut leases)| {
            // The token holds the lock for as long as a majority keeps it.
            leases.sort_unstable_by_key(|lease| std::cmp::Reverse(lease.unwrap_or(Duration::MAX)));
            Holder { token, remaining: leases[majority - 1] }
        })
        .collect();
    holders.sort_unstable_by_key(|holder| holder.remaining.unwrap_or(Duration::MAX));
    holders
}

/// Sends the messages by every node. One that arrives is enough.
pub(super) async fn tell(
    quorum: &QuorumStore,
    messages: Vec<ProcessMessage>,
    answer_by: Moment,
) -> Result<Vec<bool>, Fault> {
    let all = quorum.answers(|node| node.tell(messages.clone(), answer_by)).await?;
    Ok((0..messages.len()).map(|at| all.iter().any(|told| told.get(at) == Some(&true))).collect())
}

/// Returns the records of processes, each from a node that has one.
pub(super) async fn records(
    quorum: &QuorumStore,
    prefix: String,
    processes: Vec<String>,
    answer_by: Moment,
) -> Result<Records, Fault> {
    let ask = |node: Arc<_>| -> Op<Records> {
        crate::RedisStore::records(node, prefix.clone(), processes.clone(), answer_by)
    };
    let mut all = quorum.answers(ask).await?.into_iter();
    let mut found = all.next().unwrap_or(Records { time: 0, texts: vec![None; processes.len()] });
    for other in all {
        found.time = found.time.max(other.time);
        for (text, other) in found.texts.iter_mut().zip(other.texts) {
            *text = text.take().or(other);
        }
    }
    Ok(found)
}
