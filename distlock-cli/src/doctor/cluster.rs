//! Checks that a cluster serves every slot.

use super::client::{ServerClient, ServerInfo, text};
use super::finding::Finding;
use crate::admin::StoreReply;

const CHECK: &str = "slots";
/// The number of slots in a cluster.
const SLOTS: u64 = 16384;

/// Reports whether every slot is served. `None` if the server is not a node of a cluster.
pub(super) async fn slots(server: &ServerClient<'_>, info: &ServerInfo) -> Option<Finding> {
    if info.get("cluster_enabled") != Some("1") {
        return None;
    }
    let assigned = server.send(&["CLUSTER", "SLOTS"]).await.and_then(|reply| count(&reply));
    // Counts only slots whose nodes are up. The user may lack this right, because locks do not need it.
    let state = server.send(&["CLUSTER", "INFO"]).await.and_then(|reply| text(&reply));
    let state = ServerInfo(state);
    let up = state.number("cluster_slots_ok");
    let Some(served) = assigned.into_iter().chain(up).min() else {
        return Some(Finding::unknown(CHECK, "the server does not say which slots are served"));
    };
    Some(match served < SLOTS {
        true => Finding::fail(
            CHECK,
            format!("{served} of {SLOTS} are served: locks in the others cannot be taken"),
            "bring back the nodes that had them, or give them to others (`redis-cli --cluster check`, then `fix`)",
        ),
        false => Finding::ok(CHECK, "all are served"),
    })
}

/// Warns of a primary without a replica.
pub(super) fn without_replica(info: &ServerInfo) -> Option<Finding> {
    let is_alone =
        info.get("cluster_enabled") == Some("1") && info.number("connected_slaves") == Some(0);
    is_alone.then(|| {
        Finding::warn(
            "replicas",
            "no replica: while this node is down, its locks cannot be taken",
            "give each shard a replica on another machine",
        )
    })
}

/// Counts the slots that have a node. The reply lists ranges: the first slot, the last slot, then the nodes.
fn count(reply: &StoreReply) -> Option<u64> {
    let StoreReply::List(ranges) = reply else { return None };
    let lengths = ranges.iter().map(|range| match range {
        StoreReply::List(range) => match range[..] {
            [StoreReply::Number(first), StoreReply::Number(last), ..] => {
                u64::try_from(last - first + 1).ok()
            }
            _ => None,
        },
        _ => None,
    });
    lengths.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted() {
        let range = |first, last| {
            let node = StoreReply::List(vec![StoreReply::Text(b"10.0.0.1".to_vec())]);
            StoreReply::List(vec![StoreReply::Number(first), StoreReply::Number(last), node])
        };
        assert_eq!(count(&StoreReply::List(vec![range(0, 8000), range(9000, 9000)])), Some(8002));
        assert_eq!(count(&StoreReply::List(vec![])), Some(0));
        assert_eq!(count(&StoreReply::Error("NOPERM".to_owned())), None);
    }
}
