//! The guardian: a process between the tool and the command.
//!
//! The tool holds the lock. The guardian ends the command when the lease is about to end, even if the tool is killed,
//! stopped or stuck. The tool keeps it informed of the end of the lease, and the guardian notices the end of the tool
//! because the socket between them closes.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, recvmsg};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, wait};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::signal::unix::{SignalKind, signal};

use super::platform;
use super::signals::{self, Signals};
use super::tree::ProcessTree;
use super::wire::{BootInstant, CommandExit, GuardianOrder, GuardianReport};
use crate::exit;
use crate::messages;
use crate::text::quoted;

/// The hidden command that makes this program a guardian.
pub(super) const COMMAND: &str = "__guard";
/// The time that a command has to end once the tool is gone. It is short, because the command should be gone within a
/// second even on an overloaded machine.
const ORPHANED: Duration = Duration::from_millis(100);
/// The longest sleep between two looks at the clock, because timers stand still while the machine is suspended.
const LONGEST_NAP: Duration = Duration::from_millis(250);
/// The interval of looks for processes that have to end.
const LOOK: Duration = Duration::from_millis(20);
/// Within this time, the same signal again is the same event, whoever sent it.
const SAME: Duration = Duration::from_millis(100);

/// The arguments of a guardian.
pub(super) struct GuardianArguments {
    /// Whether the command stays in the process group of the tool.
    pub(super) foreground: bool,
    pub(super) grace: Duration,
    /// Whether the command is killed if it still runs after the grace period that a forwarded TERM starts.
    pub(super) kills: bool,
    pub(super) command: Vec<OsString>,
}

impl GuardianArguments {
    /// Formats them as arguments of this program.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let group = if self.foreground { "foreground" } else { "background" };
        let grace = self.grace.as_millis().to_string();
        let then = if self.kills { "kill" } else { "wait" };
        let first = [COMMAND.into(), group.into(), grace.into(), then.into()];
        first.into_iter().chain(self.command.iter().cloned()).collect()
    }

    /// Parses the arguments of this process. `None` if it is not a guardian.
    pub(super) fn from_args() -> Option<Self> {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next()? != COMMAND {
            return None;
        }
        let foreground = arguments.next()? == "foreground";
        let grace = Duration::from_millis(arguments.next()?.to_str()?.parse().ok()?);
        let kills = arguments.next()? == "kill";
        Some(Self { foreground, grace, kills, command: arguments.collect() })
    }
}

/// Runs the guardian, and returns its exit code.
pub(super) fn main(arguments: GuardianArguments) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.and_then(|runtime| runtime.block_on(guard(arguments)));
    match outcome {
        Ok(()) => exit::OK,
        Err(error) => {
            messages::plain(&format!("the guardian failed: {error}"));
            exit::FAILED
        }
    }
}

async fn guard(arguments: GuardianArguments) -> io::Result<()> {
    // The standard input of the guardian is the socket to the tool, which sends the command's standard input over it.
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdin = receive_file(&socket)?;
    socket.set_nonblocking(true)?;
    // Not a socket of the runtime, which writes only after it has seen that there is room.
    let reports = socket.try_clone()?;
    let mut orders = BufReader::new(tokio::net::UnixStream::from_std(socket)?).lines();
    let report = |report: GuardianReport| {
        // Ignores errors, because the tool may be gone.
        let _ = (&reports).write(report.line().as_bytes());
    };
    let children = signal(SignalKind::child())?;
    let signals = Signals::catch(false)?;
    // This process adopts orphans of the command, and can find them.
    platform::adopt_orphans()?;
    let until = loop {
        match orders.next_line().await?.as_deref().map(GuardianOrder::parse) {
            Some(Some(GuardianOrder::Start(until))) => break until,
            Some(_) => {}
            None => return Ok(()),
        }
    };
    let leader = match start(&arguments, stdin) {
        Ok(leader) => leader,
        Err((code, why)) => {
            report(GuardianReport::NotStarted(code, why));
            return Ok(());
        }
    };
    report(GuardianReport::Started(leader));
    let tree = ProcessTree { leader, own_group: !arguments.foreground, root: getpid() };
    let mut supervisor = Supervisor::new(tree, &arguments, until);
    let (exit, lost) = supervisor.run(orders, children, signals, &report).await;
    report(GuardianReport::Ended(exit, lost));
    Ok(())
}

/// Receives a file descriptor over the socket.
fn receive_file(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut bytes, &mut buffer, platform::RECEIVE_FLAGS)?;
    let files = buffer.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.ok_or_else(|| io::Error::other("the tool sent no standard input"))
}

/// Starts the command. The error is the exit code and the reason.
fn start(arguments: &GuardianArguments, stdin: OwnedFd) -> Result<Pid, (u8, String)> {
    let Some((program, program_arguments)) = arguments.command.split_first() else {
        return Err((exit::NOT_FOUND, "no command".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(program_arguments).stdin(Stdio::from(stdin));
    if !arguments.foreground {
        command.process_group(0);
    }
    match command.spawn() {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(error) => Err(not_started(&program.to_string_lossy(), &error)),
    }
}

/// Returns the exit code for a command that could not be started, and the reason in one line.
fn not_started(program: &str, error: &io::Error) -> (u8, String) {
    /// ENOEXEC: the file has no format that the system can execute.
    const NO_FORMAT: i32 = 8;
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let hint = match error.raw_os_error() {
        Some(NO_FORMAT) => "; a script begins with a line such as #!/bin/sh",
        _ if code == exit::NOT_FOUND && !program.contains('/') => " in $PATH",
        _ => "",
    };
    (code, format!("{}: {text}{hint}", quoted(program)))
}

/// The supervisor of one command.
struct Supervisor {
    tree: ProcessTree,
    grace: Duration,
    /// Whether a command that does not end at a TERM is killed after the grace period.
    kills: bool,
    /// The end of the lease, as the tool last reported it.
    until: BootInstant,
    /// The exit of the command itself.
    exited: Option<CommandExit>,
    /// The time to kill the remaining processes.
    kill_at: Option<BootInstant>,
    /// The number of attempts to kill the command.
    kills_sent: u32,
    /// Whether a process of the command runs as another user and cannot be signalled.
    denied: bool,
    /// Whether the command is ended because of the lease.
    lost: bool,
    /// Whether the command was asked to end, so that all of its processes have to end.
    asked_to_end: bool,
    /// The last signal that was forwarded, and when.
    forwarded: Option<(Signal, BootInstant)>,
    /// The last signal to this process, and when.
    received: Option<(Signal, BootInstant)>,
    /// A signal to the tool, and the time when this process knows whether the command received it, too.
    unconfirmed: Option<(Signal, BootInstant)>,
}

impl Supervisor {
    fn new(tree: ProcessTree, arguments: &GuardianArguments, until: BootInstant) -> Self {
        Self {
            tree,
            grace: arguments.grace,
            kills: arguments.kills,
            until,
            exited: None,
            kill_at: None,
            kills_sent: 0,
            denied: false,
            lost: false,
            asked_to_end: false,
            forwarded: None,
            received: None,
            unconfirmed: None,
        }
    }

    /// Returns when the command has ended, with all processes that have to end with it.
    async fn run(
        &mut self,
        mut orders: Lines<BufReader<tokio::net::UnixStream>>,
        mut children: tokio::signal::unix::Signal,
        mut signals: Signals,
        report: &impl Fn(GuardianReport),
    ) -> (CommandExit, bool) {
        let mut tool_lives = true;
        let mut is_denial_reported = false;
        loop {
            self.reap();
            if self.exited.is_some() {
                // A signal that reached the command may have reached this process, too.
                while let Some(signal) = signals.pending().await {
                    self.received(signal);
                }
            }
            self.check_deadlines();
            if self.denied && !is_denial_reported {
                is_denial_reported = true;
                report(GuardianReport::Denied);
            }
            if let Some(exit) = self.finished() {
                return (exit, self.lost);
            }
            tokio::select! {
                biased;
                signal = signals.next() => self.received(signal),
                _ = children.recv() => {}
                order = orders.next_line(), if tool_lives => match order {
                    Ok(Some(line)) => self.obey(GuardianOrder::parse(&line)),
                    Ok(None) | Err(_) => {
                        tool_lives = false;
                        // Nobody renews the lease any more.
                        self.end(BootInstant::now().after(ORPHANED));
                    }
                },
                () = tokio::time::sleep(self.nap()) => {}
            }
        }
    }

    fn obey(&mut self, order: Option<GuardianOrder>) {
        match order {
            Some(GuardianOrder::Until(until)) => self.until = until,
            Some(GuardianOrder::Signal(signal)) => {
                if !self.tree.own_group && is_from_terminal(signal) {
                    // The terminal has sent it to the whole group with this process, but the signal may not have
                    // been seen yet.
                    self.unconfirmed = Some((signal, BootInstant::now().after(LOOK)));
                } else {
                    self.forward(signal);
                }
            }
            Some(GuardianOrder::End) => self.end(BootInstant::now().after(self.grace)),
            Some(GuardianOrder::Start(_)) | None => {}
        }
    }

    /// Handles a signal to this process.
    fn received(&mut self, signal: Signal) {
        self.received = Some((signal, BootInstant::now()));
        if self.tree.own_group || !is_from_terminal(signal) {
            self.forward(signal);
        } else {
            self.asked_to_end |= signals::asks_to_end(signal);
        }
    }

    /// Forwards a terminal's signal if only the tool received it.
    fn forward_unless_received(&mut self) {
        let Some((signal, _)) = self.unconfirmed.take_if(|(_, at)| at.is_past()) else { return };
        let recently =
            |(received, at): (Signal, BootInstant)| received == signal && !at.after(SAME).is_past();
        if !self.received.is_some_and(recently) {
            self.forward(signal);
        }
    }

    /// Forwards a signal once: `pkill` sends it to all processes of this name, both to the tool and to its guardian.
    fn forward(&mut self, signal: Signal) {
        let recently =
            |(sent, at): (Signal, BootInstant)| sent == signal && !at.after(SAME).is_past();
        if !self.forwarded.is_some_and(recently) {
            self.forwarded = Some((signal, BootInstant::now()));
            self.asked_to_end |= signals::asks_to_end(signal);
            if self.kills && signal == Signal::TERM {
                self.kill_at.get_or_insert_with(|| BootInstant::now().after(self.grace));
            }
            self.send(signal);
        }
    }

    fn send(&mut self, signal: Signal) {
        self.denied |= self.tree.signal(signal).is_err();
    }

    /// Ends the command, which has to be gone by this time.
    fn end(&mut self, kill_at: BootInstant) {
        self.lost = true;
        match self.kill_at {
            Some(earlier) => self.kill_at = Some(earlier.min(kill_at)),
            None => {
                self.kill_at = Some(kill_at);
                self.send(Signal::TERM);
                // A stopped process cannot end.
                self.send(Signal::CONT);
            }
        }
    }

    fn check_deadlines(&mut self) {
        self.forward_unless_received();
        if self.exited.is_some() && self.asked_to_end && self.kill_at.is_none() {
            self.kill_at = Some(BootInstant::now().after(self.grace));
        }
        if self.until.before(self.grace).is_past() {
            // Kills before the lease ends, because that takes time, and more of it on a machine so overloaded that its
            // renewals fail.
            let spare = (self.grace / 2).min(Duration::from_secs(1));
            self.end(self.until.before(spare));
        }
        if self.kill_at.is_some_and(BootInstant::is_past) {
            self.denied |= self.tree.kill().is_err();
            self.kills_sent = self.kills_sent.saturating_add(1);
        }
    }

    /// Returns the time until the next deadline, which no event announces.
    fn nap(&self) -> Duration {
        if self.kills_sent > 0 {
            // A process that survives hangs in the kernel, or belongs to another user.
            return (LOOK * self.kills_sent.min(u32::from(u8::MAX))).min(LONGEST_NAP);
        }
        let next = match self.kill_at {
            Some(at) => at,
            None => self.until.before(self.grace),
        };
        let is_soon = self.exited.is_some() || self.unconfirmed.is_some();
        let longest = if is_soon { LOOK } else { LONGEST_NAP };
        next.left().clamp(Duration::from_millis(1), longest)
    }

    /// Collects the processes that have ended.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid != self.tree.leader {
                continue;
            }
            self.exited = command_exit(status);
            // The signal may have been meant for the whole command.
            let signal = status.terminating_signal().and_then(Signal::from_named_raw);
            self.asked_to_end |= signal.is_some_and(signals::ends);
        }
    }

    /// Returns the exit of the command, if no process is left that has to end with it. A command that ends by itself may
    /// leave a daemon; one that was asked to end has finished with its last process.
    fn finished(&mut self) -> Option<CommandExit> {
        let exit = self.exited?;
        // Reap processes that have ended since, so that none stays a zombie.
        self.reap();
        if self.kill_at.is_some() && !self.tree.is_gone() {
            return None;
        }
        Some(exit)
    }
}

/// Whether a terminal sends the signal to all processes in its foreground.
fn is_from_terminal(signal: Signal) -> bool {
    [Signal::INT, Signal::QUIT, Signal::HUP, Signal::TSTP].contains(&signal)
}

fn command_exit(status: WaitStatus) -> Option<CommandExit> {
    let code =
        status.exit_status().map(|code| CommandExit::Code(u8::try_from(code).unwrap_or(u8::MAX)));
    code.or_else(|| status.terminating_signal().map(CommandExit::Signal))
}
