//! What is in the store: locks without an end, the counter of fencing tokens, other prefixes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use distlock::__console::StoreReply;
use distlock::LockManager;

use super::finding::Finding;
use crate::locks::{command, text};
use crate::say::shown;
use crate::store::Named;

/// A large database is not walked to its end.
const LONGEST: Duration = Duration::from_secs(5);
/// A counter is ahead of the server's clock where that was set back, or something else has written
/// to it.
const AHEAD: Duration = Duration::from_secs(24 * 60 * 60);
/// How many names are named.
const NAMED: usize = 3;

/// What stands in the store.
#[derive(Default)]
struct Census {
    locks: u64,
    queues: u64,
    endless: Vec<String>,
    others: BTreeSet<String>,
    is_whole: bool,
}

pub(super) async fn check(store: &Named, manager: &LockManager) -> Vec<Finding> {
    let mut findings = vec![fence(store, manager).await];
    match census(store, manager).await {
        Some(census) => findings.extend([expiry(&census), use_of(store, manager, &census).await]),
        None => findings.push(Finding::unknown("contents", "the server does not list its keys")),
    }
    findings
}

async fn fence(store: &Named, manager: &LockManager) -> Finding {
    const CHECK: &str = "fence";
    let fence = format!("{}fence", store.names());
    let question = vec![command(&["GET", &fence])];
    let Ok(answers) = manager.ask_store(question).await else {
        return Finding::unknown(CHECK, "the server did not answer");
    };
    let counter: Option<u64> = answers.first().and_then(text).and_then(|text| text.parse().ok());
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

async fn census(store: &Named, manager: &LockManager) -> Option<Census> {
    let begin = Instant::now();
    let mut census = Census::default();
    let mut cursor = "0".to_owned();
    loop {
        let scan = command(&["SCAN", &cursor, "COUNT", "1000"]);
        let answers = manager.ask_store(vec![scan]).await.ok()?;
        let Some(StoreReply::List(parts)) = answers.first() else { return None };
        let (Some(next), Some(StoreReply::List(names))) = (parts.first(), parts.get(1)) else {
            return None;
        };
        let names: Vec<String> = names.iter().filter_map(text).collect();
        census.add(store, manager, &names).await?;
        cursor = text(next)?;
        census.is_whole = cursor == "0";
        if census.is_whole || begin.elapsed() > LONGEST {
            return Some(census);
        }
    }
}

impl Census {
    async fn add(&mut self, store: &Named, manager: &LockManager, names: &[String]) -> Option<()> {
        let prefix = store.names();
        let of = |kind: &str| {
            let (begin, kind) = (prefix.clone(), format!("{kind}:"));
            move |name: &&String| {
                name.strip_prefix(&begin).is_some_and(|rest| rest.starts_with(&kind))
            }
        };
        let (is_lock, is_queue, is_record) = (of("lock"), of("queue"), of("process"));
        let list = format!("{prefix}processes");
        let is_ours =
            |name: &&String| is_lock(name) || is_queue(name) || is_record(name) || **name == list;
        let ours: Vec<&String> = names.iter().filter(is_ours).collect();
        self.locks += names.iter().filter(&is_lock).count() as u64;
        self.queues += names.iter().filter(&is_queue).count() as u64;
        let prefixes = names.iter().filter_map(|name| prefix_of(name));
        self.others.extend(prefixes.filter(|other| *other != prefix).map(str::to_owned));
        if ours.is_empty() {
            return Some(());
        }
        let questions = ours.iter().map(|name| command(&["PTTL", name])).collect();
        let ends = manager.ask_store(questions).await.ok()?;
        // -1: it has none. -2: it is gone by now.
        let endless = ours.iter().zip(&ends).filter(|(_, end)| **end == StoreReply::Number(-1));
        self.endless.extend(endless.map(|(name, _)| (*name).clone()));
        Some(())
    }
}

/// The prefix, with its separator, of what looks like one of our names.
fn prefix_of(name: &str) -> Option<&str> {
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
                    "{} without an end, which nobody frees: {}{more}",
                    endless.len(),
                    names.join(", ")
                ),
                "something else writes names of ours, or PERSIST was used: delete them, and find out what did",
            )
        }
    }
}

async fn use_of(store: &Named, manager: &LockManager, census: &Census) -> Finding {
    let channels = command(&["PUBSUB", "CHANNELS", &format!("{}wake:*", store.names())]);
    let channels = manager.ask_store(vec![channels]).await.ok();
    let processes = match channels.as_ref().and_then(|answers| answers.first()) {
        // One of them is this.
        Some(StoreReply::List(channels)) => channels.len().saturating_sub(1).to_string(),
        _ => "an unknown number of".to_owned(),
    };
    let mut text = format!(
        "{} locks held, {} queues, {processes} other processes",
        census.locks, census.queues
    );
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
        assert_eq!(prefix_of("defence"), None);
        assert_eq!(prefix_of("clock:{a}"), None);
        assert_eq!(prefix_of("user:1"), None);
    }
}
