//! `distlock run`: a command under a lock.
//!
//! Signal handlers first, then the lock, a last look whether a signal came, then the command; it ends
//! before the lease does, and then the lock is released. The command is started, signalled and ended by
//! a [guardian] process, which goes on doing so if this one cannot.

mod command;
mod environment;
mod guardian;
pub(crate) mod options;
mod processes;
mod signals;
mod tree;
mod wire;

use std::pin::pin;
use std::time::Duration;

use distlock::{LockError, LockGuard, LockManager, LockMode};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::isatty;

use self::command::Guarded;
use self::guardian::Charge;
use self::options::RunOptions;
use self::signals::Signals;
use self::wire::{Ending, Instant, Order, Report};
use crate::exit;
use crate::failure::{Failure, describe};
use crate::messages::Say;
use crate::store::{Named, StoreOptions};
use crate::text::{quoted, rounded};

/// How long this program stays to see a release confirmed, or a place in a queue left.
const FAREWELL: Duration = Duration::from_millis(500);
/// How often the guardian hears that the lease goes on, at least.
const TELL: Duration = Duration::from_millis(500);
/// How long past the end of a lease a guardian is given that does not do its work.
const PATIENCE: Duration = Duration::from_millis(50);

/// The exit code, if this process is to be a guardian.
pub(crate) fn guard() -> Option<u8> {
    Charge::given().map(guardian::main)
}

/// Runs the command; the exit code.
pub(crate) fn run(store: &StoreOptions, options: &RunOptions) -> u8 {
    let say = Say { volume: options.volume, json: options.json };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(life(store, options, &say)),
        Err(error) => Err(Failure::own(error)),
    };
    outcome.unwrap_or_else(|Failure { text, code }| {
        say.error("failed", &text, &[("exit_code", code.into())]);
        code
    })
}

async fn life(store: &StoreOptions, options: &RunOptions, say: &Say) -> Result<u8, Failure> {
    let foreground = options.foreground || isatty(std::io::stdin());
    let mut signals = Signals::catch(foreground).map_err(Failure::own)?;
    let grace = grace(options)?;
    let store = Named::of(store)?;
    if options.keys.iter().any(|key| key.contains(['\n', '\r'])) {
        return Err(Failure::usage("a key must not contain a line break"));
    }
    if !store.is_shared() {
        say.note("memory", "memory:// locks within one process: nobody else sees this lock", &[]);
    }
    let run = Run { store, options, say, grace, foreground };
    let longest = options.min_hold.map_or(options.ttl, |min_hold| min_hold.max(options.ttl));
    let connected = run.store.builder(longest).connect();
    let manager = match run.unless_ended(&mut signals, connected).await {
        Ok(connected) => connected?,
        Err(signal) => return Ok(run.ended_by(signal)),
    };
    let names = environment::names(&manager, &run.options.keys)?;
    environment::check_nesting(&run.store, &names)?;
    let acquired = match run.unless_ended(&mut signals, run.acquire(&manager)).await {
        Ok(acquired) => acquired,
        Err(signal) => {
            // The place in the queue is left in the background.
            manager.close(FAREWELL).await;
            return Ok(run.ended_by(signal));
        }
    };
    let guard = match acquired {
        Ok(guard) => guard,
        Err(LockError::Busy { lease_remaining, .. }) => {
            if !options.wait.is_zero() {
                // As above: the waiter behind it must not find it there.
                manager.close(FAREWELL).await;
            }
            return Ok(run.busy(lease_remaining));
        }
        Err(error) => return Err(error.into()),
    };
    let code = run.under(&guard, &names, &mut signals).await;
    run.release(guard, &manager).await;
    code
}

/// How long the command has between TERM and KILL.
fn grace(options: &RunOptions) -> Result<Duration, Failure> {
    const USUAL: Duration = Duration::from_secs(5);
    let lease = options.max_hold.map_or(options.ttl, |max_hold| max_hold.min(options.ttl));
    match options.grace {
        // It would be ended as soon as it has begun, or at the first renewal that is late.
        Some(grace) if grace >= lease / 2 => Err(Failure::usage(format!(
            "--grace: {} is too long; it must be less than half of the ttl{}, so give a longer --ttl or \
             a shorter --grace",
            humantime::format_duration(grace),
            options.max_hold.map_or("", |_| " (and of --max-hold)"),
        ))),
        Some(grace) => Ok(grace),
        None => Ok(USUAL.min(lease / 4)),
    }
}

/// One run.
struct Run<'a> {
    store: Named,
    options: &'a RunOptions,
    say: &'a Say,
    grace: Duration,
    foreground: bool,
}

impl Run<'_> {
    /// What comes of `work`, or the signal that ended this before.
    async fn unless_ended<T>(
        &self,
        signals: &mut Signals,
        work: impl Future<Output = T>,
    ) -> Result<T, Signal> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Signal::TSTP => drop(kill_process(getpid(), Signal::STOP)),
                    signal if signals::ends(signal) => return Err(signal),
                    _ => {}
                },
                done = &mut work => return Ok(done),
            }
        }
    }

    async fn acquire(&self, manager: &LockManager) -> Result<LockGuard, LockError> {
        let RunOptions { keys, shared, permits, wait, ttl, name, min_hold, max_hold, .. } =
            self.options;
        let name = name.clone().unwrap_or_else(|| "distlock run".to_owned());
        let request = match &keys[..] {
            [key] => manager.lock(key),
            keys => manager.lock_all(keys),
        };
        let mut request = request.ttl(*ttl).wait(*wait).name(name);
        if *shared {
            request = request.mode(LockMode::Read);
        }
        if let Some(permits) = permits {
            request = request.permits(*permits);
        }
        if let Some(min_hold) = min_hold {
            request = request.min_hold(*min_hold);
        }
        if let Some(max_hold) = max_hold {
            request = request.max_hold(*max_hold);
        }
        if !wait.is_zero() {
            self.say.detail("waiting", &format!("taking {}", self.keys()), &[self.field()]);
        }
        request.acquire().await
    }

    /// Runs the command under the lock; the exit code.
    async fn under(
        &self,
        lock: &LockGuard,
        names: &[String],
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let token = lock.fencing_token();
        let text = format!("holds {}, fencing token {token}", self.keys());
        self.say.detail("acquired", &text, &[self.field(), ("fencing_token", token.into())]);
        let charge = Charge {
            foreground: self.foreground,
            grace: self.grace,
            kills: self.options.grace.is_some(),
            command: self.options.command.clone(),
        };
        let environment = environment::of_command(&self.store, &self.options.keys, names, token);
        let mut command = Guarded::prepare(&charge, environment).map_err(|error| Failure {
            text: format!("its guardian process cannot be started: {error}"),
            code: match error.kind() {
                // It has the arguments of the command.
                std::io::ErrorKind::ArgumentListTooLong => exit::NOT_EXECUTABLE,
                _ => exit::FAILED,
            },
        })?;
        // A signal that came before this must not find a command afterwards. One that comes now is
        // passed on behind the order to start.
        while let Some(signal) = signals.pending().await {
            if signals::ends(signal) {
                return Ok(self.ended_by(signal));
            }
        }
        command.order(&Order::Start(self.until(lock)));
        self.watch(lock, &mut command, signals).await
    }

    /// Keeps the guardian informed until the command has ended; the exit code.
    async fn watch(
        &self,
        lock: &LockGuard,
        command: &mut Guarded,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let mut lost = pin!(lock.lost());
        let mut is_lost = false;
        let mut until = self.until(lock);
        let held_by = self.options.max_hold.map(|most| Instant::now().after(most));
        loop {
            let tell = (self.options.ttl / 20).clamp(Duration::from_millis(10), TELL);
            tokio::select! {
                report = command.report() => match report {
                    Some(Report::Ended(ending, by_guardian)) => {
                        return Ok(self.ended(ending, by_guardian.then_some(until), held_by));
                    }
                    Some(Report::Started(_)) => {}
                    Some(Report::Denied) => self.denied(),
                    Some(Report::NotStarted(code, why)) => return Err(Failure { text: why, code }),
                    None if command.has_started() => return Err(self.unguarded(command).await),
                    None => return self.never_started(command, signals).await,
                },
                signal = signals.next() => command.order(&Order::Signal(signal)),
                () = &mut lost, if !is_lost => {
                    is_lost = true;
                    self.lost(command);
                }
                () = tokio::time::sleep(tell) => {}
            }
            let now_until = self.until(lock);
            if !is_lost && now_until != until {
                until = now_until;
                command.order(&Order::Until(until));
            }
            if until.after(PATIENCE).is_past() {
                // The guardian should have seen to it: it is stopped, perhaps.
                let all = command.kill_all().await;
                return Err(self.overdue(all));
            }
        }
    }

    /// Until when the command may run.
    fn until(&self, lock: &LockGuard) -> Instant {
        if !self.options.end_on_loss {
            return Instant::NEVER;
        }
        // Read before what is left, so that it is not too late.
        let now = Instant::now();
        now.after(lock.remaining())
    }

    /// Printed once, because from here on the command decides what happens to the lock.
    fn denied(&self) {
        let text = format!(
            "the command runs as another user, or a process of it does: it cannot be signalled; {} is kept until it \
             ends, as long as the lease can be renewed",
            self.keys()
        );
        self.say.error("not_permitted", &text, &[self.field()]);
    }

    fn lost(&self, command: &Guarded) {
        if self.options.end_on_loss {
            return command.order(&Order::End);
        }
        let text = format!("the lease of {} was lost; the command goes on", self.keys());
        self.say.error("lost", &text, &[self.field()]);
    }

    /// The command has ended, because its lease was to end at `due` if that is given; the exit code. It may have
    /// the lock until `most`.
    fn ended(&self, ending: Ending, due: Option<Instant>, most: Option<Instant>) -> u8 {
        if let Some(due) = due {
            // Counted from a little later than the lease is.
            let is_most = most.is_some_and(|most| due.after(Duration::from_secs(1)) >= most);
            let why = match self.options.max_hold.filter(|_| is_most) {
                Some(most) => {
                    let most = humantime::format_duration(most);
                    format!("{} was held for {most}, as --max-hold says", self.keys())
                }
                None => format!("the lease of {} was lost", self.keys()),
            };
            let text = format!("{why}; the command was ended");
            self.say.error("lost", &text, &[self.field(), ("exit_code", exit::LOST.into())]);
            return exit::LOST;
        }
        let code = match ending {
            Ending::Code(code) => code,
            Ending::Signal(signal) => exit::signalled(signal),
        };
        let text = match ending {
            Ending::Code(code) => format!("the command ended with exit code {code}"),
            Ending::Signal(signal) => format!("the command was ended by signal {signal}"),
        };
        self.say.detail("ended", &text, &[self.field(), ("exit_code", code.into())]);
        code
    }

    /// The guardian has ended without having started anything.
    async fn never_started(&self, command: &Guarded, signals: &mut Signals) -> Result<u8, Failure> {
        match signals.pending().await {
            // In a terminal it may have reached a guardian that was not ready for it.
            Some(signal) if signals::ends(signal) => Ok(self.ended_by(signal)),
            _ => Err(self.unguarded(command).await),
        }
    }

    /// The guardian is gone, and the command with it.
    async fn unguarded(&self, command: &Guarded) -> Failure {
        let all = command.kill_all().await;
        let what = if all { "the command was ended" } else { "the command cannot be ended" };
        let text = format!("its guardian process was killed; {what}");
        Failure { text, code: exit::FAILED }
    }

    fn overdue(&self, all: bool) -> Failure {
        let what = if all { "was ended" } else { "cannot be ended" };
        let text = format!("the lease of {} was lost; the command {what}", self.keys());
        Failure { text, code: exit::LOST }
    }

    async fn release(&self, lock: LockGuard, manager: &LockManager) {
        match lock.release().await {
            Ok(()) => {
                let text = format!("released {}", self.keys());
                self.say.detail("released", &text, &[self.field()]);
            }
            // What a command did that ended by itself stands.
            Err(LockError::Lost { reason, .. }) => {
                let text = format!("{} was lost: {reason}", self.keys());
                self.say.note("found_lost", &text, &[self.field()]);
            }
            Err(error) => {
                let text = format!(
                    "{} is free after its ttl ({}): its release was not confirmed: {}",
                    self.keys(),
                    humantime::format_duration(self.options.ttl),
                    describe(&error),
                );
                self.say.note("release_unconfirmed", &text, &[self.field()]);
                manager.close(FAREWELL).await;
            }
        }
    }

    /// The lock is held elsewhere; the exit code.
    fn busy(&self, rest: Option<Duration>) -> u8 {
        let code = if self.options.skip_if_held { exit::OK } else { self.options.busy_code };
        let mut text = match self.options.permits {
            Some(permits @ 2..) => format!("all {permits} permits of {} are taken", self.keys()),
            _ => format!("{} is held elsewhere", self.keys()),
        };
        if let Some(rest) = rest {
            text += &format!("; the lease runs for another {}", rounded(rest));
        }
        if self.options.skip_if_held {
            text += "; skipped";
        } else if self.options.wait.is_zero() {
            text += " (--wait DURATION waits for it)";
        } else {
            text += &format!(" (waited {})", humantime::format_duration(self.options.wait));
        }
        self.say.note("busy", &text, &[self.field(), ("exit_code", code.into())]);
        code
    }

    /// A signal came before the command was started; the exit code.
    fn ended_by(&self, signal: Signal) -> u8 {
        let code = exit::signalled(signal.as_raw());
        let text = format!("ended by signal {} before the command was started", signal.as_raw());
        self.say.detail("signal", &text, &[self.field(), ("exit_code", code.into())]);
        code
    }

    fn keys(&self) -> String {
        let keys: Vec<String> = self.options.keys.iter().map(|key| quoted(key)).collect();
        keys.join(", ")
    }

    fn field(&self) -> (&'static str, serde_json::Value) {
        ("keys", self.options.keys.clone().into())
    }
}
