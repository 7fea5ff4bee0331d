//! The guide's table, the dashboard and the alerts, against what is recorded.

use std::collections::BTreeSet;
use std::path::Path;

use distlock::metrics::{Kind, METRICS};
use serde_json::Value;

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the guide: name, kind, labels with their values.
#[test]
fn the_guide_has_every_metric_with_its_labels() {
    let page = file("docs/guide/observability.md");
    let (_, section) = page.split_once("\n# Metrics\n").expect("the section");
    let section = section.split("\n# ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `distlock_"));
    let said: BTreeSet<String> = rows
        .map(|row| row.split('|').map(str::trim).collect::<Vec<_>>()[1..4].join(" | "))
        .collect();
    let label = |(name, values): &(&str, &[&str])| match values {
        [] => format!("`{name}`"),
        values => format!("`{name}` = {}", values.join(", ")),
    };
    let row = |metric: &distlock::metrics::Metric| {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<_> = metric.labels.iter().map(label).collect();
        format!("`{}` | {kind} | {}", metric.name, labels.join("; "))
    };
    assert_eq!(said, METRICS.iter().map(row).collect());
}

#[test]
fn the_guide_shows_the_observer_that_is_compiled_here() {
    let page = file("docs/guide/observability.md");
    let code = file("tests/metrics/src/opentelemetry.rs");
    let (_, code) = code.split_once("\n\n").expect("the code after the header");
    assert!(page.contains(code.trim()), "the page has another text");
}

/// Names of metrics with the labels that are named beside them: `name{label="value"}`, `by (label)`.
struct Query<'a>(&'a str);

impl Query<'_> {
    fn words(&self) -> impl Iterator<Item = &str> {
        self.0.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
    }

    fn metrics(&self) -> BTreeSet<&'static str> {
        let known = |word: &str| {
            let of = |metric: &&distlock::metrics::Metric| {
                let parts = ["", "_bucket", "_sum", "_count"];
                let parts = if metric.kind == Kind::Histogram { &parts[1..] } else { &parts[..1] };
                parts.iter().any(|part| word.strip_suffix(part) == Some(metric.name))
            };
            let metric = METRICS.iter().find(of);
            metric.unwrap_or_else(|| panic!("{word} is not recorded: {}", self.0)).name
        };
        self.words().filter(|word| word.starts_with("distlock_")).map(known).collect()
    }

    fn check(&self) {
        let used = self.metrics();
        assert!(!used.is_empty(), "no metric in {}", self.0);
        let has = |label: &str, value: Option<&str>| {
            let fits = |(name, values): &(&str, &[&str])| {
                *name == label
                    && value.is_none_or(|value| values.is_empty() || values.contains(&value))
            };
            let metrics = METRICS.iter().filter(|metric| used.contains(metric.name));
            metrics.flat_map(|metric| metric.labels).any(fits)
        };
        for part in self.0.split('{').skip(1) {
            let selector = part.split('}').next().unwrap_or_default();
            for matcher in selector.split(',').filter(|matcher| !matcher.trim().is_empty()) {
                let (label, value) = matcher.split_once(['=', '!']).expect("a matcher");
                let value = value.trim_start_matches(['=', '~']).trim_matches('"');
                let values = value.split('|').filter(|value| !value.contains('$'));
                let mut values = values.peekable();
                assert!(has(label.trim(), None), "no label {label}: {}", self.0);
                assert!(
                    values.all(|value| has(label.trim(), Some(value))),
                    "{label}={value}: {}",
                    self.0
                );
            }
        }
        for part in self.0.split("by (").skip(1) {
            let labels = part.split(')').next().unwrap_or_default();
            for label in labels.split(',').map(str::trim).filter(|label| *label != "le") {
                let target = ["instance", "job"].contains(&label);
                assert!(target || has(label, None), "no label {label}: {}", self.0);
            }
        }
    }
}

fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => texts(value, key, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[test]
fn dashboard_and_alerts_read_what_is_recorded_and_nothing_is_shown_nowhere() {
    let dashboard: Value =
        serde_json::from_str(&file("contrib/grafana/distlock.json")).expect("JSON");
    let mut queries = Vec::new();
    texts(&dashboard, "expr", &mut queries);
    assert!(queries.len() >= 8, "{queries:?}");
    let rules = file("contrib/prometheus/distlock.rules.yml");
    let alerts: Vec<_> =
        rules.lines().filter_map(|line| line.trim_start().strip_prefix("expr: ")).collect();
    assert_eq!(alerts.len(), rules.matches("- alert: ").count(), "each on one line");
    assert!(alerts.len() >= 4, "{alerts:?}");
    queries.iter().chain(&alerts).for_each(|query| Query(query).check());
    let shown: BTreeSet<_> = queries.iter().flat_map(|query| Query(query).metrics()).collect();
    assert_eq!(
        shown,
        METRICS.iter().map(|metric| metric.name).collect(),
        "what the dashboard shows"
    );
}
