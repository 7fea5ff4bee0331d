//! LockRates of acquired locks by name, and the waiting times of calls, from the counts that processes report.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::admin::{Calls, Counted};

/// A rate is an average over this time.
const WINDOW: Duration = Duration::from_secs(10);
/// Older reports are not shown.
const MAX_AGE: Duration = Duration::from_secs(15);

/// The rate of one lock name, over all processes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LockRate {
    pub(super) name: String,
    /// Acquired locks per second.
    pub(super) a_second: f64,
    /// The time in which 99 of 100 successful calls got their lock; `None` if it is more than a minute, or without such
    /// calls.
    pub(super) p99: Option<Duration>,
}

/// The rates of all lock names, from recent reports.
#[derive(Debug, Default)]
pub(super) struct LockRates {
    /// The reports of each process; the latest one is last.
    reports: BTreeMap<String, VecDeque<CountReport>>,
    /// The lock names of held locks and the start of their leases, by their names in the store.
    held: HashMap<String, (String, Instant)>,
}

/// A report of one process.
#[derive(Debug)]
struct CountReport {
    at: Instant,
    counted: Duration,
    calls: BTreeMap<String, Calls>,
}

impl LockRates {
    pub(super) fn add(&mut self, counts: Vec<Counted>, now: Instant) {
        self.held.clear();
        for Counted { process, counted, calls, held } in counts {
            let since = |age| now.checked_sub(age).unwrap_or(now);
            let held = held.into_iter();
            self.held.extend(held.map(|(stored, (name, age))| (stored, (name, since(age)))));
            let reports = self.reports.entry(process).or_default();
            if reports.back().is_some_and(|last| last.counted >= counted) {
                // The process has restarted its counts.
                reports.clear();
            }
            let calls = calls.into_iter().map(|calls| (calls.name.clone(), calls)).collect();
            reports.push_back(CountReport { at: now, counted, calls });
            while reports.len() > 2 && now.duration_since(reports[1].at) >= WINDOW {
                reports.pop_front();
            }
        }
        let is_recent = |report: &CountReport| now.duration_since(report.at) < MAX_AGE;
        self.reports.retain(|_, reports| reports.back().is_some_and(is_recent));
    }

    /// Returns the lock name and the start of the lease, by the name in the store.
    pub(super) fn held(&self, stored: &str) -> Option<(&str, Instant)> {
        self.held.get(stored).map(|(name, since)| (name.as_str(), *since))
    }

    /// Whether any process has reported.
    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Returns all rates; the highest is first.
    pub(super) fn all(&self) -> Vec<LockRate> {
        let mut all: BTreeMap<&str, (f64, Calls)> = BTreeMap::new();
        for reports in self.reports.values() {
            let (Some(first), Some(last)) = (reports.front(), reports.back()) else { continue };
            let took = last.counted.saturating_sub(first.counted).as_secs_f64();
            for (name, calls) in &last.calls {
                let Some(new) = calls.since(first.calls.get(name)).filter(|_| took > 0.0) else {
                    continue;
                };
                let (rate, joined) = all.entry(name).or_insert_with(|| (0.0, Calls::of(name)));
                *rate += new.taken() as f64 / took;
                joined.join(&new);
            }
        }
        let rate = |(name, (a_second, calls)): (&str, (f64, Calls))| LockRate {
            name: name.to_owned(),
            a_second,
            p99: calls.waited(0.99),
        };
        let mut all: Vec<LockRate> = all.into_iter().map(rate).collect();
        all.sort_by(|a, b| b.a_second.total_cmp(&a.a_second).then_with(|| a.name.cmp(&b.name)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(process: &str, secs: u64, calls: u64) -> Counted {
        let mut of_pay = Calls::of("pay");
        (0..calls).for_each(|_| of_pay.add(Duration::from_millis(2)));
        Counted {
            process: process.to_owned(),
            counted: Duration::from_secs(secs),
            calls: vec![of_pay],
            held: [("l".to_owned(), ("pay".to_owned(), Duration::from_secs(1)))].into(),
        }
    }

    #[test]
    fn processes_add_up_and_may_restart() {
        let mut rates = LockRates::default();
        let begin = Instant::now();
        let after = |secs| begin + Duration::from_secs(secs);
        rates.add(vec![counts("a", 0, 0), counts("b", 0, 0)], begin);
        assert_eq!(rates.all(), Vec::new(), "nothing is known yet");
        rates.add(vec![counts("a", 2, 10), counts("b", 2, 20)], after(2));
        let rate = |a_second| LockRate {
            name: "pay".to_owned(),
            a_second,
            p99: Some(Duration::from_micros(2500)),
        };
        assert_eq!(rates.all(), [rate(15.0)]);
        assert_eq!(rates.held("l"), Some(("pay", after(1))));
        rates.add(vec![counts("a", 4, 10), counts("b", 1, 1)], after(4));
        assert_eq!(
            rates.all(),
            [rate(2.5)],
            "nothing is known yet of a process that has restarted"
        );
        rates.add(vec![counts("a", 20, 10)], after(20));
        assert_eq!(rates.all().len(), 1, "the last report of b is old");
        rates.add(Vec::new(), after(60));
        assert_eq!(rates.all(), Vec::new());
    }
}
