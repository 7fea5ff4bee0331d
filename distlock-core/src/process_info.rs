//! Self-reported process details: a process stores them, and sends them to processes that ask for the holder of a lock
//! (R15).

use std::fmt;
use std::time::Duration;

use crate::clock::{Clock, Moment};

/// The environment variable that names an application.
const APP: &str = "DISTLOCK_APP";
/// The longest name that is kept, in bytes.
const LONGEST: usize = 128;

/// A process that uses locks. `LockManager::processes` lists these, and `LockManager::inspect` names them. More exactly
/// it is one manager of a process: a program with two managers is two of these.
///
/// The process describes itself, without proof, and any client that may write to the store can write any description. So
/// use it for operators and dashboards, not for decisions.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The random id of its manager. Its owner tokens in the store begin with it.
    pub id: String,
    /// The application: the environment variable `DISTLOCK_APP`, or else the name of the executable.
    pub app: String,
    /// The name of the machine, or of the container.
    pub host: String,
    /// The process number on that machine, in the process's own namespace.
    pub pid: u32,
    /// The version of distlock.
    pub version: String,
    /// How long ago its manager was made.
    pub since: Duration,
}

/// Writes `app@host:pid`.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.app, self.host, self.pid)
    }
}

/// This process, as one of its managers.
#[derive(Debug, Clone)]
pub struct ProcessInfo {
    process: Process,
    made: Moment,
}

impl ProcessInfo {
    /// Describes this process as the manager of that `id`, which has just been made.
    pub fn new(id: &str) -> Self {
        let process = Process {
            id: id.to_owned(),
            app: shortened(&app()),
            host: shortened(&distlock_platform::host_name()),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: Duration::ZERO,
        };
        Self { process, made: Clock::Boottime.now() }
    }

    /// Returns the id of the manager, which its tokens begin with.
    pub fn id(&self) -> &str {
        &self.process.id
    }

    /// Returns the details of this process as of now.
    pub fn process(&self) -> Process {
        Process { since: Clock::Boottime.now().since(self.made), ..self.process.clone() }
    }

    /// Returns the record that a store keeps of this process: `v=0.2.0 app=orders host=web-3 pid=4711
    /// started=1795344000`. `time` is the present time of the store, in seconds since 1970.
    pub fn record(&self, time: u64) -> String {
        let Process { app, host, pid, version, since, .. } = self.process();
        let (version, app, host) = (word(&version), word(&app), word(&host));
        let started = time.saturating_sub(since.as_secs());
        format!("v={version} app={app} host={host} pid={pid} started={started}")
    }
}

/// Returns the name of the record of a process, under the prefix of its manager.
pub fn record_name(prefix: &str, process: &str) -> String {
    [prefix, "process:", process].concat()
}

impl Process {
    /// Makes a description of another process from its own answer. Its names are [shortened] to a form that may be shown.
    #[doc(hidden)]
    pub fn reported(
        id: &str,
        app: &str,
        host: &str,
        pid: u32,
        version: &str,
        since: Duration,
    ) -> Self {
        let [id, app, host, version] = [id, app, host, version].map(shortened);
        Self { id, app, host, pid, version, since }
    }

    /// Reads the record of the process of that id. `time` is the present time of the store, in seconds since 1970.
    /// Unknown words are ignored. Returns `None` if a necessary word is missing.
    #[doc(hidden)]
    pub fn of_record(id: &str, record: &str, time: u64) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = record.split_whitespace().filter_map(|word| word.split_once('='));
            fields.find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let started: Option<u64> = field("started").and_then(|started| started.parse().ok());
        Some(Self {
            id: id.to_owned(),
            app: shortened(&unescaped(field("app")?)),
            host: shortened(&unescaped(field("host")?)),
            pid: field("pid")?.parse().ok()?,
            version: shortened(&unescaped(field("v").unwrap_or_default())),
            since: Duration::from_secs(started.map_or(0, |started| time.saturating_sub(started))),
        })
    }
}

fn app() -> String {
    let said = std::env::var(APP).ok().filter(|said| !said.trim().is_empty());
    said.unwrap_or_else(|| {
        let path = std::env::current_exe().ok();
        let name = path.as_deref().and_then(|path| path.file_stem());
        name.map_or("unknown".into(), |name| name.to_string_lossy().into_owned())
    })
}

/// Cuts a text to the longest name that is kept, and removes control characters, which a terminal would obey.
pub fn shortened(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if short.len() + c.len_utf8() > LONGEST {
            break;
        }
        short.push(c);
    }
    short
}

/// Returns a text as one word. White space, `%` and `=` are percent-encoded.
fn word(text: &str) -> String {
    let mut word = String::new();
    for c in text.chars() {
        if c.is_whitespace() || c == '%' || c == '=' {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                word.push_str(&format!("%{byte:02X}"));
            }
        } else {
            word.push(c);
        }
    }
    word
}

/// Decodes a word of a record. An incomplete percent-encoding is left as it is.
fn unescaped(word: &str) -> String {
    let bytes = word.as_bytes();
    let (mut text, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| word.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                text.push(byte);
                at += 3;
            }
            None => {
                text.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut own = ProcessInfo::new("abc");
        own.process.app = "my shop = 100 %\u{a0}é".to_owned();
        let record = own.record(1000);
        assert_eq!(record.split(' ').count(), 5, "{record}");
        let read = Process::of_record("abc", &record, 1060).expect("a record");
        assert!(read.since >= Duration::from_secs(60), "{read:?}");
        assert_eq!(Process { since: Duration::ZERO, ..read }, own.process);
    }

    #[test]
    fn other_words_are_left_out_and_missing_ones_are_no_record() {
        let record = "x=1 v=9 app=a host=h pid=7 started=60 y";
        let process = Process::of_record("id", record, 70).expect("a record");
        assert_eq!(process.to_string(), "a@h:7");
        assert_eq!((process.version.as_str(), process.since), ("9", Duration::from_secs(10)));
        for record in ["", "app=a host=h", "app=a host=h pid=x", "locked"] {
            assert_eq!(Process::of_record("id", record, 70), None, "{record}");
        }
        // Forged: neither long nor harmful to a terminal.
        let record = format!("app={}%1B[2J host=%zz%e pid=1 started={}", "a".repeat(999), u64::MAX);
        let process = Process::of_record("id", &record, 70).expect("a record");
        assert!(process.app.len() <= LONGEST && !process.app.contains('\u{1b}'));
        assert_eq!((process.host.as_str(), process.since), ("%zz%e", Duration::ZERO));
    }
}
