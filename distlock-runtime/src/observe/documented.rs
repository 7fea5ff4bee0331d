//! The events of the log as the guide lists them, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};

/// The levels and the fields of each event, by its name.
pub(crate) type Events = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

/// A log that keeps the levels and the fields of its events.
#[derive(Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Events>>);

impl EventLog {
    pub(crate) fn seen(&self) -> Events {
        self.0.lock().expect("no panic").clone()
    }
}

#[derive(Default)]
struct Fields {
    event: String,
    names: BTreeSet<String>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.event = format!("{value:?}"),
            name => drop(self.names.insert(name.to_owned())),
        }
    }
}

impl tracing::Subscriber for EventLog {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let name = fields.event.split(':').next().unwrap_or_default().to_owned();
        let mut events = self.0.lock().expect("no panic");
        let (levels, names) = events.entry(name).or_default();
        levels.insert(event.metadata().level().as_str().to_lowercase());
        names.extend(fields.names);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Reads the table of events in the guide.
pub(crate) fn documented_events() -> Events {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/observability.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("# Events").expect("the section");
    let section = section.split("\n# ").next().unwrap_or_default();
    let mut table = Events::new();
    for line in section.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, event, levels, fields, _, _] = cells[..] else { continue };
        let Some(event) = event.strip_prefix('`').and_then(|event| event.strip_suffix('`')) else {
            continue;
        };
        let words = levels.split(|c: char| !c.is_alphabetic());
        let levels = words.filter(|word| ["error", "warn", "info", "debug"].contains(word));
        let fields = fields.split('`').filter(|field| field.chars().any(char::is_alphabetic));
        let said = (levels.map(str::to_owned).collect(), fields.map(str::to_owned).collect());
        assert!(table.insert(event.to_owned(), said).is_none(), "{event} has two rows");
    }
    table
}
