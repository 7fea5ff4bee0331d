//! The metrics: names, kinds, units, labels, and what they mean. The guide has the same table; dashboards and
//! alerts are written against it.

use metrics::{KeyName, Recorder, SharedString, Unit};

use super::verb::COMMANDS;

/// Bucket bounds of the histograms, in seconds, from 0.1 ms to 60 s, for exporters that ask for them.
///
/// ```no_run
/// # mod metrics_exporter_prometheus {
/// #     pub struct PrometheusBuilder;
/// #     impl PrometheusBuilder {
/// #         pub fn new() -> Self { Self }
/// #         pub fn set_buckets(self, _: &[f64]) -> Result<Self, ()> { Ok(self) }
/// #     }
/// # }
/// # use distlock_runtime as distlock;
/// use metrics_exporter_prometheus::PrometheusBuilder;
///
/// let builder = PrometheusBuilder::new().set_buckets(distlock::metrics::BUCKETS);
/// ```
///
/// They begin where the round trips to a store nearby are: a command takes some 0.1 ms there.
pub const BUCKETS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [(&'static str, &'static [&'static str])],
    pub meaning: &'static str,
}

pub(super) const OUTCOMES: [&str; 7] =
    ["acquired", "busy", "backend", "deadlock", "invalid", "closed", "cancelled"];
pub(super) const REASONS: [&str; 5] = ["expired", "taken", "forced", "max_hold", "closed"];
const STORES: [&str; 6] = ["memory", "redis", "redlock", "postgres", "etcd", "zookeeper"];
/// Of what goes well or does not, in the order of `bool`.
pub(super) const OK: [&str; 2] = ["failed", "ok"];

pub(super) const ACQUISITIONS: &str = "distlock_acquisitions_total";
pub(super) const WAIT: &str = "distlock_wait_seconds";
pub(super) const HOLD: &str = "distlock_hold_seconds";
pub(super) const WAITING: &str = "distlock_waiting";
pub(super) const HELD: &str = "distlock_held";
pub(super) const LONGEST_HOLD: &str = "distlock_longest_hold_seconds";
pub(super) const LOST: &str = "distlock_lost_total";
pub(super) const RENEWALS: &str = "distlock_renewals_total";
pub(super) const LATE_RELEASES: &str = "distlock_late_releases_total";
pub(super) const COMMAND: &str = "distlock_command_seconds";
pub(super) const CONNECTIONS: &str = "distlock_connections";
pub(super) const INFO: &str = "distlock_info";

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [(&'static str, &'static [&'static str])],
    meaning: &'static str,
) -> Metric {
    Metric { name, kind, labels, meaning }
}

/// All there are. Values of labels that are not listed are free.
pub const METRICS: &[Metric] = &[
    metric(
        ACQUISITIONS,
        Kind::Counter,
        &[("lock", &[]), ("outcome", &OUTCOMES)],
        "calls, each once, by how they ended",
    ),
    metric(
        WAIT,
        Kind::Histogram,
        &[("lock", &[]), ("outcome", &["acquired", "refused"])],
        "from the call to its answer",
    ),
    metric(HOLD, Kind::Histogram, &[("lock", &[])], "from the grant until the release is sent"),
    metric(WAITING, Kind::Gauge, &[("lock", &[])], "calls of this process that wait"),
    metric(HELD, Kind::Gauge, &[("lock", &[])], "locks that this process holds"),
    metric(
        LONGEST_HOLD,
        Kind::Gauge,
        &[("lock", &[])],
        "age of the oldest hold, as of the last time that it was to be renewed",
    ),
    metric(
        LOST,
        Kind::Counter,
        &[("lock", &[]), ("reason", &REASONS)],
        "leases that were lost while they were held",
    ),
    metric(RENEWALS, Kind::Counter, &[("lock", &[]), ("outcome", &OK)], "renewals of leases"),
    metric(
        LATE_RELEASES,
        Kind::Counter,
        &[("lock", &[])],
        "bodies that have returned, whose lock could not be freed at once",
    ),
    metric(
        COMMAND,
        Kind::Histogram,
        &[("command", &COMMANDS), ("outcome", &OK)],
        "the store's round trips",
    ),
    metric(CONNECTIONS, Kind::Gauge, &[("state", &["up", "down"])], "connections for commands"),
    metric(INFO, Kind::Gauge, &[("version", &[]), ("store", &STORES)], "always 1"),
];

pub(super) fn describe(recorder: &dyn Recorder) {
    for Metric { name, kind, meaning, .. } in METRICS {
        let (key, text) = (KeyName::from_const_str(name), SharedString::const_str(meaning));
        let unit = name.ends_with("_seconds").then_some(Unit::Seconds).or(Some(Unit::Count));
        match kind {
            Kind::Counter => recorder.describe_counter(key, unit, text),
            Kind::Gauge => recorder.describe_gauge(key, unit, text),
            Kind::Histogram => recorder.describe_histogram(key, unit, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::BUCKETS;

    #[test]
    fn fo10_buckets_distinguish_round_trips_of_less_than_a_millisecond() {
        let bucket = |seconds: f64| BUCKETS.iter().position(|bound| seconds <= *bound);
        let (fast, slow) = (bucket(0.0002), bucket(0.0009));
        assert!(fast > Some(0) && fast < slow && slow < bucket(0.002), "{BUCKETS:?}");
        assert!(BUCKETS.is_sorted());
    }

    /// Without upkeep, the recorder's memory grows with every sample.
    #[test]
    fn fo10_the_guides_recorder_has_its_upkeep_run() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/observability.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let installed = page.split("```").find(|block| block.contains(".install_recorder()"));
        assert!(installed.expect("the lines").contains(".run_upkeep()"));
    }
}
