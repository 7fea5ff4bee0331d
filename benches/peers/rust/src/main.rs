//! Drivers for Rust libraries; see `scripts/bench` for the interface. First argument: `raw` or `rslock`.
//! `raw` is the floor, not a lock library: SET NX PX + compare-and-delete on one multiplexed connection, retry at once.
use std::time::{Duration, Instant};
const TTL: Duration = Duration::from_secs(30);

#[derive(Clone)]
enum System { Raw(redis::aio::MultiplexedConnection, String), Rslock(rslock::LockManager) }
enum Held { Raw(uuid::Uuid), Rslock(rslock::LockGuard) }

impl System {
    async fn open(name: &str, url: &str) -> Self {
        match name {
            "raw" => {
                let client = redis::Client::open(url).unwrap();
                let mut c = client.get_multiplexed_async_connection().await.unwrap();
                let sha = redis::cmd("SCRIPT").arg("LOAD")
                    .arg("if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0")
                    .query_async(&mut c).await.unwrap();
                Self::Raw(c, sha)
            }
            "rslock" => Self::Rslock(rslock::LockManager::new(vec![url])),
            other => panic!("unknown system {other}"),
        }
    }
    async fn acquire(&mut self, key: &str) -> Held {
        match self {
            Self::Raw(c, _) => loop {
                let token = uuid::Uuid::new_v4();
                let r: Option<String> = redis::cmd("SET").arg(key).arg(token.as_bytes()).arg("NX").arg("PX").arg(TTL.as_millis() as u64).query_async(c).await.unwrap();
                if r.is_some() { return Held::Raw(token); }
            },
            Self::Rslock(m) => Held::Rslock(m.acquire(key.as_bytes(), TTL).await.unwrap()),
        }
    }
    async fn release(&mut self, key: &str, held: Held) {
        match (self, held) {
            (Self::Raw(c, sha), Held::Raw(token)) => {
                let n: i64 = redis::cmd("EVALSHA").arg(&*sha).arg(1).arg(key).arg(token.as_bytes()).query_async(c).await.unwrap();
                assert_eq!(n, 1);
            }
            (_, Held::Rslock(g)) => g.release().await,
            _ => unreachable!(),
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |k: &str| args.iter().position(|a| a == k).map(|i| args[i + 1].clone()).unwrap();
    let (mode, tasks, seconds) = (get("--scenario"), get("--tasks").parse::<usize>().unwrap(), get("--seconds").parse::<f64>().unwrap());
    let system = System::open(&args[1], &get("--url")).await;
    println!("READY");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let hold = Duration::from_secs_f64(seconds);
    if mode == "idle" {
        let mut s = system.clone();
        let held = s.acquire("hot").await;
        let waiters: Vec<_> = (1..tasks).map(|_| { let mut s = system.clone(); tokio::spawn(async move {
            let h = s.acquire("hot").await; let at = Instant::now(); s.release("hot", h).await; at }) }).collect();
        tokio::time::sleep(hold).await;
        let released = Instant::now();
        s.release("hot", held).await;
        let mut at = vec![];
        for w in waiters { at.push(w.await.unwrap().duration_since(released).as_secs_f64() * 1e3); }
        at.sort_by(f64::total_cmp);
        println!("{}", serde_json::json!({"locks": tasks, "per_task": [1], "first_ms": at[0], "drain_ms": at[at.len() - 1]}));
        return;
    }
    let stop = Instant::now() + hold;
    let runs: Vec<_> = (0..tasks).map(|i| {
        let (mut s, key) = (system.clone(), if mode == "own" { format!("own:{i}:{}", std::process::id()) } else { "hot".into() });
        tokio::spawn(async move {
            let (mut n, mut us) = (0u64, vec![]);
            while Instant::now() < stop {
                let t = Instant::now();
                let h = s.acquire(&key).await;
                us.push(t.elapsed().as_micros() as u64);
                s.release(&key, h).await; n += 1;
            }
            (n, us)
        })
    }).collect();
    let (mut per, mut us) = (vec![], vec![]);
    for r in runs { let (n, u) = r.await.unwrap(); per.push(n); us.extend(u.into_iter().step_by(7)); }
    println!("{}", serde_json::json!({"locks": per.iter().sum::<u64>(), "per_task": per, "us": us}));
}
