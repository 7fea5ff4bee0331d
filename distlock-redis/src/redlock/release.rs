//! Releases a token at all nodes.
//!
//! The call waits for a majority. Once that has freed the lock, the other nodes cannot keep it from another token. They
//! are asked in the background until they have confirmed.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::store::owner::{Owner, RELEASE_REPEATS};
use distlock_core::store::{Fault, Freed, Store};
use distlock_core::timers::{Alarm, Alarms};

use super::node::Node;
use super::quorum::{FailedNodes, QuorumStore};
use super::request::PendingReplies;

/// A token that is being released, until all nodes have confirmed it.
struct PendingRelease {
    nodes: Arc<[Arc<Node>]>,
    alarms: Arc<Alarms>,
    owner: Arc<Owner>,
    /// Until when the lock must be kept.
    kept_until: Option<Moment>,
    command_timeout: Duration,
}

/// Releases a token at every node that may have it.
pub(super) async fn release(
    quorum: &QuorumStore,
    owner: Arc<Owner>,
    keep: Option<Duration>,
    answer_by: Moment,
) -> Result<Freed, Fault> {
    quorum.split_votes.settled(&owner);
    let parts = owner.parts(quorum.nodes.len());
    // A token that only the stores still know is at every node.
    let stray = parts.iter().all(|part| part.owner.is_unsent());
    let is_asked = |at: usize| stray || parts[at].owner.may_be_stored();
    let mut request = quorum.ask((0..quorum.nodes.len()).filter(|at| is_asked(*at)).map(|at| {
        (at, quorum.nodes[at].store.clone().release(parts[at].owner.clone(), keep, answer_by))
    }));
    let needed = quorum.majority().min(request.unanswered().count());
    let (mut freed, mut rest, mut missing) = (Freed::nothing(), Vec::new(), FailedNodes::default());
    let (mut answered, mut ours) = (0, 0);
    while answered < needed {
        match request.next().await {
            Some((_, Ok(one))) => {
                answered += 1;
                ours += usize::from(one.was_ours);
                freed.settled &= one.settled;
                freed.awaited |= one.awaited;
                for token in one.next {
                    if !freed.next.contains(&token) {
                        freed.next.push(token);
                    }
                }
            }
            Some((at, Err(fault))) => {
                rest.push(at);
                missing.add(at, fault);
            }
            None => break,
        }
    }
    if answered < needed {
        // The caller repeats the whole release.
        return Err(quorum.no_majority(missing));
    }
    freed.was_ours = ours != 0 && ours + (quorum.nodes.len() - answered) >= quorum.majority();
    release_rest(quorum, owner, keep, request.into_pending(), rest);
    Ok(freed)
}

/// Releases a token at these nodes until they have confirmed it.
pub(super) fn release_at(quorum: &QuorumStore, owner: Arc<Owner>, nodes: Vec<usize>) {
    if !nodes.is_empty() {
        quorum.handle.spawn(pending_release(quorum, owner, None).repeat(nodes));
    }
}

fn pending_release(
    quorum: &QuorumStore,
    owner: Arc<Owner>,
    keep: Option<Duration>,
) -> PendingRelease {
    PendingRelease {
        nodes: quorum.nodes.clone(),
        alarms: quorum.alarms.clone(),
        kept_until: keep.map(|keep| Clock::Boottime.now().after(keep)),
        command_timeout: quorum.command_timeout,
        owner,
    }
}

/// Waits for the other nodes in the background, and asks again those that fail or are unsettled.
fn release_rest(
    quorum: &QuorumStore,
    owner: Arc<Owner>,
    keep: Option<Duration>,
    mut pending: PendingReplies<Freed>,
    mut rest: Vec<usize>,
) {
    if pending.is_empty() && rest.is_empty() {
        return;
    }
    let release = pending_release(quorum, owner, keep);
    let failed = !rest.is_empty();
    let rest = async move {
        while let Some((at, answer)) = pending.next().await {
            if !answer.is_ok_and(|one| one.settled) {
                rest.push(at);
            }
        }
        release.repeat(rest).await;
    };
    match failed {
        true => drop(quorum.handle.spawn(rest)),
        false => quorum.stragglers.leave(rest),
    }
}

impl PendingRelease {
    async fn repeat(self, rest: Vec<usize>) {
        // The number of unsettled replies by node: an acquire may still be in flight to it.
        let mut rest: Vec<_> = rest.into_iter().map(|at| (at, 0)).collect();
        let last = RELEASE_REPEATS[RELEASE_REPEATS.len() - 1];
        for (tries, pause) in (1..).zip(RELEASE_REPEATS.into_iter().chain(iter::repeat(last))) {
            if rest.is_empty() {
                return;
            }
            Alarm::at(&self.alarms, Clock::Boottime, Clock::Boottime.now().after(pause)).await;
            let mut left = Vec::new();
            for (at, answers) in rest {
                let part = self.owner.parts(self.nodes.len())[at].owner.clone();
                match self.once(at, part.clone()).await {
                    Ok(one) if one.settled || answers + 1 == RELEASE_REPEATS.len() => {}
                    Ok(_) => left.push((at, answers + 1)),
                    Err(_)
                        if tries >= RELEASE_REPEATS.len()
                            && part.gone_by() <= Clock::Boottime.now() => {}
                    Err(_) => left.push((at, answers)),
                }
            }
            rest = left;
        }
    }

    async fn once(&self, at: usize, part: Arc<Owner>) -> Result<Freed, Fault> {
        let now = Clock::Boottime.now();
        let keep = self.kept_until.map(|end| end.since(now)).filter(|keep| !keep.is_zero());
        let store = self.nodes[at].store.clone();
        store.release(part, keep, now.after(self.command_timeout)).await
    }
}
