//! Handles: what a recorder gives for each series, to be kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};

use super::LostReason;
use super::metric_table::{
    ACQUISITIONS, COMMAND, CONNECTIONS, HELD, HOLD, INFO, LATE_RELEASES, LONGEST_HOLD, LOST, OK,
    OUTCOMES, REASONS, RENEWALS, WAIT, WAITING, describe,
};
use super::verb::{COMMANDS, Verb};
use crate::clock::Moment;

static METADATA: Metadata<'static> = Metadata::new("distlock", Level::INFO, Some("distlock"));

/// Of one name.
pub(super) struct OfLock {
    name: Box<str>,
    pub(super) acquired: Counter,
    /// In the order of `OUTCOMES`, without the first.
    refused: [Counter; OUTCOMES.len() - 1],
    pub(super) waited: Histogram,
    pub(super) waited_in_vain: Histogram,
    pub(super) hold: Histogram,
    pub(super) waiting: Gauge,
    pub(super) held: Gauge,
    longest: Gauge,
    /// When the hold began whose age that is; `NEVER` if there is none.
    oldest: AtomicU64,
    lost: [Counter; REASONS.len()],
    renewed: [Counter; OK.len()],
    pub(super) late: Counter,
}

/// Of what has no name.
pub(super) struct OfManager {
    commands: [[Histogram; OK.len()]; COMMANDS.len()],
    pub(super) up: Gauge,
    pub(super) down: Gauge,
}

impl OfLock {
    pub(super) fn register(recorder: &dyn Recorder, name: &str) -> Self {
        let lock = Label::new("lock", name.to_owned());
        let key = |metric| Key::from_parts(metric, vec![lock.clone()]);
        let key_of = |metric, label: &'static str, value: &'static str| {
            Key::from_parts(metric, vec![lock.clone(), Label::from_static_parts(label, value)])
        };
        let counter = |key: &Key| recorder.register_counter(key, &METADATA);
        let gauge = |metric| recorder.register_gauge(&key(metric), &METADATA);
        let histogram = |key: &Key| recorder.register_histogram(key, &METADATA);
        let outcome = |at: usize| counter(&key_of(ACQUISITIONS, "outcome", OUTCOMES[at]));
        Self {
            name: name.into(),
            acquired: outcome(0),
            refused: std::array::from_fn(|at| outcome(at + 1)),
            waited: histogram(&key_of(WAIT, "outcome", "acquired")),
            waited_in_vain: histogram(&key_of(WAIT, "outcome", "refused")),
            hold: histogram(&key(HOLD)),
            waiting: gauge(WAITING),
            held: gauge(HELD),
            longest: gauge(LONGEST_HOLD),
            oldest: AtomicU64::new(Moment::NEVER.as_nanos()),
            lost: REASONS.map(|reason| counter(&key_of(LOST, "reason", reason))),
            renewed: OK.map(|ok| counter(&key_of(RENEWALS, "outcome", ok))),
            late: counter(&key(LATE_RELEASES)),
        }
    }

    /// What it is called in labels.
    #[inline]
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn refused(&self, outcome: &str) -> &Counter {
        let at = OUTCOMES[1..].iter().position(|known| *known == outcome);
        &self.refused[at.unwrap_or_default()]
    }

    pub(super) fn lost(&self, reason: LostReason) -> &Counter {
        let at = REASONS.iter().position(|known| *known == reason.as_str());
        &self.lost[at.unwrap_or_default()]
    }

    pub(super) fn renewed(&self, ok: bool) -> &Counter {
        &self.renewed[usize::from(ok)]
    }

    /// A hold is so old.
    pub(super) fn is_held_since(&self, since: Moment, age: Duration) {
        let since = since.as_nanos();
        if self.oldest.fetch_min(since, Ordering::SeqCst) >= since {
            self.longest.set(age.as_secs_f64());
        }
    }

    /// A hold has ended. The next renewal says which one is the oldest now.
    pub(super) fn is_not_oldest(&self, since: Moment) {
        let (since, never) = (since.as_nanos(), Moment::NEVER.as_nanos());
        let order = Ordering::SeqCst;
        if self.oldest.load(order) == since
            && self.oldest.compare_exchange(since, never, order, order).is_ok()
        {
            self.longest.set(0.0);
        }
    }
}

impl OfManager {
    pub(super) fn register(recorder: &dyn Recorder, store: &'static str) -> Self {
        describe(recorder);
        let gauge = |key: &Key| recorder.register_gauge(key, &METADATA);
        let state = |state| {
            let label = Label::from_static_parts("state", state);
            gauge(&Key::from_parts(CONNECTIONS, vec![label]))
        };
        let info = vec![
            Label::from_static_parts("version", env!("CARGO_PKG_VERSION")),
            Label::from_static_parts("store", store),
        ];
        gauge(&Key::from_parts(INFO, info)).set(1.0);
        let command = |command, ok| {
            let labels = vec![
                Label::from_static_parts("command", command),
                Label::from_static_parts("outcome", ok),
            ];
            recorder.register_histogram(&Key::from_parts(COMMAND, labels), &METADATA)
        };
        let commands = COMMANDS.map(|name| OK.map(|ok| command(name, ok)));
        Self { commands, up: state("up"), down: state("down") }
    }

    #[inline]
    pub(super) fn command(&self, verb: Verb, ok: bool) -> &Histogram {
        &self.commands[verb as usize][usize::from(ok)]
    }
}
