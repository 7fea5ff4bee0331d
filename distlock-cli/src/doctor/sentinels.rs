//! Checks that the sentinels of a primary can replace it.

use distlock::LockManager;

use super::client::text;
use super::finding::Finding;
use crate::admin::StoreReply;
use crate::text::shown;

const CHECK: &str = "sentinels";
/// With fewer sentinels, the loss of one leaves no majority.
const ENOUGH: u64 = 3;

/// Sums up the replies of the sentinels. Returns nothing if no sentinels name the primary.
pub(super) async fn check(manager: &LockManager) -> Vec<Finding> {
    let replies = manager.ask_sentinels().await.unwrap_or_default();
    let mut findings: Vec<Finding> =
        replies.iter().filter_map(|(sentinel, replies)| of_one(sentinel, replies)).collect();
    let details: Vec<&StoreReply> =
        replies.iter().filter_map(|(_, replies)| replies.first()).collect();
    let others = details.iter().filter_map(|details| number(details, "num-other-sentinels"));
    let known = others.max().map_or(replies.len() as u64, |others| others + 1);
    if !replies.is_empty() && known < ENOUGH {
        let text = match known {
            1 => "a lone sentinel: if it is down, no replica is promoted".to_owned(),
            _ => format!("{known} sentinels: if one of them is down, no replica is promoted"),
        };
        let hint = "run at least three, on machines of their own, and name them in the URL";
        findings.push(Finding::warn(CHECK, text, hint));
    }
    if details.iter().filter_map(|details| number(details, "num-slaves")).max() == Some(0) {
        let text = "the primary has no replica that could be promoted";
        findings.push(Finding::warn(CHECK, text, "give the primary a replica (`replicaof`)"));
    }
    if !replies.is_empty() && findings.is_empty() {
        findings
            .push(Finding::ok(CHECK, format!("{known}, and enough of them to promote a replica")));
    }
    findings
}

/// The problem that one sentinel reports, if any.
fn of_one(sentinel: &str, replies: &[StoreReply]) -> Option<Finding> {
    let text = |words: &str| format!("{sentinel}: {}", shown(words));
    match replies {
        // The reply counts the sentinels that can be reached, so it is the same at each of them.
        [_, StoreReply::Error(words)] if words.contains("NOQUORUM") => Some(Finding::warn(
            CHECK,
            text(words),
            "start the sentinels that are missing, or have those that are gone for good forgotten (`SENTINEL RESET`)",
        )),
        [StoreReply::Error(words), ..] if replies.len() == 1 => {
            Some(Finding::warn(CHECK, text(words), "start it, or take it out of the URL"))
        }
        [StoreReply::Error(words), _] | [_, StoreReply::Error(words)] => {
            Some(Finding::unknown(CHECK, text(words)))
        }
        _ => None,
    }
}

/// Returns a field of a sentinel's reply, in which names and values alternate.
fn number(details: &StoreReply, name: &str) -> Option<u64> {
    let StoreReply::List(fields) = details else { return None };
    let at = fields.iter().step_by(2).position(|field| text(field).as_deref() == Some(name))?;
    match fields.get(2 * at + 1)? {
        StoreReply::Number(number) => u64::try_from(*number).ok(),
        value => text(value)?.parse().ok(),
    }
}
