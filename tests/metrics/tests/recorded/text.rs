//! The text that Prometheus reads.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// The recorder of this process from now on.
pub(crate) fn install() -> PrometheusHandle {
    builder().install_recorder().expect("the only recorder")
}

pub(crate) fn builder() -> PrometheusBuilder {
    PrometheusBuilder::new().set_buckets(distlock::metrics::BUCKETS).expect("buckets")
}

/// A line: a name, its labels in order, and a number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// Reads it all. No label that is tested has a quote or a comma in it.
pub(crate) fn samples(text: &str) -> Vec<Sample> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect("a number");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.trim_end_matches('}')),
            None => (series, ""),
        };
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
            let (name, value) = label.split_once('=').expect("a label");
            (name.to_owned(), value.trim_matches('"').to_owned())
        });
        let (name, labels) = (name.to_owned(), labels.collect());
        Sample { name, labels, value: value.parse().expect("a number") }
    };
    lines.map(sample).collect()
}

/// What the series of that name with these labels come to.
pub(crate) fn sum(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let fits = |sample: &Sample| {
        sample.name == name
            && labels.iter().all(|(label, value)| sample.label(label) == Some(*value))
    };
    samples(text).iter().filter(|sample| fits(sample)).map(|sample| sample.value).sum()
}
