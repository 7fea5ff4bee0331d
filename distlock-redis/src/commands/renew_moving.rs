//! Renewals in a cluster: each goes to the node that has the lock, and on to where that sends it.
//!
//! While a slot moves key by key, a lock and its queue may be on two nodes, and a command that names both is refused at
//! either. A lease must not be lost for that: it is extended by a command that names the lock alone, at the node that
//! has it.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Line};
use crate::commands::renew::{Asked, Keys, Renewals};
use crate::redirect::Said;
use crate::server::Server;
use crate::slots::{Addr, Slot};
use distlock_core::clock::{Clock, Moment};
use distlock_core::store::BackendKind;
use distlock_core::store::{Fault, Owned, Renewal, Renewed};

/// So often one renewal is sent on.
const HOPS: usize = 5;
const MOVES: &str = "the slot of this lock is on its way to another node of the cluster";

/// One renewal without an answer.
struct Open {
    at: usize,
    slot: Slot,
    keys: Keys,
    /// The node that the lock has gone to ahead of its slot.
    ahead: Option<Addr>,
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
        Open { at, slot, keys: Keys::All, ahead: None }
    };
    let mut open: Vec<_> = leases.iter().enumerate().map(open).collect();
    let moves = || Err(Fault::passing(BackendKind::Other, MOVES));
    let mut answers: Vec<Result<Owned, Fault>> = leases.iter().map(|_| moves()).collect();
    // Of the first: one that was sent on was sent later.
    let sent = Clock::Boottime.now();
    for _ in 0..=HOPS {
        for together in by_node(std::mem::take(&mut open), cluster) {
            match ask(renewals, server, leases, &together, cluster, answer_by).await {
                Err(fault) => {
                    cluster.doubt();
                    together.iter().for_each(|one| answers[one.at] = Err(fault.clone()));
                }
                Ok(told) => {
                    for (one, (answer, said)) in together.into_iter().zip(told) {
                        match said {
                            None => answers[one.at] = answer,
                            Some(said) => {
                                open.extend(one.sent_on(&said, leases, cluster));
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

impl Open {
    /// What is asked next now that a node has said this; `None` if it is left for another time.
    fn sent_on(mut self, said: &Said, leases: &[Renewal], cluster: &Cluster) -> Option<Self> {
        // A value cannot be drawn from a counter that may be elsewhere. The next renewal goes without.
        let draws = leases[self.at].draw;
        match said {
            Said::Moved { slot, to } => {
                cluster.moved(*slot, to);
                self.ahead = None;
            }
            // Redis 6.2 says so of several keys as soon as one of them is not there, and it may not be the lock.
            Said::Ask { .. } | Said::Apart if !draws && self.keys == Keys::All => {
                self.keys = Keys::Lock;
            }
            Said::Ask { to } if !draws => self.ahead = Some(to.clone()),
            Said::Ask { .. } | Said::Apart => return None,
            Said::Down => {
                cluster.doubt();
                return None;
            }
        }
        Some(self)
    }
}

/// Those together that are asked of the same node.
fn by_node(open: Vec<Open>, cluster: &Cluster) -> Vec<Vec<Open>> {
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
    together: &[Open],
    cluster: &Cluster,
    answer_by: Moment,
) -> Result<Vec<(Result<Owned, Fault>, Option<Said>)>, Fault> {
    let mut live = match &together[0].ahead {
        None => cluster.reach(together[0].slot, Line::Renewals, answer_by).await?,
        Some(to) => {
            let node = cluster.node_at(to);
            let mut live = node.pool.renewals().live(answer_by).await?;
            live.asking = true;
            live
        }
    };
    let asked = |one: &Open| Asked { renewal: &leases[one.at], keys: one.keys };
    let asked: Vec<_> = together.iter().map(asked).collect();
    let (_, told) = renewals.extend(server, &asked, &mut live, answer_by).await?;
    Ok(told)
}
