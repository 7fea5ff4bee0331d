//! What is in the store: locks without an end, the counter of fencing tokens, other prefixes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use distlock::__console::StoreReply;

use super::client::{Info, Server, command, text};
use super::finding::Finding;
use crate::store::Named;
use crate::text::shown;

/// A large database is not walked to its end.
const LONGEST: Duration = Duration::from_secs(5);
/// A counter is ahead of the server's clock where that was set back, or something else has written
/// to it.
const AHEAD: Duration = Duration::from_secs(24 * 60 * 60);
/// So many counters are looked at.
const COUNTERS: usize = 100;
/// How many names are named.
const NAMED: usize = 3;

/// What stands in the store.
#[derive(Default)]
struct Census {
    locks: usize,
    queues: usize,
    endless: Vec<String>,
    /// Of fencing tokens, of slots.
    counters: BTreeSet<String>,
    others: BTreeSet<String>,
    is_whole: bool,
}

pub(super) async fn check(store: &Named, server: &Server<'_>, info: &Info) -> Vec<Finding> {
    let census = census(store, server).await;
    let is_cluster = info.get("cluster_enabled") == Some("1");
    let mut findings = Vec::new();
    match &census {
        // There each slot has one, from when a lock of it is taken.
        Some(census) if is_cluster => {
            for counter in census.counters.iter().take(COUNTERS) {
                let finding = fence(server, counter).await;
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        _ if is_cluster => {}
        _ => findings.push(fence(server, &format!("{}fence", store.names())).await),
    }
    match census {
        Some(census) => findings.extend([expiry(&census), use_of(store, server, &census).await]),
        None => findings.push(Finding::unknown("contents", "the server does not list its keys")),
    }
    findings
}

async fn fence(server: &Server<'_>, fence: &str) -> Finding {
    const CHECK: &str = "fence";
    let Some(answer) = server.answer(&["GET", fence]).await else {
        return Finding::unknown(CHECK, "the server did not answer");
    };
    let counter: Option<u64> = text(&answer).and_then(|text| text.parse().ok());
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

async fn census(store: &Named, server: &Server<'_>) -> Option<Census> {
    let begin = Instant::now();
    let mut census = Census::default();
    let mut cursor = "0".to_owned();
    loop {
        let answer = server.answer(&["SCAN", &cursor, "COUNT", "1000"]).await?;
        let StoreReply::List(parts) = answer else { return None };
        let (Some(next), Some(StoreReply::List(names))) = (parts.first(), parts.get(1)) else {
            return None;
        };
        let names: Vec<String> = names.iter().filter_map(text).collect();
        census.add(store, server, &names).await?;
        cursor = text(next)?;
        census.is_whole = cursor == "0";
        if census.is_whole || begin.elapsed() > LONGEST {
            return Some(census);
        }
    }
}

impl Census {
    async fn add(&mut self, store: &Named, server: &Server<'_>, names: &[String]) -> Option<()> {
        let prefix = store.names();
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
        let questions = ours.iter().map(|name| command(&["PTTL", name])).collect();
        let ends = server.ask(questions).await.ok()?;
        // -1: it has none. -2: it is gone by now.
        let endless = ours.iter().zip(&ends).filter(|(_, end)| **end == StoreReply::Number(-1));
        self.endless.extend(endless.map(|(name, _)| (*name).clone()));
        Some(())
    }
}

/// The prefix, with its separator, of what looks like one of our names.
fn prefix_of(name: &str) -> Option<&str> {
    // In a cluster: `P:fence:{17}`.
    let name = name.split_once("fence:{").map_or(name, |(begin, _)| &name[..begin.len() + 5]);
    if let Some(prefix) = name.strip_suffix("fence") {
        return (prefix.is_empty() || prefix.ends_with(':')).then_some(prefix);
    }
    let at = name.find("lock:{").or_else(|| name.find("lock::"))?;
    let prefix = &name[..at];
    (prefix.is_empty() || prefix.ends_with(':')).then_some(prefix)
}

fn expiry(census: &Census) -> Finding {
    const CHECK: &str = "expiry";
    match &census.endless[..] {
        [] => Finding::ok(CHECK, "nothing of ours is kept without an end, but the counter"),
        endless => {
            let names: Vec<String> = endless.iter().take(NAMED).map(|name| shown(name)).collect();
            let more = if endless.len() > NAMED { ", …" } else { "" };
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

async fn use_of(store: &Named, server: &Server<'_>, census: &Census) -> Finding {
    let channels = format!("{}wake:*", store.names());
    let processes = match server.answer(&["PUBSUB", "CHANNELS", &channels]).await {
        // One of them is this.
        Some(StoreReply::List(channels)) => {
            counted(channels.len().saturating_sub(1), "other process", "es")
        }
        _ => "an unknown number of other processes".to_owned(),
    };
    let (locks, queues) =
        (counted(census.locks, "lock", "s"), counted(census.queues, "queue", "s"));
    let mut text = format!("{locks} held, {queues}, {processes}");
    if !census.is_whole {
        text += " (in the part of the database that was looked at)";
    }
    if !census.others.is_empty() {
        let others: Vec<String> = census
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

/// `1 lock`, `2 locks`.
fn counted(count: usize, what: &str, many: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { many })
}

/// `P:fence:{17}`, of a slot of a cluster.
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
