//! The details of one lock: its state in the store, and the reports of its holders and waiters.

use std::time::{Duration, SystemTime};

use distlock::{Holder, LockStatus, Waiter};
use serde_json::{Value, json};

use super::held::HeldLock;
use super::process::ClientProcess;
use super::reader::LockReader;
use crate::exit::Failure;
use crate::text::{lease, rounded, shown};

/// A lock that is held, and its waiters.
#[derive(Debug, Clone)]
pub(crate) struct LockDetails {
    held: HeldLock,
    holders: Vec<Participant>,
    /// The waiters; the first is next.
    waiting: Vec<Participant>,
}

/// A holder or a waiter, with the details that its process reports.
#[derive(Debug, Clone, Default)]
struct Participant {
    process: ClientProcess,
    name: Option<String>,
    template: Option<String>,
    since: Option<Duration>,
    fencing_token: Option<u64>,
    /// The number of calls that wait together.
    calls: Option<usize>,
}

impl LockDetails {
    /// Asks the store, and the processes that it names. `None` if the lock is free.
    pub(crate) async fn read(reader: &LockReader<'_>, key: &str) -> Result<Option<Self>, Failure> {
        let Some((held, queue)) = reader.read(key).await? else { return Ok(None) };
        let status = reader.manager.inspect(key).await;
        let (mut holders, mut waiting) = match status {
            Ok(LockStatus::Held { holders, waiters, .. }) => (
                holders.into_iter().map(Participant::from).collect::<Vec<_>>(),
                waiters.into_iter().map(Participant::from).collect::<Vec<_>>(),
            ),
            // The lock was released meanwhile, or no process can be asked: show the state from the store.
            _ => (Vec::new(), Vec::new()),
        };
        complete_from_store(&mut holders, &held.holders);
        complete_from_store(&mut waiting, &queue);
        Ok(Some(Self { held, holders, waiting }))
    }

    /// Describes the lock, one detail a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for holder in &self.holders {
            lines.push(format!("holder   {}", holder.process));
            lines.extend(holder.label().map(|label| format!("name     {label}")));
            lines.extend(holder.since.map(|since| format!("since    {}", moment(since))));
            lines.extend(holder.fencing_token.map(|token| format!("fencing  {token}")));
            let version = holder.process.version();
            lines.extend(version.map(|version| format!("version  {}", shown(version))));
        }
        if !self.held.glance.alone {
            lines.push("shared   others may hold it at the same time".to_owned());
        }
        lines.push(format!("lease    {}", lease(self.held.glance.remaining)));
        lines.push(format!("waiting  {}", self.waiting_processes()));
        let waiting = self.waiting.iter().enumerate();
        lines.extend(waiting.map(|(at, waiter)| format!("{:>7}. {}", at + 1, waiter.line())));
        lines
    }

    fn waiting_processes(&self) -> String {
        let mut ids: Vec<&str> =
            self.waiting.iter().map(|waiter| waiter.process.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        match ids.len() {
            0 => "nobody".to_owned(),
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let mut json = self.held.json();
        json["held"] = true.into();
        json["holder"] = self.holders.first().map(Participant::json).into();
        json["holders"] = self.holders.iter().map(Participant::json).collect();
        json["waiting"] = self.waiting.iter().map(Participant::json).collect();
        json
    }
}

/// Gives a process to the participants without one, and a record to the others. `stored` are the processes in the
/// store, in the same order.
fn complete_from_store(participants: &mut Vec<Participant>, stored: &[ClientProcess]) {
    if participants.is_empty() {
        let unnamed = |process: &ClientProcess| Participant {
            process: process.clone(),
            ..Participant::default()
        };
        participants.extend(stored.iter().map(unnamed));
        return;
    }
    let is_named =
        |process: &&ClientProcess| participants.iter().any(|one| one.process.id == process.id);
    let mut unnamed: Vec<ClientProcess> =
        stored.iter().filter(|process| !is_named(process)).cloned().collect();
    unnamed.reverse();
    for participant in participants.iter_mut() {
        let process = &mut participant.process;
        if process.id.is_empty() {
            *process = unnamed.pop().unwrap_or_default();
        } else if let Some(stored) = stored.iter().find(|stored| stored.id == process.id)
            && process.record.is_none()
        {
            process.record.clone_from(&stored.record);
        }
    }
}

impl Participant {
    /// Formats name and template: `orders::pay of "order:{id}"`.
    fn label(&self) -> Option<String> {
        let name = shown(self.name.as_ref()?);
        Some(match &self.template {
            Some(template) => format!("{name} of \"{}\"", shown(template)),
            None => name,
        })
    }

    /// Formats the line in the list of waiters.
    fn line(&self) -> String {
        let mut text = self.process.to_string();
        for detail in [
            self.label(),
            self.since.map(|since| format!("for {}", rounded(since))),
            self.calls.filter(|calls| *calls > 1).map(|calls| format!("{calls} calls")),
        ] {
            text.extend(detail.map(|detail| format!("  {detail}")));
        }
        text
    }

    fn json(&self) -> Value {
        let mut json = self.process.json();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let fields = [
            ("name", self.name.clone().map(Value::from)),
            ("template", self.template.clone().map(Value::from)),
            ("since", self.since.map(|since| timestamp(since).into())),
            ("since_ms", self.since.map(|since| json!(millis(since)))),
            ("fencing_token", self.fencing_token.map(Value::from)),
            ("calls", self.calls.map(Value::from)),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                json[name] = value;
            }
        }
        json
    }
}

impl From<Holder> for Participant {
    fn from(holder: Holder) -> Self {
        let Holder { process, name, template, since, fencing_token, .. } = holder;
        let process = process.map(ClientProcess::from).unwrap_or_default();
        Self { process, name, template, since, fencing_token, calls: None }
    }
}

impl From<Waiter> for Participant {
    fn from(waiter: Waiter) -> Self {
        let Waiter { process, name, template, since, calls, .. } = waiter;
        let process = process.map(ClientProcess::from).unwrap_or_default();
        Self { process, name, template, since, fencing_token: None, calls }
    }
}

/// Formats the time of an event this long ago, by the local clock.
fn timestamp(since: Duration) -> String {
    let then = SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(then).to_string()
}

fn moment(since: Duration) -> String {
    format!("{}, {} ago", timestamp(since), rounded(since))
}
