//! Renewals (R10): many leases in one pipeline. Each compares the token before it extends the lease, and never creates
//! the lock.
//!
//! In a cluster, renewals are grouped by node. A renewal that a node refuses is sent on to the next one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock_core::clock::{Clock, Moment, millis};
use distlock_core::store::owner::Owner;
use distlock_core::store::{Attempt, BackendKind, Fault, Owned, Renewal, Renewed};
use redis::{Cmd, Pipeline, RedisError, Value};

use crate::addr::Addr;
use crate::cluster::{Cluster, LinkKind};
use crate::commands::fence::{FENCES_PER_DRAW, Fence, Fences};
use crate::commands::server::Server;
use crate::connection::error::{fault, is_missing_script};
use crate::connection::live::{ConnectionHandle, LiveConnection, ints};
use crate::redirect::Redirect;
use crate::routing::Routing;
use crate::script::{Arg, Script, ScriptPair};
use crate::slots::Slot;

/// How often another counter value is drawn if the counter goes back again and again.
const DRAWS: usize = 3;
const BACKWARDS: &str = "the counter of fencing tokens goes backwards";

/// The most times that one renewal is sent on.
const HOPS: usize = 5;
const MOVES: &str = "the slot of this lock is on its way to another node of the cluster";

/// The renewals of one manager.
pub(crate) struct Renewals {
    scripts: ScriptPair,
    /// The number of renewals that were sent. Each has a number, which its reply repeats.
    sent: AtomicU64,
}

/// A renewal, and the keys it is sent with.
pub(crate) struct RenewalRequest<'a> {
    pub(crate) renewal: &'a Renewal,
    pub(crate) keys: RenewalKeys,
}

/// The keys that a renewal reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalKeys {
    All,
    /// Only the lock. Then it is unknown whether others wait.
    Lock,
}

/// A renewal without a result so far.
struct OpenRenewal {
    at: usize,
    slot: Slot,
    keys: RenewalKeys,
    /// The node that the lock was migrated to before its slot.
    ahead: Option<Addr>,
}

impl Renewals {
    pub(crate) fn new() -> Self {
        Self { scripts: ScriptPair::renew(), sent: AtomicU64::new(0) }
    }

    /// Extends all of these leases.
    pub(crate) async fn renew(
        &self,
        server: &Server,
        renewals: &[Renewal],
    ) -> Result<Renewed, Fault> {
        let answer_by = Clock::Boottime.now().after(server.command_timeout);
        match &server.routing {
            Routing::One(node) => {
                let mut connection = node.pool.renewals().connection(answer_by).await?;
                let asked: Vec<_> = renewals.iter().map(RenewalRequest::of_all).collect();
                let (sent, answers) =
                    self.extend(server, &asked, &mut connection, answer_by).await?;
                Ok(Renewed { sent, answers: answers.into_iter().map(|(owned, _)| owned).collect() })
            }
            Routing::Cluster(cluster) => renew(self, server, cluster, renewals, answer_by).await,
        }
    }

    /// Extends these leases of one node. Each result comes with the refusal of the node, if it has not run the command.
    pub(crate) async fn extend(
        &self,
        server: &Server,
        asked: &[RenewalRequest<'_>],
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<(Moment, Vec<(Result<Owned, Fault>, Option<Redirect>)>), Fault> {
        let sent = Clock::Boottime.now();
        server.record.used(sent);
        let mut pipeline = Pipeline::with_capacity(asked.len());
        let first = self.sent.fetch_add(asked.len() as u64, Ordering::Relaxed);
        for RenewalRequest { renewal, .. } in asked {
            renewal.owner.stored_until(sent.after(renewal.ttl));
            server.keep_subscribed(&renewal.owner.lock, renewal.ttl);
        }
        for (number, asked) in (first..).zip(asked) {
            pipeline.add_command(self.command(server, asked, number, Script::by_hash));
        }
        let replicas = server.replicas;
        if let Some(replicas) = replicas {
            pipeline.add_command(replicas.wait());
        }
        let mut answers: Vec<_> = connection.pipeline(&pipeline, sent, answer_by).await?;
        let mut confirmed = match replicas {
            Some(replicas) => replicas.check(&answers.pop().unwrap_or(Value::Nil)),
            None => Ok(()),
        };
        let missing: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
        if !missing.is_empty() {
            let mut again = Pipeline::with_capacity(missing.len());
            let mut known = Vec::new();
            for at in &missing {
                let alone = asked[*at].renewal.owner.limit.is_alone();
                // One text of each script is enough: the server knows the script by the next command.
                let call = if known.contains(&alone) { Script::by_hash } else { Script::by_text };
                known.push(alone);
                again.add_command(self.command(server, &asked[*at], first + *at as u64, call));
            }
            let repeated = connection.pipeline(&again, Clock::Boottime.now(), answer_by).await?;
            missing.iter().zip(repeated).for_each(|(at, answer)| answers[*at] = answer);
            confirmed = server.confirm(connection, None, answer_by).await;
        }
        answers.iter().for_each(|answer| connection.live.check_answer(answer));
        let answers = (first..).zip(asked).zip(&answers).map(|((number, one), answer)| {
            let redirect =
                connection.live.node.as_ref().and_then(|node| Redirect::of_answer(answer, node));
            let owned = match (
                checked(&server.fences, one.renewal, number, answer, &connection.live),
                &confirmed,
            ) {
                // A renewal that only this server knows would be lost with it, so the old deadline stays.
                (Ok(Owned::Yes { .. }), Err(fault)) => Err(fault.clone()),
                (owned, _) => owned,
            };
            (owned, redirect)
        });
        Ok((sent, answers.collect()))
    }

    fn command(
        &self,
        server: &Server,
        asked: &RenewalRequest<'_>,
        number: u64,
        call: fn(&Script, &[Arg<'_>], &[Arg<'_>]) -> Cmd,
    ) -> Cmd {
        let RenewalRequest { renewal, keys: which } = asked;
        let counter = renewal.draw.then(|| server.fences.of(&renewal.owner.lock));
        let counter = counter.as_ref().map_or("", |counter| &counter.key);
        let (keys, args) = keys_and_args(counter, renewal, number);
        call(self.scripts.of(renewal.owner.limit), which.of(renewal, &keys), &args)
    }

    /// Draws another counter value for a lock that was granted with one that is not new (R2). Returns `None` if the
    /// token no longer has the lock.
    ///
    /// The value is drawn by a renewal, which neither frees nor creates the lock: other callers may depend on its token
    /// by now.
    pub(crate) async fn draw_again(
        &self,
        fences: &Fences,
        attempt: &Attempt,
        counter: &Fence,
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<Option<u64>, Fault> {
        for _ in 0..DRAWS {
            fences.raise(counter, None, connection, answer_by).await?;
            let seen = counter.seen();
            let ttl = attempt.term.stored_for();
            let (owner, fence) = (attempt.owner.clone(), seen);
            let renewal = Renewal { owner, ttl, draw: true, fence };
            let number = self.sent.fetch_add(1, Ordering::Relaxed);
            renewal.owner.stored_until(Clock::Boottime.now().after(ttl));
            let (keys, args) = keys_and_args(&counter.key, &renewal, number);
            let script = self.scripts.of(renewal.owner.limit);
            let answer = connection
                .run(script, RenewalKeys::All.of(&renewal, &keys), &args, answer_by)
                .await?;
            match owned(&answer, number, &connection.live)? {
                Owned::Yes { fence: Some(fence), .. } if fences.is_new(counter, fence, seen)? => {
                    return Ok(Some(fence));
                }
                Owned::Yes { .. } => {}
                Owned::No => return Ok(None),
            }
        }
        Err(Fault::lasting(BackendKind::Other, BACKWARDS))
    }
}

impl<'a> RenewalRequest<'a> {
    fn of_all(renewal: &'a Renewal) -> Self {
        Self { renewal, keys: RenewalKeys::All }
    }
}

impl RenewalKeys {
    /// Returns the keys to send. The counter is the last one. It is named only if a value is drawn from it.
    fn of<'a, 'b>(self, renewal: &Renewal, keys: &'b [Arg<'a>; 3]) -> &'b [Arg<'a>] {
        match self {
            Self::All => &keys[..2 + usize::from(renewal.draw)],
            Self::Lock => &keys[..1],
        }
    }
}

/// Returns the keys and arguments of the script. [`RenewalKeys`] tells how many of the keys are sent.
fn keys_and_args<'a>(
    counter: &'a str,
    renewal: &'a Renewal,
    number: u64,
) -> ([Arg<'a>; 3], [Arg<'a>; 4]) {
    let Owner { lock, token, .. } = &*renewal.owner;
    let keys = [Arg::Text(lock.stored()), Arg::Queue(lock), Arg::Text(counter)];
    let fences = if renewal.draw { FENCES_PER_DRAW } else { 0 };
    let (ttl, fences) = (Arg::Number(millis(renewal.ttl)), Arg::Number(fences));
    (keys, [Arg::Text(token), ttl, fences, Arg::Number(number)])
}

/// Reads the reply to a renewal. Fails if it has drawn counter values (R5) that are not new.
fn checked(
    fences: &Fences,
    renewal: &Renewal,
    number: u64,
    answer: &Value,
    live: &LiveConnection,
) -> Result<Owned, Fault> {
    let owned = owned(answer, number, live)?;
    if let Owned::Yes { fence: Some(fence), .. } = owned
        && !fences.are_new(&fences.of(&renewal.owner.lock), fence, renewal.fence)?
    {
        return Err(Fault::passing(BackendKind::Other, BACKWARDS));
    }
    Ok(owned)
}

/// Reads the reply to the renewal with this number. Another number drops the connection.
fn owned(answer: &Value, number: u64, live: &LiveConnection) -> Result<Owned, Fault> {
    let parts = match answer {
        Value::Array(parts) => parts,
        Value::ServerError(error) => return Err(fault(&RedisError::from(error.clone()))),
        _ => return Err(live.desynchronized()),
    };
    match ints(parts) {
        [Some(state), Some(own), fence, ..] if u64::try_from(own) == Ok(number) => match state {
            0 => Ok(Owned::No),
            state => {
                let fence = fence.and_then(|fence| u64::try_from(fence).ok());
                Ok(Owned::Yes { contended: state == 2, fence })
            }
        },
        _ => Err(live.desynchronized()),
    }
}

fn is_unknown(answer: &Value) -> bool {
    match answer {
        Value::ServerError(error) => is_missing_script(&RedisError::from(error.clone())),
        _ => false,
    }
}

pub(crate) async fn renew(
    renewals: &Renewals,
    server: &Server,
    cluster: &Cluster,
    leases: &[Renewal],
    answer_by: Moment,
) -> Result<Renewed, Fault> {
    let open = |(at, renewal): (usize, &Renewal)| {
        let slot = Slot::of(renewal.owner.lock.stored());
        OpenRenewal { at, slot, keys: RenewalKeys::All, ahead: None }
    };
    let mut open: Vec<_> = leases.iter().enumerate().map(open).collect();
    let moves = || Err(Fault::passing(BackendKind::Other, MOVES));
    let mut answers: Vec<Result<Owned, Fault>> = leases.iter().map(|_| moves()).collect();
    // The time of the first send. Renewals that were sent on were sent later.
    let sent = Clock::Boottime.now();
    for _ in 0..=HOPS {
        for together in by_node(std::mem::take(&mut open), cluster) {
            match ask(renewals, server, leases, &together, cluster, answer_by).await {
                Err(fault) => {
                    cluster.request_refresh();
                    together.iter().for_each(|one| answers[one.at] = Err(fault.clone()));
                }
                Ok(results) => {
                    for (one, (answer, redirect)) in together.into_iter().zip(results) {
                        match redirect {
                            None => answers[one.at] = answer,
                            Some(redirect) => {
                                open.extend(one.sent_on(&redirect, leases, cluster));
                            }
                        }
                    }
                }
            }
        }
        if open.is_empty() {
            break;
        }
    }
    Ok(Renewed { sent, answers })
}

impl OpenRenewal {
    /// Returns the next request after this refusal; `None` if the lease is left to a later renewal.
    fn sent_on(
        mut self,
        redirect: &Redirect,
        leases: &[Renewal],
        cluster: &Cluster,
    ) -> Option<Self> {
        // A value cannot be drawn from a counter that may be elsewhere. The next renewal does not draw.
        let draws = leases[self.at].draw;
        match redirect {
            Redirect::Moved { slot, to } => {
                cluster.moved(*slot, to);
                self.ahead = None;
            }
            // Redis 6.2 refuses several keys as soon as one of them is missing, and that may not be the lock.
            Redirect::Ask { .. } | Redirect::TryAgain
                if !draws && self.keys == RenewalKeys::All =>
            {
                self.keys = RenewalKeys::Lock;
            }
            Redirect::Ask { to } if !draws => self.ahead = Some(to.clone()),
            Redirect::Ask { .. } | Redirect::TryAgain => return None,
            Redirect::Unavailable => {
                cluster.request_refresh();
                return None;
            }
        }
        Some(self)
    }
}

/// Groups the renewals that are sent to the same node.
fn by_node(open: Vec<OpenRenewal>, cluster: &Cluster) -> Vec<Vec<OpenRenewal>> {
    let mut nodes = BTreeMap::<_, Vec<_>>::new();
    for one in open {
        let node = match &one.ahead {
            Some(to) => Some(cluster.node_at(to)),
            None => cluster.owner(one.slot),
        };
        let number = node.map_or(0, |node| node.number);
        nodes.entry((number, one.ahead.is_some())).or_default().push(one);
    }
    nodes.into_values().collect()
}

async fn ask(
    renewals: &Renewals,
    server: &Server,
    leases: &[Renewal],
    together: &[OpenRenewal],
    cluster: &Cluster,
    answer_by: Moment,
) -> Result<Vec<(Result<Owned, Fault>, Option<Redirect>)>, Fault> {
    let mut connection = match &together[0].ahead {
        None => cluster.reach(together[0].slot, LinkKind::Renewals, answer_by).await?,
        Some(to) => {
            let node = cluster.node_at(to);
            let mut connection = node.pool.renewals().connection(answer_by).await?;
            connection.asking = true;
            connection
        }
    };
    let asked = |one: &OpenRenewal| RenewalRequest { renewal: &leases[one.at], keys: one.keys };
    let asked: Vec<_> = together.iter().map(asked).collect();
    let (_, results) = renewals.extend(server, &asked, &mut connection, answer_by).await?;
    Ok(results)
}
