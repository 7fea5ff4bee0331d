//! Readers, writers and permits in processes that are killed, stopped and cut off, at a server that is stopped
//! and killed: no writer has a lock together with anybody else, no more hold it than the limit of any of them
//! allows, no key of a lock is without an expiry at any time, and nothing is left.

mod caller;
mod witness;

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use distlock_testkit::{Fork, LONG, Mode, Proxy, RedisServer, fork_self, in_fork};

use crate::effort::{Dice, Effort};
use crate::report::Report;

const NAME: &str = "shapes";
const PROCESSES: u64 = 8;
/// A stop or cut of the network lasts for less: longer than a lease and shorter than it, in turns.
const LONGEST: u64 = 2500;
/// Answers every key that lives for ever.
const ENDLESS: &str = "
local endless = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    if redis.call('PTTL', key) == -1 then endless[#endless + 1] = key end
end
return endless";

/// Runs it; an effort of times counts faults. The child processes come in here, too, and do not return.
pub async fn run(effort: Effort) -> Report {
    if in_fork() {
        caller::run().await;
    }
    tokio::task::spawn_blocking(move || Storm::new().all(effort)).await.expect("no panic")
}

/// A process that calls, and the network between it and the server.
struct Place {
    child: Fork,
    proxy: Proxy,
    /// When it goes on, if it is stopped.
    stopped_until: Option<Instant>,
    /// When its network is well again.
    cut_until: Option<Instant>,
}

/// What happened how often.
#[derive(Default)]
struct Counts {
    killed: u64,
    stopped: u64,
    cut: u64,
    server_stopped: u64,
    server_killed: u64,
    looks: u64,
}

struct Storm {
    /// Where the locks are: it is stopped and killed, and keeps its data.
    server: RedisServer,
    /// What tells the processes that it is over; nothing happens to it.
    board: RedisServer,
    /// Where they note what they saw.
    notes: PathBuf,
    places: Vec<Place>,
    started: u64,
    dice: Dice,
    counts: Counts,
    server_until: Option<Instant>,
    report: Report,
}

impl Storm {
    fn new() -> Self {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let notes = format!("distlock-soak-{}-{count}", std::process::id());
        let notes = std::env::temp_dir().join(notes);
        fs::create_dir(&notes).expect("a directory for notes");
        let (places, counts, report) = (Vec::new(), Counts::default(), Report::default());
        let server = RedisServer::builder().durable().start();
        let board = RedisServer::start();
        let (started, dice, server_until) = (0, Dice(13), None);
        Self { server, board, notes, places, started, dice, counts, server_until, report }
    }

    fn all(mut self, effort: Effort) -> Report {
        for _ in 0..PROCESSES {
            let proxy = Proxy::to(self.server.addr());
            let child = self.start(&proxy);
            self.places.push(Place { child, proxy, stopped_until: None, cut_until: None });
        }
        let all_work = self.board_shows(|board| board.cli::<u64>(&["LLEN", "ready"]) >= PROCESSES);
        self.report.violated_if(!all_work, "the processes do not begin");
        let (begun, mut faults) = (Instant::now(), 0);
        while effort.goes_on(faults, begun) && self.report.violations().is_empty() {
            let next = Instant::now() + Duration::from_millis(20 + self.dice.below(300));
            while Instant::now() < next {
                thread::sleep(Duration::from_millis(10));
                self.mend(false);
                self.look();
            }
            self.fault();
            faults += 1;
        }
        let took = begun.elapsed();
        self.mend(true);
        self.end();
        self.judge(took);
        let _ = fs::remove_dir_all(&self.notes);
        self.report
    }

    fn start(&mut self, proxy: &Proxy) -> Fork {
        self.started += 1;
        let number = self.started.to_string();
        let notes = self.notes.join(&number);
        let (url, board) = (self.server.url_at(proxy.addr()), self.board.url());
        let env = [
            ("DISTLOCK_URL", &*url),
            ("SOAK_BOARD", &*board),
            ("SOAK_NOTES", notes.to_str().expect("a plain path")),
            ("SOAK_NUMBER", &*number),
        ];
        fork_self(NAME, &env)
    }

    /// One thing goes wrong.
    fn fault(&mut self) {
        let place = self.dice.below(PROCESSES) as usize;
        let while_ = Duration::from_millis(50 + self.dice.below(LONGEST));
        let until = Some(Instant::now() + while_);
        match self.dice.below(20) {
            0..3 => self.kill(place),
            3..9 if self.places[place].stopped_until.is_none() => {
                self.places[place].child.stop();
                self.places[place].stopped_until = until;
                self.counts.stopped += 1;
            }
            9 if self.server_until.is_none() => {
                self.server.stop();
                self.server_until = until;
                self.counts.server_stopped += 1;
            }
            10 if self.server_until.is_none() => {
                self.server.kill9();
                self.server.restart();
                self.counts.server_killed += 1;
            }
            _ => {
                let mode = match self.dice.below(6) {
                    0 => Mode::Freeze,
                    1 => Mode::FreezeExisting,
                    2 => Mode::DropUp,
                    3 => Mode::DropDown,
                    4 => Mode::Reset,
                    _ => Mode::Delay(Duration::from_millis(self.dice.below(400))),
                };
                self.places[place].proxy.set(mode);
                self.places[place].cut_until = until;
                self.counts.cut += 1;
            }
        }
    }

    /// `kill -9`, stopped or not, and another process in its place.
    fn kill(&mut self, place: usize) {
        let proxy = Proxy::to(self.server.addr());
        let child = self.start(&proxy);
        let new = Place { child, proxy, stopped_until: None, cut_until: None };
        let old = std::mem::replace(&mut self.places[place], new);
        old.child.kill9();
        self.counts.killed += 1;
    }

    /// What is over ends, or `all` of it.
    fn mend(&mut self, all: bool) {
        let now = Instant::now();
        let over =
            |until: &mut Option<Instant>| until.take_if(|until| all || *until <= now).is_some();
        for place in &mut self.places {
            if over(&mut place.stopped_until) {
                place.child.cont();
            }
            if over(&mut place.cut_until) {
                place.proxy.set(Mode::Pass);
            }
        }
        if over(&mut self.server_until) {
            self.server.cont();
        }
    }

    /// No key of a lock is without an expiry.
    fn look(&mut self) {
        if self.server_until.is_some() {
            return;
        }
        let endless: Vec<String> = self.server.cli(&["EVAL", ENDLESS, "0"]);
        let of_lock = |key: &&String| key.contains(":lock:") || key.contains(":queue:");
        let endless: Vec<_> = endless.iter().filter(of_lock).collect();
        self.report.violated_if(!endless.is_empty(), format!("without an expiry: {endless:?}"));
        self.counts.looks += 1;
    }

    fn board_shows(&self, shown: impl Fn(&RedisServer) -> bool) -> bool {
        let start = Instant::now();
        while !shown(&self.board) {
            if start.elapsed() > 2 * LONG {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Nothing goes wrong any more: every process has each lock once more, and leaves nothing.
    fn end(&mut self) {
        self.board.cli::<()>(&["SET", "over", "1"]);
        let done = self.board_shows(|board| board.cli::<u64>(&["SCARD", "done"]) >= PROCESSES);
        self.report.violated_if(!done, "a process did not have every lock in the end");
        let errors: Vec<String> = self.board.cli(&["LRANGE", "errors", "0", "-1"]);
        for error in errors {
            self.report.violated_if(true, error);
        }
        self.places.clear();
        let start = Instant::now();
        let mut left = self.server.lock_keys();
        while !left.is_empty() && start.elapsed() < LONG {
            self.look();
            thread::sleep(Duration::from_millis(20));
            left = self.server.lock_keys();
        }
        self.report.violated_if(!left.is_empty(), format!("left behind: {left:?}"));
    }

    fn judge(&mut self, took: Duration) {
        let counts = std::mem::take(&mut self.counts);
        let report = &mut self.report;
        report.figure("took", format!("{took:.1?}"));
        report.figure("processes killed", counts.killed);
        report.figure("processes stopped", counts.stopped);
        report.figure("networks cut, frozen or slow", counts.cut);
        report.figure("server stopped", counts.server_stopped);
        report.figure("server killed, back with its data", counts.server_killed);
        report.figure("looks at every key's expiry", counts.looks);
        witness::judge(&self.notes, report);
    }
}
