//! How fast tasks take free locks, and how it is said.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::locker::Locker;

/// How long each is measured at a time, and how often.
const WHILE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// What tasks had in one round.
pub(crate) struct Pace {
    rate: f64,
    times: Vec<Duration>,
}

/// Three for each of so many tasks.
pub(crate) fn keys(tasks: usize) -> Vec<String> {
    (0..3 * tasks).map(|n| format!("bench-{n}")).collect()
}

/// Each in its turn; the round of the median rate of each.
pub(crate) async fn turns(ways: &[(&str, Locker)], tasks: usize, keys: &[String]) -> Vec<Pace> {
    let mut rounds: Vec<Vec<Pace>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            let at = (turn + round) % ways.len();
            rounds[at].push(Pace::of(&ways[at].1, tasks, keys).await);
        }
    }
    rounds.into_iter().map(Pace::median).collect()
}

impl Pace {
    /// Each task takes the locks of some keys, which no other task has, one after the other.
    async fn of(locker: &Locker, tasks: usize, keys: &[String]) -> Self {
        let keys: Arc<[String]> = keys.into();
        let begun = Instant::now();
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let (locker, keys) = (locker.clone(), keys.clone());
            running.spawn(async move {
                let mut times = Vec::new();
                for number in (task..keys.len()).step_by(tasks).cycle() {
                    if begun.elapsed() >= WHILE {
                        break;
                    }
                    let asked = Instant::now();
                    locker.lock(number, &keys[number]).await;
                    times.push(asked.elapsed());
                }
                times
            });
        }
        let times: Vec<_> = running.join_all().await.into_iter().flatten().collect();
        Self { rate: times.len() as f64 / begun.elapsed().as_secs_f64(), times }
    }

    fn median(mut rounds: Vec<Self>) -> Self {
        rounds.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        rounds.swap_remove(rounds.len() / 2)
    }

    pub(crate) fn beside(&self, first: &Self) -> String {
        let (times, ratio) = (spread(self.times.clone()), self.rate / first.rate);
        let worst = percentile(&self.times, 0.99).as_secs_f64();
        let worst = worst / percentile(&first.times, 0.99).as_secs_f64();
        format!("{:7.0} locks/s (× {ratio:4.2})  {times} (p99 × {worst:4.2})", self.rate)
    }
}

pub(crate) fn spread(times: Vec<Duration>) -> String {
    let at = |share| percentile(&times, share);
    format!("p50 {:.0?}  p99 {:.0?}  max {:.1?}", at(0.5), at(0.99), at(1.0))
}

fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}
