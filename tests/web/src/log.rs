//! What is logged.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span;

/// Every event since the first test of the process asked for it: read for what must be in it, or
/// must never be.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<String>>);

impl Log {
    /// Collects from now on; one for the whole process.
    pub fn start() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            tracing::subscriber::set_global_default(log.clone()).expect("the only subscriber");
            log
        });
        log.clone()
    }

    /// All lines.
    pub fn text(&self) -> String {
        self.0.lock().expect("no panic while writing").clone()
    }

    /// Whether there is a line of this level with all of these words in it.
    pub fn says(&self, level: &str, words: &[&str]) -> bool {
        let text = self.text();
        let fits =
            |line: &str| line.starts_with(level) && words.iter().all(|word| line.contains(word));
        text.lines().any(fits)
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "distlock"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        line.0.push('\n');
        self.0.lock().expect("no panic while writing").push_str(&line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
