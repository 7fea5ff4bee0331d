//! The report of one process about the locks that it holds and waits for, as one message.
//!
//! A report may come from any client that may publish, so it is read with limits. A long or deeply nested one is
//! refused, names are shortened, and fields and elements that are not known here are skipped.

use std::time::Duration;

use distlock_core::process_info::Process;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::observe::Calls;

/// The longest message, in bytes.
pub(crate) const LONGEST_MESSAGE: usize = 64 * 1024;

/// The report of one process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PeerReport {
    pub(crate) process: Process,
    pub(crate) held: Vec<HeldLock>,
    pub(crate) waiting: Vec<WaitingCalls>,
    /// For how long it has counted its calls, and the counts; `None` if the question did not ask for them.
    pub(crate) counted: Option<(Duration, Vec<Calls>)>,
}

/// A lock that a process holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeldLock {
    /// The name of the lock in the store.
    #[serde(rename = "lock")]
    pub(crate) stored: String,
    /// The number in its owner token, by which the store knows the lease.
    pub(crate) lease: String,
    #[serde(with = "short")]
    pub(crate) name: String,
    #[serde(default, with = "short_or_none", skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
    /// For how long it has held the lock.
    #[serde(rename = "since_ms", with = "millis")]
    pub(crate) age: Duration,
    pub(crate) fencing_token: u64,
}

/// Calls that wait together at one place of a lock's queue, or after a holder of their own process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WaitingCalls {
    /// The name of the lock in the store.
    #[serde(rename = "lock")]
    pub(crate) stored: String,
    /// The number in the owner token under which they wait there.
    pub(crate) lease: String,
    /// The name of the first call, as the following fields.
    #[serde(with = "short")]
    pub(crate) name: String,
    #[serde(default, with = "short_or_none", skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
    /// For how long it has waited.
    #[serde(rename = "since_ms", with = "millis")]
    pub(crate) age: Duration,
    /// The number of calls.
    pub(crate) calls: usize,
}

/// The fields of the message, in its order.
#[derive(Serialize, Deserialize)]
struct ReportMessage {
    #[serde(with = "short")]
    process: String,
    #[serde(with = "short")]
    v: String,
    #[serde(with = "short")]
    app: String,
    #[serde(with = "short")]
    host: String,
    pid: u32,
    since_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counted_ms: Option<u64>,
    #[serde(default, deserialize_with = "known_calls", skip_serializing_if = "Option::is_none")]
    calls: Option<Vec<Calls>>,
    #[serde(default, deserialize_with = "known_elements")]
    held: Vec<HeldLock>,
    #[serde(default, deserialize_with = "known_elements")]
    waiting: Vec<WaitingCalls>,
    /// False if something was left out.
    #[serde(skip_deserializing)]
    whole: bool,
}

impl PeerReport {
    /// Reads the report of another process; `None` if the text is no report.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST_MESSAGE {
            return None;
        }
        let message: ReportMessage = serde_json::from_str(text).ok()?;
        let ReportMessage {
            process,
            v,
            app,
            host,
            pid,
            since_ms,
            counted_ms,
            calls,
            held,
            waiting,
            ..
        } = message;
        let since = Duration::from_millis(since_ms);
        let process = Process::reported(&process, &app, &host, pid, &v, since);
        let counted =
            counted_ms.map(|counted| (Duration::from_millis(counted), calls.unwrap_or_default()));
        Some(Self { process, held, waiting, counted })
    }

    pub(crate) fn holds(&self, stored: &str, lease: &str) -> Option<&HeldLock> {
        self.held.iter().find(|held| held.stored == stored && held.lease == lease)
    }

    pub(crate) fn waits(&self, stored: &str, lease: &str) -> Option<&WaitingCalls> {
        self.waiting.iter().find(|calls| calls.stored == stored && calls.lease == lease)
    }
}

/// Writes a report up to a length. Elements beyond it are left out.
pub(crate) struct ReportWriter {
    message: ReportMessage,
    /// The number of bytes that are left.
    room: usize,
}

impl ReportWriter {
    pub(crate) fn new(process: &Process, longest: usize) -> Self {
        // The counts' own fields, and a `false` instead of the `true`.
        const REST: usize = 64;
        let message = ReportMessage {
            process: process.id.clone(),
            v: process.version.clone(),
            app: process.app.clone(),
            host: process.host.clone(),
            pid: process.pid,
            since_ms: millis::of(process.since),
            counted_ms: None,
            calls: None,
            held: Vec::new(),
            waiting: Vec::new(),
            whole: true,
        };
        let room = longest.saturating_sub(text(&message).len() + REST);
        Self { message, room }
    }

    /// Returns whether something was left out.
    pub(crate) fn is_full(&self) -> bool {
        !self.message.whole
    }

    pub(crate) fn held(&mut self, held: HeldLock) {
        if self.fits(&held) {
            self.message.held.push(held);
        }
    }

    pub(crate) fn waiting(&mut self, calls: WaitingCalls) {
        if self.fits(&calls) {
            self.message.waiting.push(calls);
        }
    }

    /// Adds how often the process took locks, by name, and for how long it has counted.
    pub(crate) fn counted(&mut self, counted: Duration, calls: Vec<Calls>) {
        self.message.counted_ms = Some(millis::of(counted));
        let fitting = calls.into_iter().filter(|calls| self.fits(calls)).collect();
        self.message.calls = Some(fitting);
    }

    pub(crate) fn end(self) -> String {
        text(&self.message)
    }

    /// Takes the room for one more element, if there is enough.
    fn fits(&mut self, element: &impl Serialize) -> bool {
        let left = self.room.checked_sub(text(element).len() + 1);
        match left {
            Some(left) => self.room = left,
            None => self.message.whole = false,
        }
        left.is_some()
    }
}

/// Writes a value as JSON. No value here can fail.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Reads the elements of a list that are known here. Anything else than a list is read as an empty one.
fn known_elements<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    let Value::Array(elements) = Value::deserialize(from)? else { return Ok(Vec::new()) };
    let known = elements.into_iter().filter_map(|element| serde_json::from_value(element).ok());
    Ok(known.collect())
}

fn known_calls<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Calls>>, D::Error> {
    known_elements(from).map(Some)
}

/// A name, shortened when it is written and when it is read.
mod short {
    use distlock_core::process_info::shortened;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(name: &str, to: S) -> Result<S::Ok, S::Error> {
        shortened(name).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        String::deserialize(from).map(|name| shortened(&name))
    }
}

/// The same for a name that may be missing.
mod short_or_none {
    use distlock_core::process_info::shortened;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        name: &Option<String>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        name.as_deref().map(shortened).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<String>, D::Error> {
        Option::<String>::deserialize(from).map(|name| name.as_deref().map(shortened))
    }
}

/// A duration in whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn of(time: Duration) -> u64 {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        of(*time).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use distlock_core::process_info::ProcessInfo;

    use super::*;

    fn process() -> Process {
        let mut process = ProcessInfo::new("abc").process();
        process.since = Duration::from_millis(7);
        process
    }

    fn held(n: usize) -> HeldLock {
        HeldLock {
            stored: format!("distlock:lock:{{order \"{n}\" \u{1f512}}}"),
            lease: format!("{n}abc"),
            name: "orders::pay".to_owned(),
            template: n.is_multiple_of(2).then(|| "order:{id}".to_owned()),
            age: Duration::from_millis(n as u64),
            fencing_token: u64::MAX,
        }
    }

    fn waiting() -> WaitingCalls {
        WaitingCalls {
            stored: "l".to_owned(),
            lease: "7".to_owned(),
            name: "n".to_owned(),
            template: None,
            age: Duration::from_secs(3600),
            calls: 12,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let process = process();
        let mut writer = ReportWriter::new(&process, LONGEST_MESSAGE);
        (0..3).for_each(|n| writer.held(held(n)));
        writer.waiting(waiting());
        let mut calls = Calls::of("orders::pay");
        calls.add(Duration::from_millis(3));
        let counted = (Duration::from_secs(3), vec![calls]);
        writer.counted(counted.0, counted.1.clone());
        assert!(!writer.is_full());
        let report = PeerReport::parse(&writer.end()).expect("a report");
        let (held_here, waiting_here) = ((0..3).map(held).collect(), vec![waiting()]);
        let expected =
            PeerReport { process, held: held_here, waiting: waiting_here, counted: Some(counted) };
        assert_eq!(report, expected);
        assert_eq!(report.holds(&held(1).stored, "1abc"), Some(&held(1)));
        assert_eq!(report.holds(&held(1).stored, "2abc"), None);
        assert_eq!(report.waits("l", "7"), Some(&waiting()));
    }

    /// Processes of other versions read these bytes.
    #[test]
    fn the_message_is_that_of_the_protocol() {
        let since = process().since;
        let process = Process::reported("abc", "shop", "web-3", 4711, "0.1.0", since);
        let mut writer = ReportWriter::new(&process, LONGEST_MESSAGE);
        writer.counted(Duration::from_secs(3), Vec::new());
        writer.held(held(0));
        writer.waiting(waiting());
        let expected = concat!(
            r#"{"process":"abc","v":"0.1.0","app":"shop","host":"web-3","pid":4711,"since_ms":7,"#,
            r#""counted_ms":3000,"calls":[],"#,
            r#""held":[{"lock":"distlock:lock:{order \"0\" "#,
            "\u{1f512}",
            r#"}","lease":"0abc","name":"orders::pay","template":"order:{id}","since_ms":0,"#,
            r#""fencing_token":18446744073709551615}],"#,
            r#""waiting":[{"lock":"l","lease":"7","name":"n","since_ms":3600000,"calls":12}],"#,
            r#""whole":true}"#,
        );
        assert_eq!(writer.end(), expected);
    }

    #[test]
    fn it_ends_where_its_room_does() {
        let mut writer = ReportWriter::new(&process(), LONGEST_MESSAGE);
        let mut wrote = 0;
        while !writer.is_full() {
            writer.held(held(wrote));
            wrote += 1;
        }
        let text = writer.end();
        assert!(
            text.len() <= LONGEST_MESSAGE && text.len() > LONGEST_MESSAGE - 300,
            "{}",
            text.len()
        );
        assert!(text.ends_with(r#""whole":false}"#));
        let report = PeerReport::parse(&text).expect("a report");
        assert_eq!(report.held.len(), wrote - 1);
    }

    #[test]
    fn what_nobody_of_us_said_is_no_account() {
        let long = format!("{{\"process\":\"{}\"}}", "a".repeat(LONGEST_MESSAGE));
        let deep = "[".repeat(LONGEST_MESSAGE);
        for text in ["", "{}", "[]", "{\"process\":\"a\",\"app\":1}", "nul", &long, &deep] {
            assert_eq!(PeerReport::parse(text), None, "{text:.40}");
        }
    }

    #[test]
    fn what_is_not_known_is_skipped() {
        let head = r#""process":"a","v":"9","app":"b\u001b","host":"c","pid":1,"since_ms":2"#;
        let read = |rest: &str| PeerReport::parse(&format!("{{{head}{rest}}}"));
        let plain = read("").expect("a report");
        assert_eq!((plain.process.app.as_str(), plain.counted), ("b", None));
        let lock = r#"{"lock":"l","lease":"1","name":"n","since_ms":1,"fencing_token":3,"new":[]}"#;
        let others =
            r#"1,null,{},{"lock":"l","lease":"1","name":"n","since_ms":1.5,"fencing_token":3}"#;
        let some = read(&format!(r#","held":[{others},{lock}],"waiting":7,"new":{{}}"#));
        let some = some.expect("a report");
        assert_eq!((some.held.len(), some.waiting.len()), (1, 0));
        // Skipped without recursion, and refused where it would be read.
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        assert!(read(&format!(r#","new":{deep}"#)).is_some());
        assert_eq!(read(&format!(r#","held":{deep}"#)), None);
        assert_eq!(read(r#","pid":2"#), None);
    }
}
