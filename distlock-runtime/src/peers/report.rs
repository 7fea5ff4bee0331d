//! What a process says of the locks that it holds and waits for, as one message.

use std::time::Duration;

use super::LONGEST_MESSAGE;
use crate::itself::shortened;
use crate::json::{Json, ObjectWriter};
use crate::observe::Calls;
use crate::process::Process;

/// What one process said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Account {
    pub(crate) process: Process,
    pub(crate) held: Vec<HeldLock>,
    pub(crate) waiting: Vec<Place>,
    /// For how long it has counted its calls, and these; `None` if it was not asked for that.
    pub(crate) counted: Option<(Duration, Vec<Calls>)>,
}

/// A lock that it holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeldLock {
    /// The name of the lock in the store.
    pub(crate) stored: String,
    /// The number in its owner token, by which the store knows the lease.
    pub(crate) lease: String,
    pub(crate) name: String,
    pub(crate) template: Option<String>,
    /// For how long it has held it.
    pub(crate) age: Duration,
    pub(crate) fencing_token: u64,
}

/// Calls that wait together at one place of a lock's queue, or behind a holder of their own process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    pub(crate) stored: String,
    /// The number in the owner token under which they stand there.
    pub(crate) lease: String,
    /// Of the first of them, as what follows.
    pub(crate) name: String,
    pub(crate) template: Option<String>,
    /// For how long it has waited.
    pub(crate) age: Duration,
    /// How many they are.
    pub(crate) calls: usize,
}

impl Account {
    /// What another process has said; `None` if it is none of ours, or says nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST_MESSAGE {
            return None;
        }
        let json = Json::parse(text)?;
        let owned = |name| json.text(name).map(shortened);
        let process = Process {
            id: owned("process")?,
            app: owned("app")?,
            host: owned("host")?,
            pid: u32::try_from(json.number("pid")?).ok()?,
            version: owned("v")?,
            since: Duration::from_millis(json.number("since_ms")?),
        };
        let held = json.list("held").iter().filter_map(HeldLock::of).collect();
        let waiting = json.list("waiting").iter().filter_map(Place::of).collect();
        let counted = json.number("counted_ms").map(|counted| {
            let calls = json.list("calls").iter().filter_map(Calls::parse).collect();
            (Duration::from_millis(counted), calls)
        });
        Some(Self { process, held, waiting, counted })
    }

    pub(crate) fn holds(&self, stored: &str, lease: &str) -> Option<&HeldLock> {
        self.held.iter().find(|held| held.stored == stored && held.lease == lease)
    }

    pub(crate) fn waits(&self, stored: &str, lease: &str) -> Option<&Place> {
        self.waiting.iter().find(|place| place.stored == stored && place.lease == lease)
    }
}

impl HeldLock {
    fn of(json: &Json) -> Option<Self> {
        let (stored, lease, name, template, age) = common(json)?;
        let fencing_token = json.number("fencing_token")?;
        Some(Self { stored, lease, name, template, age, fencing_token })
    }

    fn json(&self) -> String {
        let Self { stored, lease, name, template, age, fencing_token } = self;
        written(stored, lease, name, template.as_deref(), *age)
            .number("fencing_token", *fencing_token)
            .end()
    }
}

impl Place {
    fn of(json: &Json) -> Option<Self> {
        let (stored, lease, name, template, age) = common(json)?;
        let calls = usize::try_from(json.number("calls")?).ok()?;
        Some(Self { stored, lease, name, template, age, calls })
    }

    fn json(&self) -> String {
        let Self { stored, lease, name, template, age, calls } = self;
        written(stored, lease, name, template.as_deref(), *age).number("calls", *calls as u64).end()
    }
}

type Common = (String, String, String, Option<String>, Duration);

fn common(json: &Json) -> Option<Common> {
    Some((
        json.text("lock")?.to_owned(),
        json.text("lease")?.to_owned(),
        shortened(json.text("name")?),
        json.text("template").map(shortened),
        Duration::from_millis(json.number("since_ms")?),
    ))
}

fn written(
    stored: &str,
    lease: &str,
    name: &str,
    template: Option<&str>,
    age: Duration,
) -> ObjectWriter {
    ObjectWriter::new()
        .text("lock", stored)
        .text("lease", lease)
        .text("name", &shortened(name))
        .maybe_text("template", template.map(shortened).as_deref())
        .number("since_ms", millis(age))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Writes an account, up to a length: what does not fit is left out.
pub(crate) struct AccountWriter {
    head: ObjectWriter,
    held: String,
    waiting: String,
    counted: Option<Duration>,
    calls: String,
    /// How many bytes are left.
    room: usize,
    full: bool,
}

impl AccountWriter {
    pub(crate) fn new(process: &Process, longest: usize) -> Self {
        let head = ObjectWriter::new()
            .text("process", &process.id)
            .text("v", &process.version)
            .text("app", &process.app)
            .text("host", &process.host)
            .number("pid", process.pid.into())
            .number("since_ms", millis(process.since));
        // Names of fields, brackets, and what is said of a message that is full.
        const REST: usize = 128;
        let room = longest.saturating_sub(head.len() + REST);
        let (held, waiting, calls) = Default::default();
        Self { head, held, waiting, counted: None, calls, room, full: false }
    }

    /// Something was left out.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) fn held(&mut self, held: &HeldLock) {
        let json = held.json();
        push(&mut self.held, &json, &mut self.room, &mut self.full);
    }

    pub(crate) fn waiting(&mut self, place: &Place) {
        let json = place.json();
        push(&mut self.waiting, &json, &mut self.room, &mut self.full);
    }

    /// How often it took locks, by name, and for how long it has counted.
    pub(crate) fn counted(&mut self, counted: Duration, calls: &[Calls]) {
        self.counted = Some(counted);
        for calls in calls {
            push(&mut self.calls, &calls.json(), &mut self.room, &mut self.full);
        }
    }

    pub(crate) fn end(self) -> String {
        let Self { head, held, waiting, counted, calls, full, .. } = self;
        let head = match counted {
            Some(counted) => {
                head.number("counted_ms", millis(counted)).raw("calls", &format!("[{calls}]"))
            }
            None => head,
        };
        let lists = head.raw("held", &format!("[{held}]")).raw("waiting", &format!("[{waiting}]"));
        lists.raw("whole", if full { "false" } else { "true" }).end()
    }
}

fn push(list: &mut String, json: &str, room: &mut usize, full: &mut bool) {
    match room.checked_sub(json.len() + 1) {
        Some(left) => {
            *room = left;
            if !list.is_empty() {
                list.push(',');
            }
            list.push_str(json);
        }
        None => *full = true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::itself::Itself;

    fn process() -> Process {
        Process { since: Duration::from_millis(7), ..Itself::new("abc").process() }
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

    #[test]
    fn what_is_written_is_read() {
        let process = process();
        let place = Place {
            stored: "l".to_owned(),
            lease: "7".to_owned(),
            name: "n".to_owned(),
            template: None,
            age: Duration::from_secs(3600),
            calls: 12,
        };
        let mut writer = AccountWriter::new(&process, LONGEST_MESSAGE);
        (0..3).for_each(|n| writer.held(&held(n)));
        writer.waiting(&place);
        let mut calls = Calls::of("orders::pay");
        calls.add(Duration::from_millis(3));
        let counted = (Duration::from_secs(3), vec![calls]);
        writer.counted(counted.0, &counted.1);
        assert!(!writer.is_full());
        let account = Account::parse(&writer.end()).expect("an account");
        let (held_here, waiting) = ((0..3).map(held).collect(), vec![place.clone()]);
        let expected = Account { process, held: held_here, waiting, counted: Some(counted) };
        assert_eq!(account, expected);
        assert_eq!(account.holds(&held(1).stored, "1abc"), Some(&held(1)));
        assert_eq!(account.holds(&held(1).stored, "2abc"), None);
        assert_eq!(account.waits("l", "7"), Some(&place));
    }

    #[test]
    fn it_ends_where_its_room_does() {
        let mut writer = AccountWriter::new(&process(), LONGEST_MESSAGE);
        let mut wrote = 0;
        while !writer.is_full() {
            writer.held(&held(wrote));
            wrote += 1;
        }
        let text = writer.end();
        assert!(
            text.len() <= LONGEST_MESSAGE && text.len() > LONGEST_MESSAGE - 300,
            "{}",
            text.len()
        );
        let account = Account::parse(&text).expect("an account");
        assert_eq!(account.held.len(), wrote - 1);
    }

    #[test]
    fn what_nobody_of_us_said_is_no_account() {
        let long = format!("{{\"process\":\"{}\"}}", "a".repeat(LONGEST_MESSAGE));
        for text in ["", "{}", "[]", "{\"process\":\"a\",\"app\":1}", &long] {
            assert_eq!(Account::parse(text), None, "{text:.40}");
        }
    }
}
