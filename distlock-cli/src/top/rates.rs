//! How often the locks of a name are taken, and how long calls wait for them, by what processes say.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use distlock::__console::{Calls, Counted};

/// How long a rate is counted over.
const WHILE: Duration = Duration::from_secs(10);
/// What was said longer ago is not shown.
const OLD: Duration = Duration::from_secs(15);

/// The calls of one name, in all processes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rate {
    pub(super) name: String,
    /// Locks taken.
    pub(super) a_second: f64,
    /// 99 of 100 calls that got their lock waited no longer; `None` if that is more than a minute, or there were
    /// none.
    pub(super) p99: Option<Duration>,
}

/// What was said last.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// By process; the latest one last.
    said: BTreeMap<String, VecDeque<Said>>,
    /// What locks are called and since when they are held, by their names in the store.
    held: HashMap<String, (String, Instant)>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    counted: Duration,
    calls: BTreeMap<String, Calls>,
}

impl Rates {
    pub(super) fn take_in(&mut self, told: Vec<Counted>, now: Instant) {
        self.held.clear();
        for Counted { process, counted, calls, held } in told {
            let since = |age| now.checked_sub(age).unwrap_or(now);
            let held = held.into_iter();
            self.held.extend(held.map(|(stored, (name, age))| (stored, (name, since(age)))));
            let said = self.said.entry(process).or_default();
            if said.back().is_some_and(|last| last.counted >= counted) {
                // It has begun anew.
                said.clear();
            }
            let calls = calls.into_iter().map(|calls| (calls.name.clone(), calls)).collect();
            said.push_back(Said { at: now, counted, calls });
            while said.len() > 2 && now.duration_since(said[1].at) >= WHILE {
                said.pop_front();
            }
        }
        let is_new = |said: &Said| now.duration_since(said.at) < OLD;
        self.said.retain(|_, said| said.back().is_some_and(is_new));
    }

    /// What a lock is called and since when it is held, by its name in the store.
    pub(super) fn held(&self, stored: &str) -> Option<(&str, Instant)> {
        self.held.get(stored).map(|(name, since)| (name.as_str(), *since))
    }

    /// Any process has answered.
    pub(super) fn is_any(&self) -> bool {
        !self.said.is_empty()
    }

    /// The busiest first.
    pub(super) fn all(&self) -> Vec<Rate> {
        let mut all: BTreeMap<&str, (f64, Calls)> = BTreeMap::new();
        for said in self.said.values() {
            let (Some(first), Some(last)) = (said.front(), said.back()) else { continue };
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
        let rate = |(name, (a_second, calls)): (&str, (f64, Calls))| Rate {
            name: name.to_owned(),
            a_second,
            p99: calls.waited(0.99),
        };
        let mut all: Vec<Rate> = all.into_iter().map(rate).collect();
        all.sort_by(|a, b| b.a_second.total_cmp(&a.a_second).then_with(|| a.name.cmp(&b.name)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(process: &str, secs: u64, calls: u64) -> Counted {
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
    fn processes_add_up_and_may_begin_anew() {
        let mut rates = Rates::default();
        let begin = Instant::now();
        let after = |secs| begin + Duration::from_secs(secs);
        rates.take_in(vec![told("a", 0, 0), told("b", 0, 0)], begin);
        assert_eq!(rates.all(), Vec::new(), "nothing is known yet");
        rates.take_in(vec![told("a", 2, 10), told("b", 2, 20)], after(2));
        let rate = |a_second| Rate {
            name: "pay".to_owned(),
            a_second,
            p99: Some(Duration::from_micros(2500)),
        };
        assert_eq!(rates.all(), [rate(15.0)]);
        assert_eq!(rates.held("l"), Some(("pay", after(1))));
        rates.take_in(vec![told("a", 4, 10), told("b", 1, 1)], after(4));
        assert_eq!(rates.all(), [rate(2.5)], "of what has begun anew nothing is known yet");
        rates.take_in(vec![told("a", 20, 10)], after(20));
        assert_eq!(rates.all().len(), 1, "b has said nothing for long");
        rates.take_in(Vec::new(), after(60));
        assert_eq!(rates.all(), Vec::new());
    }
}
