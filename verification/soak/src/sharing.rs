//! A writer behind readers of three processes that overlap without a pause: how soon it has the lock, how soon no
//! more readers come in, and how soon after each other those begin that stood behind it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use distlock::{LockManager, LockMode};
use distlock_testkit::{
    Data, Fork, LONG, Mode, Proxy, RedisServer, connect, data_at, fork_self, in_fork, wait_for,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::effort::Effort;
use crate::report::{Report, percentile};
use crate::stamp::{between, now};

const NAME: &str = "sharing";
const KEY: &str = "k";
/// The environment variable that names the file for what a process has read.
const READS: &str = "SOAK_READS";
const PROCESSES: usize = 3;
const TASKS: u64 = 4;
const READ: Duration = Duration::from_millis(5);
/// Between two writes: all read again.
const REST: Duration = Duration::from_millis(20);
/// How long one takes: all stand behind it.
const WRITE: Duration = Duration::from_millis(15);
/// A reader that came this long before the writer's end stood behind it.
const STOOD: u64 = 10_000_000;
/// Readers that stood together begin within this time of each other.
const TOGETHER: Duration = Duration::from_millis(5);

/// One turn of one task: when it asked for the lock, had it, and gave it back.
#[derive(Clone, Copy)]
struct Turn {
    task: u64,
    asked: u64,
    began: u64,
    ended: u64,
}

/// Runs it; an effort of times counts writes, over loopback and as many with a delay each way. The processes that
/// read come in here, too.
pub async fn run(effort: Effort) -> Report {
    if in_fork() {
        return child().await;
    }
    let mut report = Report::default();
    for (name, delay) in
        [("loopback", None), ("0.25 ms each way", Some(Duration::from_micros(250)))]
    {
        let seen = measure(effort, delay).await;
        judge(name, &seen, &mut report);
    }
    report
}

/// What one run has seen.
struct Seen {
    writes: Vec<Turn>,
    reads: Vec<Turn>,
    /// When the server notified the readers that a writer stands behind them.
    told: Vec<u64>,
    pings: Vec<Duration>,
}

async fn measure(effort: Effort, delay: Option<Duration>) -> Seen {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    if let Some(delay) = delay {
        proxy.set(Mode::Delay(delay));
    }
    let url = if delay.is_some() { proxy.url() } else { server.url() };
    let (data, told) = (Data::of(&server), listen(&server));
    let files: Vec<_> = (0..PROCESSES).map(file).collect();
    let children: Vec<_> = files.iter().map(|file| reader(&server, &url, file)).collect();
    let manager = connect(&url).await;
    let mut ping = data_at(&url).await;
    let ready = async || data.run::<usize>(&["SCARD", "reads"]) == PROCESSES;
    wait_for("all read", ready).await;
    let (start, mut writes, mut pings) = (Instant::now(), Vec::new(), Vec::new());
    while effort.goes_on(writes.len() as u64, start) {
        let sent = Instant::now();
        redis::cmd("PING").exec_async(&mut ping).await.expect("PONG");
        pings.push(sent.elapsed());
        sleep(REST).await;
        let asked = now();
        let request = manager.lock(KEY).mode(LockMode::Write).ttl(LONG).wait(LONG);
        let guard = request.acquire().await.expect("its turn comes");
        let began = now();
        sleep(WRITE).await;
        writes.push(Turn { task: 0, asked, began, ended: now() });
        guard.release().await.expect("it was held");
    }
    sleep(REST).await;
    data.set("over", "yes");
    wait_for("all have noted what they read", async || files.iter().all(|file| file.exists()))
        .await;
    drop(children);
    let reads = files.iter().zip(0..).flat_map(|(file, process)| turns(file, process)).collect();
    let told = told.lock().expect("no panic").clone();
    Seen { writes, reads, told, pings }
}

fn file(process: usize) -> PathBuf {
    std::env::temp_dir().join(format!("distlock-{NAME}-{}-{process}", std::process::id()))
}

fn reader(server: &RedisServer, url: &str, file: &std::path::Path) -> Fork {
    let data = server.url_of_db(1);
    let file = file.to_string_lossy();
    fork_self(NAME, &[("DISTLOCK_URL", url), (Data::URL, &data), (READS, &file)])
}

/// When messages about a waiter went out, as seen as near to the server as can be.
fn listen(server: &RedisServer) -> Arc<Mutex<Vec<u64>>> {
    let mut connection = server.eye();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (ready, listens) = mpsc::channel();
    // It ends with the server.
    std::thread::spawn({
        let told = told.clone();
        move || {
            let mut ear = connection.as_pubsub();
            ear.psubscribe("distlock:wake:*").expect("listens");
            ready.send(()).expect("it is waited for");
            while let Ok(message) = ear.get_message() {
                if message.get_payload_bytes().starts_with(b"s ") {
                    told.lock().expect("no panic").push(now());
                }
            }
        }
    });
    listens.recv().expect("it listens");
    told
}

/// A process whose tasks read all the time, and in the end note when.
async fn child() -> Report {
    let manager = LockManager::from_env().expect("a manager");
    let data = Data::of_parent();
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (manager, over) = (manager.clone(), over.clone());
        tasks.spawn(async move {
            sleep(READ / 4 * task as u32).await;
            let mut turns = Vec::new();
            while !over.load(SeqCst) {
                let asked = now();
                let request = manager.lock(KEY).mode(LockMode::Read).ttl(LONG).wait(LONG);
                let guard = request.acquire().await.expect("its turn comes");
                let began = now();
                sleep(READ).await;
                turns.push(Turn { task, asked, began, ended: now() });
                guard.release().await.expect("it was held");
            }
            turns
        });
    }
    data.run::<()>(&["SADD", "reads", &std::process::id().to_string()]);
    while data.get("over").is_none() {
        sleep(REST).await;
    }
    over.store(true, SeqCst);
    let mut bytes = Vec::new();
    while let Some(turns) = tasks.join_next().await {
        for Turn { task, asked, began, ended } in turns.expect("no panic") {
            [task, asked, began, ended]
                .iter()
                .for_each(|number| bytes.extend(number.to_le_bytes()));
        }
    }
    let file = PathBuf::from(std::env::var_os(READS).expect("a file's name"));
    let part = file.with_extension("part");
    fs::write(&part, bytes).and_then(|()| fs::rename(part, file)).expect("written");
    // Until it is killed.
    std::future::pending().await
}

fn turns(file: &std::path::Path, process: u64) -> Vec<Turn> {
    let bytes = fs::read(file).expect("what a process has read");
    fs::remove_file(file).expect("its own file");
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let turn = |bytes: &[u8]| {
        let [task, asked, began, ended] = [0, 8, 16, 24].map(|at| number(&bytes[at..at + 8]));
        Turn { task: process * TASKS + task, asked, began, ended }
    };
    bytes.chunks_exact(32).map(turn).collect()
}

fn judge(name: &str, seen: &Seen, report: &mut Report) {
    let trip = percentile(&seen.pings, 0.99);
    report.figure(
        format!("{name}: PING"),
        format!("p50 {:.1?}  p99 {trip:.1?}", percentile(&seen.pings, 0.5)),
    );
    report.figure(format!("{name}: reads"), seen.reads.len());
    let (mut waited, mut past, mut late, mut apart) = (vec![], vec![], vec![], vec![]);
    for write in &seen.writes {
        let beside =
            seen.reads.iter().any(|read| read.began < write.ended && read.ended > write.began);
        report.violated_if(beside, format!("{name}: a reader was beside a writer"));
        let in_its_way: Vec<_> = seen
            .reads
            .iter()
            .filter(|read| read.began < write.began && read.ended > write.asked)
            .collect();
        let stands = seen.told.iter().find(|at| (write.asked..write.began).contains(at));
        let (Some(stands), false) = (stands, in_its_way.is_empty()) else { continue };
        let longest = in_its_way.iter().map(|read| between(read.began, read.ended)).max();
        waited.push(between(write.asked, write.began));
        past.push(between(*stands, write.began).saturating_sub(longest.unwrap_or_default()));
        let last = in_its_way.iter().map(|read| read.began).max().unwrap_or_default();
        late.push(between(*stands, last));
        apart.extend(spread(write, &seen.reads));
    }
    report.violated_if(waited.is_empty(), format!("{name}: no writer stood behind readers"));
    report.spread(&format!("{name}: a writer waited"), waited, LONG);
    report.spread(
        &format!("{name}: from its place to its turn, without the longest read"),
        past,
        2 * trip,
    );
    report.spread(&format!("{name}: from its place until the last reader began"), late, trip);
    report.spread(&format!("{name}: first to last of the readers behind it"), apart, TOGETHER);
}

/// From the first to the last of those that stood behind a writer.
fn spread(write: &Turn, reads: &[Turn]) -> Option<Duration> {
    let stood = |read: &&Turn| {
        (write.asked..write.ended.saturating_sub(STOOD)).contains(&read.asked)
            && read.began >= write.ended
    };
    let behind: Vec<_> = reads.iter().filter(stood).map(|read| read.began).collect();
    let (first, last) = (behind.iter().min()?, behind.iter().max()?);
    (behind.len() > 1).then(|| between(*first, *last))
}
