//! One lock, as closely as it can be looked at: what the store has of it, and what its processes say.

use std::time::{Duration, SystemTime};

use distlock::{Holder, LockStatus, Waiter};
use serde_json::{Value, json};

use super::held::Held;
use super::process::Process;
use super::reader::Locks;
use crate::failure::Failure;
use crate::text::{lease, rounded, shown};

/// A lock that is held, and its waiters.
#[derive(Debug, Clone)]
pub(crate) struct One {
    pub(crate) held: Held,
    holders: Vec<Told>,
    /// The next one first.
    waiting: Vec<Told>,
}

/// A process, and what it says of this lock.
#[derive(Debug, Clone, Default)]
struct Told {
    process: Process,
    name: Option<String>,
    template: Option<String>,
    since: Option<Duration>,
    fencing_token: Option<u64>,
    /// How many calls wait together.
    calls: Option<usize>,
}

impl One {
    /// Asks the store, and the processes that it names; `None` if the lock is free.
    pub(crate) async fn look(locks: &Locks<'_>, key: &str) -> Result<Option<Self>, Failure> {
        let Some((held, queue)) = locks.one_held(key).await? else { return Ok(None) };
        let status = locks.manager.inspect(key).await;
        let (mut holders, mut waiting) = match status {
            Ok(LockStatus::Held { holders, waiters, .. }) => (
                holders.into_iter().map(Told::from).collect::<Vec<_>>(),
                waiters.into_iter().map(Told::from).collect::<Vec<_>>(),
            ),
            // It was released meanwhile, or no process can be asked: what the store had is enough.
            _ => (Vec::new(), Vec::new()),
        };
        complete(&mut holders, &held.holders);
        complete(&mut waiting, &queue);
        Ok(Some(Self { held, holders, waiting }))
    }

    /// For people, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for holder in &self.holders {
            lines.push(format!("holder   {}", holder.process));
            lines.extend(holder.what().map(|what| format!("name     {what}")));
            lines.extend(holder.since.map(|since| format!("since    {}", moment(since))));
            lines.extend(holder.fencing_token.map(|token| format!("fencing  {token}")));
            let version = holder.process.version();
            lines.extend(version.map(|version| format!("version  {}", shown(version))));
        }
        if !self.held.alone {
            lines.push("shared   others may hold it at the same time".to_owned());
        }
        lines.push(format!("lease    {}", lease(self.held.remaining)));
        lines.push(format!("waiting  {}", self.processes()));
        let waiting = self.waiting.iter().enumerate();
        lines.extend(waiting.map(|(at, told)| format!("{:>7}. {}", at + 1, told.in_line())));
        lines
    }

    fn processes(&self) -> String {
        let mut ids: Vec<&str> = self.waiting.iter().map(|told| told.process.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        match ids.len() {
            0 => "nobody".to_owned(),
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let mut json = self.held.json();
        json["held"] = true.into();
        json["holder"] = self.holders.first().map(Told::json).into();
        json["holders"] = self.holders.iter().map(Told::json).collect();
        json["waiting"] = self.waiting.iter().map(Told::json).collect();
        json
    }
}

/// Gives an id to those without one, and the others their records: `stored` are the processes that the store
/// has for them, in the same order.
fn complete(told: &mut Vec<Told>, stored: &[Process]) {
    if told.is_empty() {
        let unnamed = |process: &Process| Told { process: process.clone(), ..Told::default() };
        told.extend(stored.iter().map(unnamed));
        return;
    }
    let is_told = |process: &&Process| told.iter().any(|told| told.process.id == process.id);
    let mut unnamed: Vec<Process> =
        stored.iter().filter(|process| !is_told(process)).cloned().collect();
    unnamed.reverse();
    for told in told.iter_mut() {
        if told.process.id.is_empty() {
            told.process = unnamed.pop().unwrap_or_default();
        } else if let Some(stored) = stored.iter().find(|stored| stored.id == told.process.id)
            && told.process.known.is_none()
        {
            told.process.known.clone_from(&stored.known);
        }
    }
}

impl Told {
    /// `orders::pay of "order:{id}"`.
    fn what(&self) -> Option<String> {
        let name = shown(self.name.as_ref()?);
        Some(match &self.template {
            Some(template) => format!("{name} of \"{}\"", shown(template)),
            None => name,
        })
    }

    /// Its line in the list of waiters.
    fn in_line(&self) -> String {
        let mut text = self.process.to_string();
        for detail in [
            self.what(),
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

impl From<Holder> for Told {
    fn from(holder: Holder) -> Self {
        let Holder { process, name, template, since, fencing_token, .. } = holder;
        let process = process.map(Process::from).unwrap_or_default();
        Self { process, name, template, since, fencing_token, calls: None }
    }
}

impl From<Waiter> for Told {
    fn from(waiter: Waiter) -> Self {
        let Waiter { process, name, template, since, calls, .. } = waiter;
        let process = process.map(Process::from).unwrap_or_default();
        Self { process, name, template, since, fencing_token: None, calls }
    }
}

/// When that was, by the clock here.
fn timestamp(since: Duration) -> String {
    let then = SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(then).to_string()
}

fn moment(since: Duration) -> String {
    format!("{}, {} ago", timestamp(since), rounded(since))
}
