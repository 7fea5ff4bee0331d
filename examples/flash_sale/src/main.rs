//! A flash sale: many buyers, a limited stock, and a shop that reads, waits and writes.
//!
//! ```sh
//! cargo run -p flash_sale
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run -p flash_sale --features redis
//! ```
//!
//! The sale is held twice: without the lock, where buyers overwrite each other's writes and more is
//! sold than there is, and with `#[redis_lock]` on the same code. The stock is a file. Without
//! `DISTLOCK_URL` all buyers are in this process and the locks in its memory; with it, the buyers are in
//! several processes and the locks on that Redis server.
//!
//! Options: `--stock 1000`, `--workers 200` (of all processes together), `--processes 4` (with
//! `DISTLOCK_URL`).
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockManager, redis_lock};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What happens between reading the stock and writing it: a payment, say.
const PAYMENT: Duration = Duration::from_millis(1);

/// Marks a process as one of several and says whether it uses the lock.
const ROLE: &str = "FLASH_SALE_ROLE";
/// Tells it which sale to join.
const SALE: &str = "FLASH_SALE_NAME";

/// Sells one unit unless nothing is left. Between its read and its write others may have sold the
/// same unit.
async fn sell(shop: &Shop) -> Result<bool, Error> {
    let left = shop.stock()?;
    if left == 0 {
        return Ok(false);
    }
    tokio::time::sleep(PAYMENT).await;
    shop.set_stock(left - 1)?;
    Ok(true)
}

/// The same, one buyer at a time, over all tasks and processes.
#[redis_lock(key = "sale:{shop.name}", ttl = "5s", wait = "2m")]
async fn sell_locked(shop: &Shop) -> Result<bool, Error> {
    sell(shop).await
}

/// Where the stock is kept and sales are counted: a folder that every process of the sale can reach.
#[derive(Clone)]
struct Shop {
    name: String,
    folder: PathBuf,
}

impl Shop {
    fn open(name: String) -> Self {
        Self { folder: std::env::temp_dir().join(format!("flash-sale-{name}")), name }
    }

    fn stock(&self) -> Result<u64, Error> {
        Ok(fs::read_to_string(self.folder.join("stock"))?.parse()?)
    }

    /// A new file takes the place of the old one, so that nobody reads half a number.
    fn set_stock(&self, units: u64) -> Result<(), Error> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let name = format!("stock-{}-{}", std::process::id(), FILES.fetch_add(1, SeqCst));
        let new = self.folder.join(name);
        fs::write(&new, units.to_string())?;
        Ok(fs::rename(new, self.folder.join("stock"))?)
    }

    /// Counts a unit that was handed over: a byte at the end of a file, so that this figure is the truth
    /// whether there is a lock or not.
    fn count(&self) -> Result<(), Error> {
        Ok(File::options().append(true).open(self.folder.join("sold"))?.write_all(b".")?)
    }

    fn sold(&self) -> Result<u64, Error> {
        Ok(fs::metadata(self.folder.join("sold"))?.len())
    }

    fn prepare(&self, units: u64) -> Result<(), Error> {
        fs::create_dir_all(&self.folder)?;
        File::create(self.folder.join("sold"))?;
        self.set_stock(units)
    }

    fn clear(&self) -> Result<(), Error> {
        Ok(fs::remove_dir_all(&self.folder)?)
    }
}

struct Options {
    url: Option<String>,
    stock: u64,
    workers: u64,
    processes: u64,
}

impl Options {
    fn read() -> Result<Self, Error> {
        let url = std::env::var("DISTLOCK_URL").ok().filter(|url| url != "memory://");
        let mut options = Self { url, stock: 1000, workers: 200, processes: 4 };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let value = args.next().and_then(|value| value.parse().ok()).filter(|&n| n > 0);
            match (name.as_str(), value) {
                ("--stock", Some(n)) => options.stock = n,
                ("--workers", Some(n)) => options.workers = n,
                ("--processes", Some(n)) => options.processes = n,
                _ => return Err("options: --stock N, --workers N, --processes N".into()),
            }
        }
        if options.url.is_none() {
            options.processes = 1;
        }
        Ok(options)
    }

    /// What each buyer would like to have: at least twice the stock in all.
    fn wish(&self) -> u64 {
        (2 * self.stock).div_ceil(self.workers)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let options = Options::read()?;
    distlock::init(match &options.url {
        Some(url) => LockManager::connect(url).await?,
        None => LockManager::in_memory(),
    })?;
    if let (Ok(role), Ok(sale)) = (std::env::var(ROLE), std::env::var(SALE)) {
        let shop = Shop::open(sale);
        println!("ready");
        // All processes start together: when the parent closes this pipe.
        std::io::stdin().read_line(&mut String::new())?;
        work(&shop, role == "locked", &options).await?;
        return Ok(ExitCode::SUCCESS);
    }

    let place = match options.url {
        Some(_) => format!("{} processes, locks in Redis", options.processes),
        None => "one process, locks in memory".into(),
    };
    println!("Flash sale: {} units, {} buyers", options.stock, options.workers);
    println!("({place})\n");
    let without = hold_sale(&options, false).await?;
    let with = hold_sale(&options, true).await?;
    report(&options, &without, &with);
    Ok(if with.sold == options.stock { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Outcome {
    sold: u64,
    took: Duration,
}

/// One whole sale, with a line that shows how far it is.
async fn hold_sale(options: &Options, locked: bool) -> Result<Outcome, Error> {
    let name = format!("{}-{locked}", std::process::id());
    let shop = Shop::open(name);
    shop.prepare(options.stock)?;
    let mut processes = Vec::new();
    if options.url.is_some() {
        for _ in 0..options.processes {
            processes.push(start_process(&shop, locked).await?);
        }
    }
    let start = Instant::now();
    let work = async {
        if processes.is_empty() {
            return work(&shop, locked, options).await;
        }
        for process in &mut processes {
            drop(process.stdin.take());
        }
        for process in &mut processes {
            if !process.wait().await?.success() {
                return Err(Error::from("one of the processes failed"));
            }
        }
        Ok(())
    };
    let mut progress = Progress::new(if locked { "with the lock" } else { "without the lock" });
    let show = async {
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tick.tick().await;
            progress.show(shop.sold()?, options.stock);
        }
    };
    tokio::select! {
        done = work => done?,
        failed = show => return failed,
    }
    let outcome = Outcome { sold: shop.sold()?, took: start.elapsed() };
    progress.end(outcome.sold, options.stock);
    shop.clear()?;
    Ok(outcome)
}

/// This program once more; returns when it is ready to start.
async fn start_process(shop: &Shop, locked: bool) -> Result<Child, Error> {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args().skip(1))
        .env(ROLE, if locked { "locked" } else { "free" })
        .env(SALE, &shop.name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no output of a child process")?;
    match BufReader::new(stdout).lines().next_line().await? {
        Some(line) if line == "ready" => Ok(child),
        _ => Err("a child process could not start".into()),
    }
}

/// This process's share of the buyers. Each buys until it has what it wants or nothing is left.
async fn work(shop: &Shop, locked: bool, options: &Options) -> Result<(), Error> {
    let mut buyers = JoinSet::new();
    for _ in 0..options.workers.div_ceil(options.processes) {
        let (shop, wish) = (shop.clone(), options.wish());
        buyers.spawn(async move {
            for _ in 0..wish {
                let got = if locked { sell_locked(&shop).await? } else { sell(&shop).await? };
                if !got {
                    break;
                }
                shop.count()?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(buyer) = buyers.join_next().await {
        buyer??;
    }
    Ok(())
}

/// A line that is written over on a terminal, and now and then a line in a log.
struct Progress {
    what: &'static str,
    terminal: bool,
    shown: Option<Instant>,
}

impl Progress {
    fn new(what: &'static str) -> Self {
        Self { what, terminal: std::io::stdout().is_terminal(), shown: None }
    }

    fn show(&mut self, sold: u64, stock: u64) {
        if self.terminal {
            print!("\r{}\x1b[K", self.line(sold, stock));
            // A terminal that went away is no reason to stop the sale.
            let _ = std::io::stdout().flush();
        } else if self.shown.is_none_or(|shown| shown.elapsed() > Duration::from_secs(2)) {
            println!("{}", self.line(sold, stock));
            self.shown = Some(Instant::now());
        }
    }

    fn end(&self, sold: u64, stock: u64) {
        let back = if self.terminal { "\r\x1b[K" } else { "" };
        println!("{back}{}", self.line(sold, stock));
    }

    fn line(&self, sold: u64, stock: u64) -> String {
        const WIDTH: u64 = 30;
        let full = (sold * WIDTH / stock).min(WIDTH) as usize;
        let bar = "█".repeat(full) + &"░".repeat(WIDTH as usize - full);
        format!("  {:<17} {bar} {sold:>6} sold", self.what)
    }
}

fn report(options: &Options, without: &Outcome, with: &Outcome) {
    println!("\n  {:<17} {:>8} {:>8} {:>10} {:>8}", "", "stock", "sold", "oversold", "time");
    for (what, outcome) in [("without the lock", without), ("with the lock", with)] {
        let oversold = outcome.sold.saturating_sub(options.stock);
        let (sold, seconds) = (outcome.sold, outcome.took.as_secs_f64());
        println!("  {what:<17} {:>8} {sold:>8} {oversold:>10} {seconds:>6.1} s", options.stock);
    }
    println!();
    if with.sold != options.stock {
        println!("With the lock exactly the stock must be sold: please report this.");
    }
}
