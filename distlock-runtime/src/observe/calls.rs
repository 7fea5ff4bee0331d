//! How often a process took the locks of one name, and how long its calls waited for them.

use std::time::Duration;

use crate::itself::shortened;
use crate::json::{Json, ObjectWriter};

/// In µs: up to the first one, up to the second, and so on; the last count is of longer ones.
const BOUNDS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Calls that got a lock of one name, since a client began to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// What their locks are called.
    pub name: String,
    waits: [u64; BOUNDS.len() + 1],
}

impl Calls {
    /// None yet.
    pub fn of(name: &str) -> Self {
        Self { name: shortened(name), waits: [0; BOUNDS.len() + 1] }
    }

    /// One that waited so long.
    pub fn add(&mut self, waited: Duration) {
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waits[BOUNDS.partition_point(|bound| *bound < waited)] += 1;
    }

    /// How many they are.
    pub fn taken(&self) -> u64 {
        self.waits.iter().sum()
    }

    /// Those of this process since it counted `before`; `None` if it has begun anew.
    #[must_use]
    pub fn since(&self, before: Option<&Self>) -> Option<Self> {
        let mut since = self.clone();
        for (now, before) in
            since.waits.iter_mut().zip(before.map_or([0; BOUNDS.len() + 1], |it| it.waits))
        {
            *now = now.checked_sub(before)?;
        }
        Some(since)
    }

    /// Those of another process as well.
    pub fn join(&mut self, other: &Self) {
        for (count, more) in self.waits.iter_mut().zip(other.waits) {
            *count += more;
        }
    }

    /// So long that this part of them (0 to 1) waited no longer; `None` if there are none, or they waited for more
    /// than a minute.
    pub fn waited(&self, part: f64) -> Option<Duration> {
        let wanted = (self.taken() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let bounds = BOUNDS.iter().zip(self.waits);
        let mut reached = bounds.filter(|(_, count)| {
            seen += count;
            seen >= wanted.max(1)
        });
        reached.next().map(|(bound, _)| Duration::from_micros(*bound))
    }

    pub(crate) fn parse(json: &Json) -> Option<Self> {
        let mut calls = Self::of(json.text("name")?);
        let mut counts = json.text("waits")?.split(' ');
        for count in &mut calls.waits {
            // Perhaps from another version or a foreign client: their sums must not overflow.
            *count = counts.next()?.parse::<u32>().ok()?.into();
        }
        Some(calls)
    }

    pub(crate) fn json(&self) -> String {
        let counts = self.waits.map(|count| u32::try_from(count).unwrap_or(u32::MAX).to_string());
        ObjectWriter::new().text("name", &self.name).text("waits", &counts.join(" ")).end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_waited_no_longer() {
        let mut calls = Calls::of("pay");
        assert_eq!(calls.waited(0.99), None);
        (0..98).for_each(|_| calls.add(Duration::from_micros(100)));
        (0..2).for_each(|_| calls.add(Duration::from_millis(30)));
        assert_eq!(calls.waited(0.5), Some(Duration::from_micros(100)));
        assert_eq!(calls.waited(0.98), Some(Duration::from_micros(100)));
        assert_eq!(calls.waited(0.99), Some(Duration::from_millis(50)));
        let before = calls.clone();
        calls.add(Duration::from_secs(3600));
        let new = calls.since(Some(&before)).expect("more");
        assert_eq!((new.taken(), new.waited(0.99)), (1, None));
        assert_eq!(before.since(Some(&calls)), None, "it has begun anew");
        let mut both = before.clone();
        both.join(&new);
        assert_eq!(both, calls);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut calls = Calls::of("orders::pay \"1\"");
        (0..7).for_each(|n| calls.add(Duration::from_millis(10 * n)));
        let json = Json::parse(&calls.json()).expect("JSON");
        assert_eq!(Calls::parse(&json), Some(calls));
        for text in
            [r#"{"name":"a"}"#, r#"{"name":"a","waits":"1 2"}"#, r#"{"name":"a","waits":"-1"}"#]
        {
            assert_eq!(Calls::parse(&Json::parse(text).expect("JSON")), None, "{text}");
        }
    }
}
