//! What is logged.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::{Metadata, span};

/// Every span and event since the first test of the process asked for it, of every thread: read for
/// what must be in it, or must never be.
#[derive(Clone)]
pub struct Log {
    text: Arc<Mutex<String>>,
    target: Option<&'static str>,
}

impl Log {
    /// Collects everything from now on; one for the whole process.
    pub fn start() -> Self {
        Self::collect(None)
    }

    /// The same, only what has this target.
    pub fn start_of(target: &'static str) -> Self {
        Self::collect(Some(target))
    }

    fn collect(target: Option<&'static str>) -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self { text: Arc::default(), target };
            tracing::subscriber::set_global_default(log.clone()).expect("the only subscriber");
            log
        });
        assert_eq!(log.target, target, "one log for the whole process");
        log.clone()
    }

    /// All lines.
    pub fn text(&self) -> String {
        self.text.lock().expect("no panic while writing").clone()
    }

    /// The events, without the spans, in which there is this word.
    pub fn events(&self, word: &str) -> Vec<String> {
        let text = self.text();
        let is_event = |line: &&str| !line.starts_with("span ") && !line.starts_with("record ");
        let events = text.lines().filter(is_event).filter(|line| line.contains(word));
        events.map(str::to_owned).collect()
    }

    /// Whether there is a line of this level with all of these words in it.
    pub fn says(&self, level: &str, words: &[&str]) -> bool {
        let text = self.text();
        let fits =
            |line: &str| line.starts_with(level) && words.iter().all(|word| line.contains(word));
        text.lines().any(fits)
    }

    fn add(&self, Line(mut line): Line) {
        line.push('\n');
        self.text.lock().expect("no panic while writing").push_str(&line);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.target.is_none_or(|target| metadata.target() == target)
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut line = Line(format!("span {}", attributes.metadata().name()));
        attributes.record(&mut line);
        self.add(line);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut line = Line("record".to_owned());
        values.record(&mut line);
        self.add(line);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.add(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
