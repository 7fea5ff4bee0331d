//! What a program has found.

use std::fmt;
use std::time::Duration;

/// Figures, and what is wrong with them.
#[derive(Debug, Clone, Default)]
pub struct Report {
    lines: Vec<(String, String)>,
    violations: Vec<String>,
    past_bounds: Vec<String>,
}

impl Report {
    pub(crate) fn figure(&mut self, name: impl Into<String>, value: impl fmt::Display) {
        self.lines.push((name.into(), value.to_string()));
    }

    /// The spread of `samples`, whose p99 should not be past `bound`.
    pub(crate) fn spread(&mut self, name: &str, mut samples: Vec<Duration>, bound: Duration) {
        samples.sort();
        if samples.is_empty() {
            return self.figure(name, "none");
        }
        let at = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
        let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
        let count = samples.len();
        self.figure(name, format!("p50 {p50:.1?}  p99 {p99:.1?}  max {most:.1?}  (of {count})"));
        if p99 > bound {
            self.past_bounds.push(format!("{name}: p99 {p99:.1?} is more than {bound:?}"));
        }
    }

    /// A figure that is not what it should be.
    pub(crate) fn past_if(&mut self, past: bool, what: impl Into<String>) {
        if past {
            self.past_bounds.push(what.into());
        }
    }

    /// What must never happen.
    pub(crate) fn violated_if(&mut self, violated: bool, what: impl Into<String>) {
        if violated {
            self.violations.push(what.into());
        }
    }

    /// What happened that must not, whatever the machine.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// There are no violations, and no figure is past its bound.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.past_bounds.is_empty()
    }

    /// Nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// So much of the samples is no more than this.
pub(crate) fn percentile(samples: &[Duration], share: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, value) in &self.lines {
            writeln!(f, "{name:width$}  {value}")?;
        }
        for text in &self.past_bounds {
            writeln!(f, "PAST ITS BOUND: {text}")?;
        }
        for text in &self.violations {
            writeln!(f, "VIOLATION: {text}")?;
        }
        Ok(())
    }
}
