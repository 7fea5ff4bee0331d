//! Checks of the contents of the store: keys without an expiry, the counter of fencing tokens, other prefixes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::client::{ServerClient, ServerInfo, command, text};
use super::finding::Finding;
use crate::admin::StoreReply;
use crate::store::StoreConfig;
use crate::text::shown;

/// The longest time for a scan of a large database.
const LONGEST_SCAN: Duration = Duration::from_secs(5);
/// A counter this far ahead is suspicious: the server's clock was set back, or something else has written to it.
const AHEAD: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of counters that are checked.
const COUNTERS: usize = 100;
/// The number of keys that a finding names.
const EXAMPLES: usize = 3;

/// The keys in the store.
#[derive(Default)]
struct KeyspaceSummary {
    locks: usize,
    queues: usize,
    endless: Vec<String>,
    /// The counters of fencing tokens; in a cluster each slot has one.
    counters: BTreeSet<String>,
    others: BTreeSet<String>,
    is_whole: bool,
}

pub(super) async fn check(
    store: &StoreConfig,
    server: &ServerClient<'_>,
    info: &ServerInfo,
) -> Vec<Finding> {
    let summary = scan(store, server).await;
    let is_cluster = info.get("cluster_enabled") == Some("1");
    let mut findings = Vec::new();
    match &summary {
        // In a cluster each slot has a counter as soon as one of its locks was acquired.
        Some(summary) if is_cluster => {
            for counter in summary.counters.iter().take(COUNTERS) {
                let finding = fence(server, counter).await;
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        _ if is_cluster => {}
        _ => findings.push(fence(server, &format!("{}fence", store.name_prefix())).await),
    }
    match summary {
        Some(summary) => findings.extend([expiry(&summary), usage(store, server, &summary).await]),
        None => findings.push(Finding::unknown("contents", "the server does not list its keys")),
    }
    findings
}

async fn fence(server: &ServerClient<'_>, fence: &str) -> Finding {
    const CHECK: &str = "fence";
    let Some(reply) = server.send(&["GET", fence]).await else {
        return Finding::unknown(CHECK, "the server did not answer");
    };
    let counter: Option<u64> = text(&reply).and_then(|text| text.parse().ok());
    let Some(counter) = counter else {
        return Finding::fail(
            CHECK,
            format!("the counter of fencing tokens ({fence}) is missing, or no number"),
            "something else deletes or writes it: give locks a database or a prefix of their own",
        );
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match Duration::from_micros(counter).checked_sub(now) {
        Some(ahead) if ahead > AHEAD => Finding::warn(
            CHECK,
            format!(
                "the counter is {} ahead of the clock: the server's was set back, or something else wrote it",
                humantime::format_duration(Duration::from_secs(ahead.as_secs() / 3600 * 3600))
            ),
            "tokens still grow; do not delete the counter while anything remembers tokens",
        ),
        _ => Finding::ok(CHECK, "fencing tokens are drawn from a counter in step with the clock"),
    }
}

async fn scan(store: &StoreConfig, server: &ServerClient<'_>) -> Option<KeyspaceSummary> {
    let begin = Instant::now();
    let mut summary = KeyspaceSummary::default();
    let mut cursor = "0".to_owned();
    loop {
        let reply = server.send(&["SCAN", &cursor, "COUNT", "1000"]).await?;
        let StoreReply::List(parts) = reply else { return None };
        let (Some(next), Some(StoreReply::List(names))) = (parts.first(), parts.get(1)) else {
            return None;
        };
        let names: Vec<String> = names.iter().filter_map(text).collect();
        summary.add(store, server, &names).await?;
        cursor = text(next)?;
        summary.is_whole = cursor == "0";
        if summary.is_whole || begin.elapsed() > LONGEST_SCAN {
            return Some(summary);
        }
    }
}

impl KeyspaceSummary {
    /// Counts these keys.
    async fn add(
        &mut self,
        store: &StoreConfig,
        server: &ServerClient<'_>,
        names: &[String],
    ) -> Option<()> {
        let prefix = store.name_prefix();
        let of = |kind: &str| {
            let (begin, kind) = (prefix.clone(), format!("{kind}:"));
            move |name: &&String| {
                name.strip_prefix(&begin).is_some_and(|rest| rest.starts_with(&kind))
            }
        };
        let (is_lock, is_queue, is_record) = (of("lock"), of("queue"), of("process"));
        let lists = ["processes", "{processes}"].map(|list| format!("{prefix}{list}"));
        let is_ours = |name: &&String| {
            is_lock(name) || is_queue(name) || is_record(name) || lists.contains(name)
        };
        let counters = names.iter().filter(|name| is_counter(name, &prefix));
        self.counters.extend(counters.cloned());
        let ours: Vec<&String> = names.iter().filter(is_ours).collect();
        self.locks += names.iter().filter(&is_lock).count();
        self.queues += names.iter().filter(&is_queue).count();
        let prefixes = names.iter().filter_map(|name| prefix_of(name));
        self.others.extend(prefixes.filter(|other| *other != prefix).map(str::to_owned));
        if ours.is_empty() {
            return Some(());
        }
        let commands = ours.iter().map(|name| command(&["PTTL", name])).collect();
        let ends = server.send_all(commands).await.ok()?;
        // -1 means no expiry, -2 that the key is gone by now.
        let endless = ours.iter().zip(&ends).filter(|(_, end)| **end == StoreReply::Number(-1));
        self.endless.extend(endless.map(|(name, _)| (*name).clone()));
        Some(())
    }
}

/// Returns the prefix, with its separator, of a key that looks like a lock or a counter.
fn prefix_of(name: &str) -> Option<&str> {
    // A counter in a cluster is called `P:fence:{17}`.
    let name = name.split_once("fence:{").map_or(name, |(begin, _)| &name[..begin.len() + 5]);
    if let Some(prefix) = name.strip_suffix("fence") {
        return (prefix.is_empty() || prefix.ends_with(':')).then_some(prefix);
    }
    let at = name.find("lock:{").or_else(|| name.find("lock::"))?;
    let prefix = &name[..at];
    (prefix.is_empty() || prefix.ends_with(':')).then_some(prefix)
}

fn expiry(summary: &KeyspaceSummary) -> Finding {
    const CHECK: &str = "expiry";
    match &summary.endless[..] {
        [] => Finding::ok(CHECK, "nothing of ours is kept without an end, but the counter"),
        endless => {
            let names: Vec<String> =
                endless.iter().take(EXAMPLES).map(|name| shown(name)).collect();
            let more = if endless.len() > EXAMPLES { ", …" } else { "" };
            Finding::fail(
                CHECK,
                format!(
                    "{} without an end, which are never freed: {}{more}",
                    endless.len(),
                    names.join(", ")
                ),
                "something else writes names of ours, or PERSIST was used: delete them, and find out what did",
            )
        }
    }
}

async fn usage(
    store: &StoreConfig,
    server: &ServerClient<'_>,
    summary: &KeyspaceSummary,
) -> Finding {
    let channels = format!("{}wake:*", store.name_prefix());
    let processes = match server.send(&["PUBSUB", "CHANNELS", &channels]).await {
        // One of the channels is that of this process.
        Some(StoreReply::List(channels)) => {
            counted(channels.len().saturating_sub(1), "other process", "es")
        }
        _ => "an unknown number of other processes".to_owned(),
    };
    let (locks, queues) =
        (counted(summary.locks, "lock", "s"), counted(summary.queues, "queue", "s"));
    let mut text = format!("{locks} held, {queues}, {processes}");
    if !summary.is_whole {
        text += " (in the part of the database that was looked at)";
    }
    if !summary.others.is_empty() {
        let others: Vec<String> = summary
            .others
            .iter()
            .map(|other| match other.trim_end_matches(':') {
                "" => "none".to_owned(),
                other => shown(other),
            })
            .take(10)
            .collect();
        text += &format!("; other prefixes: {}", others.join(", "));
    }
    Finding::ok("contents", text)
}

/// Formats a number: `1 lock`, `2 locks`.
fn counted(count: usize, what: &str, many: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { many })
}

/// Whether the key is the counter of a slot of a cluster, for example `P:fence:{17}`.
fn is_counter(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix("fence:{"));
    rest.is_some_and(|tag| tag.ends_with('}'))
}

#[cfg(test)]
mod tests {
    use super::prefix_of;

    #[test]
    fn prefixes() {
        assert_eq!(prefix_of("shop:lock:{a}"), Some("shop:"));
        assert_eq!(prefix_of("shop:lock::{a}:b"), Some("shop:"));
        assert_eq!(prefix_of("lock:{a}"), Some(""));
        assert_eq!(prefix_of("shop:fence"), Some("shop:"));
        assert_eq!(prefix_of("fence"), Some(""));
        assert_eq!(prefix_of("shop:fence:{1a}"), Some("shop:"));
        assert_eq!(prefix_of("defence"), None);
        assert_eq!(prefix_of("clock:{a}"), None);
        assert_eq!(prefix_of("user:1"), None);
    }
}
