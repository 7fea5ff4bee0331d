//! `distlock run`: a command under a lock.
//!
//! 1. Install the signal handlers.
//! 2. Acquire the lock.
//! 3. Check whether a signal has arrived, and start the command.
//! 4. End the command before the lease ends.
//! 5. Release the lock.
//!
//! A [guardian] process starts, signals and ends the command, and continues if this process cannot.

mod command;
mod environment;
mod guardian;
mod platform;
mod processes;
mod signals;
mod tree;
mod wire;

use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use distlock::{LockError, LockGuard, LockManager, LockMode};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::isatty;

use self::command::GuardedCommand;
use self::guardian::GuardianArguments;
use self::signals::Signals;
use self::wire::{BootInstant, CommandExit, GuardianOrder, GuardianReport};
use crate::exit::{self, Failure, describe};
use crate::messages::{Reporter, Verbosity};
use crate::store::{StoreConfig, StoreOptions};
use crate::text::{quoted, rounded};

/// At the end, wait this long until the store has confirmed a release, or the removal of a waiter.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest interval of messages to the guardian about the end of the lease.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// After the end of a lease, wait this long before taking over from the guardian.
const PATIENCE: Duration = Duration::from_millis(50);

/// Runs the guardian, if this process is one, and returns its exit code.
pub(crate) fn guard() -> Option<u8> {
    GuardianArguments::from_args().map(guardian::main)
}

/// The options of `distlock run`.
pub(crate) struct RunOptions {
    pub(crate) keys: Vec<String>,
    pub(crate) command: Vec<OsString>,
    pub(crate) shared: bool,
    pub(crate) permits: Option<u32>,
    pub(crate) wait: Duration,
    pub(crate) ttl: Duration,
    pub(crate) busy_code: u8,
    pub(crate) skip_if_held: bool,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) end_on_loss: bool,
    pub(crate) foreground: bool,
    pub(crate) name: Option<String>,
    pub(crate) verbosity: Verbosity,
    pub(crate) json: bool,
}

/// Runs the command, and returns the exit code.
pub(crate) fn run(store: &StoreOptions, options: &RunOptions) -> u8 {
    let reporter = Reporter { verbosity: options.verbosity, json: options.json };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(lock_and_run(store, options, &reporter)),
        Err(error) => Err(Failure::internal(error)),
    };
    outcome.unwrap_or_else(|Failure { text, code }| {
        reporter.error("failed", &text, &[("exit_code", code.into())]);
        code
    })
}

async fn lock_and_run(
    store: &StoreOptions,
    options: &RunOptions,
    reporter: &Reporter,
) -> Result<u8, Failure> {
    let foreground = options.foreground || isatty(std::io::stdin());
    let mut signals = Signals::catch(foreground).map_err(Failure::internal)?;
    let grace = grace(options)?;
    let store = StoreConfig::resolve(store)?;
    if options.keys.iter().any(|key| key.contains(['\n', '\r'])) {
        return Err(Failure::usage("a key must not contain a line break"));
    }
    if !store.is_shared() {
        reporter.note(
            "memory",
            "memory:// locks within one process: nobody else sees this lock",
            &[],
        );
    }
    let run = Run { store, options, reporter, grace, foreground };
    let longest = options.min_hold.map_or(options.ttl, |min_hold| min_hold.max(options.ttl));
    let connected = run.store.builder(longest).connect();
    let manager = match run.unless_signalled(&mut signals, connected).await {
        Ok(connected) => connected?,
        Err(signal) => return Ok(run.ended_by(signal)),
    };
    let names = environment::names(&manager, &run.options.keys)?;
    environment::check_nesting(&run.store, &names)?;
    let acquired = match run.unless_signalled(&mut signals, run.acquire(&manager)).await {
        Ok(acquired) => acquired,
        Err(signal) => {
            // The manager removes the waiter from the queue in the background.
            manager.close(CLOSE_TIMEOUT).await;
            return Ok(run.ended_by(signal));
        }
    };
    let guard = match acquired {
        Ok(guard) => guard,
        Err(LockError::Busy { lease_remaining, .. }) => {
            if !options.wait.is_zero() {
                // As above, so that the next waiter does not have to wait for this one.
                manager.close(CLOSE_TIMEOUT).await;
            }
            return Ok(run.busy(lease_remaining));
        }
        Err(error) => return Err(error.into()),
    };
    let code = run.run_under(&guard, &names, &mut signals).await;
    run.release(guard, &manager).await;
    code
}

/// Returns the time between TERM and KILL.
fn grace(options: &RunOptions) -> Result<Duration, Failure> {
    const USUAL: Duration = Duration::from_secs(5);
    let lease = options.max_hold.map_or(options.ttl, |max_hold| max_hold.min(options.ttl));
    match options.grace {
        // The command would be ended at its start, or at the first late renewal.
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

/// One run of a command under a lock.
struct Run<'a> {
    store: StoreConfig,
    options: &'a RunOptions,
    reporter: &'a Reporter,
    grace: Duration,
    foreground: bool,
}

impl Run<'_> {
    /// Returns the result of `work`, or the signal that ended this process before.
    async fn unless_signalled<T>(
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
            self.reporter.detail("waiting", &format!("taking {}", self.keys()), &[self.field()]);
        }
        request.acquire().await
    }

    /// Runs the command under the lock, and returns the exit code.
    async fn run_under(
        &self,
        lock: &LockGuard,
        names: &[String],
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let token = lock.fencing_token();
        let text = format!("holds {}, fencing token {token}", self.keys());
        self.reporter.detail("acquired", &text, &[self.field(), ("fencing_token", token.into())]);
        let arguments = GuardianArguments {
            foreground: self.foreground,
            grace: self.grace,
            kills: self.options.grace.is_some(),
            command: self.options.command.clone(),
        };
        let environment = environment::of_command(&self.store, &self.options.keys, names, token);
        let mut command =
            GuardedCommand::prepare(&arguments, environment).map_err(|error| Failure {
                text: format!("its guardian process cannot be started: {error}"),
                code: match error.kind() {
                    // The arguments of the guardian contain those of the command.
                    std::io::ErrorKind::ArgumentListTooLong => exit::NOT_EXECUTABLE,
                    _ => exit::FAILED,
                },
            })?;
        // A signal that arrived before this point must not start the command. A later one is forwarded after the order
        // to start.
        while let Some(signal) = signals.pending().await {
            if signals::ends(signal) {
                return Ok(self.ended_by(signal));
            }
        }
        command.order(&GuardianOrder::Start(self.until(lock)));
        self.supervise(lock, &mut command, signals).await
    }

    /// Keeps the guardian informed until the command has ended, and returns the exit code.
    async fn supervise(
        &self,
        lock: &LockGuard,
        command: &mut GuardedCommand,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let mut lost = pin!(lock.lost());
        let mut is_lost = false;
        let mut until = self.until(lock);
        let held_by = self.options.max_hold.map(|most| BootInstant::now().after(most));
        loop {
            let interval =
                (self.options.ttl / 20).clamp(Duration::from_millis(10), REPORT_INTERVAL);
            tokio::select! {
                report = command.report() => match report {
                    Some(GuardianReport::Ended(exit, by_guardian)) => {
                        return Ok(self.ended(exit, by_guardian.then_some(until), held_by));
                    }
                    Some(GuardianReport::Started(_)) => {}
                    Some(GuardianReport::Denied) => self.denied(),
                    Some(GuardianReport::NotStarted(code, why)) => return Err(Failure { text: why, code }),
                    None if command.has_started() => return Err(self.unguarded(command).await),
                    None => return self.never_started(command, signals).await,
                },
                signal = signals.next() => command.order(&GuardianOrder::Signal(signal)),
                () = &mut lost, if !is_lost => {
                    is_lost = true;
                    self.lost(command);
                }
                () = tokio::time::sleep(interval) => {}
            }
            let now_until = self.until(lock);
            if !is_lost && now_until != until {
                until = now_until;
                command.order(&GuardianOrder::Until(until));
            }
            if until.after(PATIENCE).is_past() {
                // The guardian has not ended the command, so it may be stopped.
                let is_gone = command.kill_all().await;
                return Err(self.overdue(is_gone));
            }
        }
    }

    /// Returns the time until which the command may run.
    fn until(&self, lock: &LockGuard) -> BootInstant {
        if !self.options.end_on_loss {
            return BootInstant::NEVER;
        }
        // Reads the clock before the remaining time, so that the result is not too late.
        let now = BootInstant::now();
        now.after(lock.remaining())
    }

    /// Warns once that the command cannot be signalled, because from now on it decides how long the lock is held.
    fn denied(&self) {
        let text = format!(
            "the command runs as another user, or a process of it does: it cannot be signalled; {} is kept until it \
             ends, as long as the lease can be renewed",
            self.keys()
        );
        self.reporter.error("not_permitted", &text, &[self.field()]);
    }

    fn lost(&self, command: &GuardedCommand) {
        if self.options.end_on_loss {
            return command.order(&GuardianOrder::End);
        }
        let text = format!("the lease of {} was lost; the command goes on", self.keys());
        self.reporter.error("lost", &text, &[self.field()]);
    }

    /// Reports the end of the command, and returns the exit code. If `due` is given, the guardian ended the command because
    /// its lease was to end then; `--max-hold` allowed it to hold the lock until `most`.
    fn ended(&self, exit: CommandExit, due: Option<BootInstant>, most: Option<BootInstant>) -> u8 {
        if let Some(due) = due {
            // `most` is counted from a little later than the lease.
            let is_most = most.is_some_and(|most| due.after(Duration::from_secs(1)) >= most);
            let why = match self.options.max_hold.filter(|_| is_most) {
                Some(most) => {
                    let most = humantime::format_duration(most);
                    format!("{} was held for {most}, as --max-hold says", self.keys())
                }
                None => format!("the lease of {} was lost", self.keys()),
            };
            let text = format!("{why}; the command was ended");
            self.reporter.error("lost", &text, &[self.field(), ("exit_code", exit::LOST.into())]);
            return exit::LOST;
        }
        let code = match exit {
            CommandExit::Code(code) => code,
            CommandExit::Signal(signal) => exit::signalled(signal),
        };
        let text = match exit {
            CommandExit::Code(code) => format!("the command ended with exit code {code}"),
            CommandExit::Signal(signal) => format!("the command was ended by signal {signal}"),
        };
        self.reporter.detail("ended", &text, &[self.field(), ("exit_code", code.into())]);
        code
    }

    /// Handles a guardian that ended before it started the command.
    async fn never_started(
        &self,
        command: &GuardedCommand,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        match signals.pending().await {
            // In a terminal the signal may have ended a guardian that had no handlers yet.
            Some(signal) if signals::ends(signal) => Ok(self.ended_by(signal)),
            _ => Err(self.unguarded(command).await),
        }
    }

    /// Kills the command after the guardian was killed.
    async fn unguarded(&self, command: &GuardedCommand) -> Failure {
        let is_gone = command.kill_all().await;
        let what = if is_gone { "the command was ended" } else { "the command cannot be ended" };
        let text = format!("its guardian process was killed; {what}");
        Failure { text, code: exit::FAILED }
    }

    fn overdue(&self, is_gone: bool) -> Failure {
        let what = if is_gone { "was ended" } else { "cannot be ended" };
        let text = format!("the lease of {} was lost; the command {what}", self.keys());
        Failure { text, code: exit::LOST }
    }

    async fn release(&self, lock: LockGuard, manager: &LockManager) {
        match lock.release().await {
            Ok(()) => {
                let text = format!("released {}", self.keys());
                self.reporter.detail("released", &text, &[self.field()]);
            }
            // The command has ended by itself, so its result stands.
            Err(LockError::Lost { reason, .. }) => {
                let text = format!("{} was lost: {reason}", self.keys());
                self.reporter.note("found_lost", &text, &[self.field()]);
            }
            Err(error) => {
                let text = format!(
                    "{} is free after its ttl ({}): its release was not confirmed: {}",
                    self.keys(),
                    humantime::format_duration(self.options.ttl),
                    describe(&error),
                );
                self.reporter.note("release_unconfirmed", &text, &[self.field()]);
                manager.close(CLOSE_TIMEOUT).await;
            }
        }
    }

    /// Reports that the lock is held elsewhere, and returns the exit code.
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
        self.reporter.note("busy", &text, &[self.field(), ("exit_code", code.into())]);
        code
    }

    /// Reports a signal that arrived before the command was started, and returns the exit code.
    fn ended_by(&self, signal: Signal) -> u8 {
        let code = exit::signalled(signal.as_raw());
        let text = format!("ended by signal {} before the command was started", signal.as_raw());
        self.reporter.detail("signal", &text, &[self.field(), ("exit_code", code.into())]);
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
