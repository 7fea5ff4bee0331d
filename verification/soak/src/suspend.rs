//! A holder process is stopped at an await until its lease is over and another has the lock; then it
//! goes on. Its body must not be polled again, its caller must hear of it, its release must not touch
//! the other's lock, and a store that looks at fences must refuse its write.

use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager};
use distlock_testkit::{Fork, LONG, RedisServer, connect, data_at, fork_self, in_fork, owner};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::effort::Effort;
use crate::holder::Holder;
use crate::report::Report;

const TTL: Duration = Duration::from_millis(300);
const KEY: &str = "suspend";
const NAME: &str = "suspend";

/// Fences are compared as texts of one length: as numbers they are too long for Lua.
const FENCED_WRITE: &str = "
local last = redis.call('GET', KEYS[1]) or ''
if ARGV[1] < last then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1";

/// Data beside the locks, in a database of its own.
struct Data(MultiplexedConnection);

impl Data {
    async fn open(url: &str) -> Self {
        Self(data_at(url).await)
    }

    /// Whether the store takes a write under this fence.
    async fn write(&self, fence: u64) -> bool {
        let script = redis::Script::new(FENCED_WRITE);
        let mut connection = self.0.clone();
        let fence = format!("{fence:020}");
        script.key("fenced").arg(fence).invoke_async(&mut connection).await.expect("an answer")
    }

    async fn set(&self, name: &str, value: String) {
        self.0.clone().set::<_, _, ()>(name, value).await.expect("SET");
    }

    async fn get(&self, name: &str) -> Option<String> {
        self.0.clone().get(name).await.expect("GET")
    }

    /// The value of `name` once it is `wanted`; false if that takes too long.
    async fn becomes(&self, name: &str, wanted: impl Fn(&str) -> bool) -> bool {
        let start = Instant::now();
        while start.elapsed() < LONG {
            if self.get(name).await.is_some_and(|value| wanted(&value)) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        false
    }
}

/// Runs it. The child process comes in here, too, and does not return.
pub async fn run(effort: Effort) -> Report {
    if in_fork() {
        return child().await;
    }
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let data = Data::open(&server.url_of_db(1)).await;
    let env = [("DISTLOCK_URL", server.url()), ("SOAK_DATA_URL", server.url_of_db(1))];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let holder = fork_self(NAME, &env);

    let mut report = Report::default();
    let start = Instant::now();
    let (mut rounds, mut tries) = (0, 0);
    let mut notices = Vec::new();
    while effort.goes_on(rounds, start) && report.violations().is_empty() {
        tries += 1;
        if let Some(notice) = round(tries, &holder, &manager, &server, &data, &mut report).await {
            rounds += 1;
            notices.push(notice);
        }
    }
    report.figure("times stopped past the lease", rounds);
    report.figure("rounds that did not count", tries - rounds);
    report.spread("outcome known after going on", notices, LONG);
    report
}

/// One round; `None` if the holder had lost its lock before it was stopped.
async fn round(
    number: u64,
    holder: &Fork,
    manager: &LockManager,
    server: &RedisServer,
    data: &Data,
    report: &mut Report,
) -> Option<Duration> {
    let round = number.to_string();
    data.set("round", round.clone()).await;
    let running = data.becomes("running", |value| value == round).await;
    report.violated_if(!running, format!("round {round}: the holder's body does not run"));
    holder.stop();
    let guard = manager.lock(KEY).ttl(LONG).wait(LONG).acquire().await.expect("it expires");
    let accepted = data.write(guard.fencing_token()).await;
    report.violated_if(!accepted, format!("round {round}: the new holder's write was refused"));
    let too_early = data.get("outcome").await.is_some_and(|value| value.starts_with(&round));
    let token = owner(server, KEY);
    let start = Instant::now();
    holder.cont();
    let prefix = format!("{round} ");
    let known = data.becomes("outcome", |value| value.starts_with(&prefix)).await;
    report.violated_if(!known, format!("round {round}: the holder did not go on"));
    let notice = start.elapsed();
    let outcome = data.get("outcome").await.unwrap_or_default();
    if !too_early {
        let right = format!("{round} lost, late polls 0, write refused");
        report.violated_if(outcome != right, format!("the holder says: {outcome}"));
    }
    // Its release has been answered by now.
    let touched = owner(server, KEY) != token || !guard.is_held();
    report.violated_if(touched, format!("round {round}: the new holder's lock was touched"));
    let released = LockGuard::release(guard).await;
    report.violated_if(released.is_err(), format!("round {round}: {released:?}"));
    (!too_early).then_some(notice)
}

/// The holder: takes the lock in every round, and says how that ended. Ends when it is killed.
async fn child() -> Report {
    let manager = LockManager::from_env().expect("a manager");
    let data = Data::open(&std::env::var("SOAK_DATA_URL").expect("its data")).await;
    let mut last = String::new();
    loop {
        let round = data.get("round").await.unwrap_or_default();
        if round == last {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        }
        let (holder, mut fence) = (Holder::default(), 0);
        let body = async {
            // The same lease: a nested call joins it.
            let lease = manager.lock(KEY).reentrant(true).acquire().await.expect("it is held here");
            fence = lease.fencing_token();
            assert!(data.write(fence).await, "the holder's own write was refused");
            data.set("running", round.clone()).await;
            // Seldom, so that the process is stopped at an await and not inside a poll: a poll that
            // has begun goes on.
            let ticks = async {
                loop {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            holder.body(&manager, KEY, ticks).await
        };
        let result: Result<(), _> = manager.lock(KEY).ttl(TTL).wait(LONG).run(body).await;
        let lost = result.is_err_and(|error| error.is_lost());
        // On the same connection as the release of the lost lock, and behind it.
        let probe = manager.lock("probe").wait(LONG).acquire().await.expect("granted");
        probe.release().await.expect("it was held");
        let write = if data.write(fence).await { "accepted" } else { "refused" };
        let lost = if lost { "lost" } else { "not lost" };
        let late = holder.late().len();
        data.set("outcome", format!("{round} {lost}, late polls {late}, write {write}")).await;
        last = round;
    }
}
