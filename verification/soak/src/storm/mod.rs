//! Readers, writers and permits in processes that are killed, stopped and cut off, at a server that is stopped,
//! and killed with and without its data: no writer shares a lock, no more hold it than
//! the limit of any of them allows, fencing tokens grow, nothing of a lock is stored for ever, each process
//! gets every lock in the end, and nothing is left. The same for [every store](Exposed).

mod caller;
mod exposed;
mod witness;

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use distlock_testkit::{Fork, LONG, Mode, Proxy, RedisServer, fork_self, in_fork};

use crate::effort::{Dice, Effort};
use crate::report::Report;
use crate::stamp::now;
pub use exposed::Exposed;
pub use witness::Kind;
use witness::Loss;

/// As long as it goes by default.
pub const WHILE: Effort = Effort::Time(Duration::from_secs(60));
const PROCESSES: u64 = 8;

/// Runs it over a store; an effort of times counts faults. The child processes come in here, too, by that name,
/// and do not return.
pub async fn run<S: Exposed>(name: &'static str, effort: Effort, seed: u64) -> Report {
    if in_fork() {
        caller::run().await;
    }
    let storm = move || Storm::<S>::new(name, seed).all(effort);
    tokio::task::spawn_blocking(storm).await.expect("no panic")
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

struct Storm<S> {
    /// By which the processes find their way in.
    name: &'static str,
    /// Where the locks are: it is stopped and killed.
    server: S,
    /// Where the processes learn that it is over; it suffers no faults.
    board: RedisServer,
    /// Where they note what they saw.
    notes: PathBuf,
    places: Vec<Place>,
    started: u64,
    dice: Dice,
    counts: Counts,
    server_until: Option<Instant>,
    losses: Vec<Loss>,
    report: Report,
}

impl<S: Exposed> Storm<S> {
    fn new(name: &'static str, seed: u64) -> Self {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let notes = format!("distlock-soak-{}-{count}", std::process::id());
        let notes = std::env::temp_dir().join(notes);
        fs::create_dir(&notes).expect("a directory for notes");
        let (places, counts, report) = (Vec::new(), Counts::default(), Report::default());
        let (server, board) = (S::lasting(), RedisServer::start());
        let (started, dice, server_until, losses) = (0, Dice(seed), None, Vec::new());
        Self {
            name,
            server,
            board,
            notes,
            places,
            started,
            dice,
            counts,
            server_until,
            losses,
            report,
        }
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
        let ttl = S::TTL.as_millis().to_string();
        let env = [
            ("DISTLOCK_URL", &*url),
            ("SOAK_TTL", &*ttl),
            ("SOAK_BOARD", &*board),
            ("SOAK_NOTES", notes.to_str().expect("a plain path")),
            ("SOAK_NUMBER", &*number),
        ];
        fork_self(self.name, &env)
    }

    /// One thing goes wrong.
    fn fault(&mut self) {
        let place = self.dice.below(PROCESSES) as usize;
        // Longer than a lease and shorter than it, in turns.
        let longest = 3 * S::TTL.as_millis() as u64;
        let while_ = Duration::from_millis(50 + self.dice.below(longest));
        let until = Some(Instant::now() + while_);
        match self.dice.below(20) {
            0..3 => self.kill(place),
            3..9 if self.places[place].stopped_until.is_none() => {
                self.places[place].child.stop();
                self.places[place].stopped_until = until;
                self.counts.stopped += 1;
            }
            9 if self.server_until.is_none() => {
                self.server.freeze();
                self.server_until = until;
                self.counts.server_stopped += 1;
            }
            10 if self.server_until.is_none() => {
                self.server.crash();
                self.counts.server_killed += 1;
            }
            11 if self.server_until.is_none() && self.dice.below(2) == 0 => {
                let from = now();
                self.server.crash_empty();
                self.losses.push(Loss { from, to: now() });
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
            self.server.thaw();
        }
    }

    /// Nothing of a lock is stored for ever.
    fn look(&mut self) {
        if self.server_until.is_some() {
            return;
        }
        let endless = self.server.endless();
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
        let mut left = self.server.live();
        while !left.is_empty() && start.elapsed() < LONG {
            self.look();
            thread::sleep(Duration::from_millis(20));
            left = self.server.live();
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
        report.figure("server killed, and its data lost", self.losses.len());
        report.figure("looks at what is stored", counts.looks);
        witness::judge::<S>(&self.notes, &self.losses, report);
    }
}
