//! The first contact: what is wrong with an address shows here, and not when the first lock is taken.

use crate::cluster::Cluster;
use crate::commands::trial;
use crate::connection::live::Connection;
use crate::routing::Layout;
use crate::server::Server;
use crate::slots::Slot;
use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use distlock_core::store::BackendKind;
use distlock_core::store::Fault;

/// Raises a counter on every connection for commands, and tries every script once; in a cluster, on one of the node that has its slot.
pub(crate) async fn first_contact(server: &Server, answer_by: Moment) -> Result<(), Fault> {
    let unused = server.unused();
    match &server.layout {
        Layout::One(node) => {
            for link in node.pool.all_commands() {
                let mut live = link.first(answer_by).await?;
                raise(server, unused.as_ref(), &mut live, answer_by).await?;
            }
        }
        Layout::Cluster(cluster) => {
            cluster.first(answer_by).await?;
            let Some(unused) = &unused else { return Ok(()) };
            let slot = Slot::of(unused.stored());
            if let Some(node) = cluster.owner(slot) {
                let first = node.pool.commands(unused.stored()).first(answer_by).await;
                if let Err(fault) = first.map(drop) {
                    return without(cluster, fault, answer_by).await;
                }
            }
            let mut route = server.route(unused.stored(), answer_by);
            loop {
                let mut live = route.commands().await?;
                let mut raised = raise(server, Some(unused), &mut live, answer_by).await;
                if !route.goes_on(&mut live, &mut raised) {
                    return raised;
                }
            }
        }
    }
    Ok(())
}

/// One shard that is down is not the cluster, whichever it is: another node answers.
async fn without(cluster: &Cluster, fault: Fault, answer_by: Moment) -> Result<(), Fault> {
    match fault.kind {
        BackendKind::Unreachable | BackendKind::TimedOut if fault.passing => {
            cluster.reach_any(answer_by).await.map(drop).map_err(|_| fault)
        }
        _ => Err(fault),
    }
}

async fn raise(
    server: &Server,
    unused: Option<&LockName>,
    live: &mut Connection,
    answer_by: Moment,
) -> Result<(), Fault> {
    let fences = &server.fences;
    let Some(lock) = unused else { return Ok(()) };
    let counter = &*fences.of(lock);
    // With the names of a lock that is never taken: an ACL may allow others only.
    let mut raised = fences.raise(counter, unused, live, answer_by).await;
    if raised.as_ref().is_err_and(|fault| fault.kind == BackendKind::Refused) {
        let again = fences.raise(counter, None, live, answer_by).await;
        // A connection that would have to sign in is left by then: what it failed with first says more.
        if again.as_ref().err().is_none_or(|fault| fault.kind == BackendKind::Refused) {
            raised = again;
        }
    }
    match raised {
        // A server that is out of memory can still free and renew; acquires will say so.
        Err(fault) if fault.kind != BackendKind::OutOfMemory => Err(fault),
        _ => trial::run(server, lock, live, answer_by).await,
    }
}
