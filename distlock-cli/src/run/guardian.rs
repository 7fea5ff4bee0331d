//! The guardian: a process between the tool and the command.
//!
//! The tool holds the lock, and the guardian ends the command when the lease is about to end, whatever
//! has become of the tool: it may be killed, stopped or stuck. It knows until when the lease runs as
//! the tool told it last, and notices the end of the tool by the end of the socket between them.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, wait};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::signal::unix::{SignalKind, signal};

use super::signals::{self, Signals};
use super::tree::Tree;
use super::wire::{Ending, Instant, Order, Report};
use crate::exit;
use crate::text::quoted;

/// The hidden command that makes this program a guardian.
pub(super) const COMMAND: &str = "__guard";
/// How long a command has to end once its lease is no longer renewed: short, as it is to be gone within a
/// second on a machine that was so busy that the tool was killed.
const ORPHANED: Duration = Duration::from_millis(100);
/// Clocks that stand still while the machine is suspended are not trusted for longer.
const LONGEST_NAP: Duration = Duration::from_millis(250);
/// How often processes are looked for that are to end.
const LOOK: Duration = Duration::from_millis(20);
/// The same signal again, from whomever, is the same event within this time.
const SAME: Duration = Duration::from_millis(100);

/// What a guardian is started with.
pub(super) struct Charge {
    /// The command stays in the process group of the tool.
    pub(super) foreground: bool,
    pub(super) grace: Duration,
    /// The command is killed when it has gone on for that long after a TERM that was passed on.
    pub(super) kills: bool,
    pub(super) command: Vec<OsString>,
}

impl Charge {
    /// As arguments of this program.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let place = if self.foreground { "foreground" } else { "background" };
        let grace = self.grace.as_millis().to_string();
        let then = if self.kills { "kill" } else { "wait" };
        let first = [COMMAND.into(), place.into(), grace.into(), then.into()];
        first.into_iter().chain(self.command.iter().cloned()).collect()
    }

    /// From the arguments of this process; `None` if it is to be no guardian.
    pub(super) fn given() -> Option<Self> {
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

/// The life of a guardian, up to its exit code.
pub(super) fn main(charge: Charge) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.and_then(|runtime| runtime.block_on(guard(charge)));
    match outcome {
        Ok(()) => exit::OK,
        Err(error) => {
            crate::messages::plain(&format!("the guardian failed: {error}"));
            exit::FAILED
        }
    }
}

async fn guard(charge: Charge) -> io::Result<()> {
    // Standard input is the socket to the tool, over which the command's standard input comes.
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdin = receive(&socket)?;
    socket.set_nonblocking(true)?;
    // Not the runtime's: that writes only once it has seen that there is room.
    let reports = socket.try_clone()?;
    let mut orders = BufReader::new(tokio::net::UnixStream::from_std(socket)?).lines();
    let report = |report: Report| {
        // The tool may be gone.
        let _ = (&reports).write(report.line().as_bytes());
    };
    let children = signal(SignalKind::child())?;
    let signals = Signals::catch(false)?;
    // Orphans of the command come to this process, where they are found.
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let until = loop {
        match orders.next_line().await?.as_deref().map(Order::parse) {
            Some(Some(Order::Start(until))) => break until,
            Some(_) => {}
            None => return Ok(()),
        }
    };
    let leader = match start(&charge, stdin) {
        Ok(leader) => leader,
        Err((code, why)) => {
            report(Report::NotStarted(code, why));
            return Ok(());
        }
    };
    report(Report::Started(leader));
    let tree = Tree { leader, own_group: !charge.foreground, root: getpid() };
    let mut watch = Watch::new(tree, &charge, until);
    let (ending, lost) = watch.stand(orders, children, signals, &report).await;
    report(Report::Ended(ending, lost));
    Ok(())
}

/// A file descriptor that comes over the socket.
fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    recvmsg(socket, &mut bytes, &mut buffer, flags)?;
    let files = buffer.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.ok_or_else(|| io::Error::other("the tool sent no standard input"))
}

/// Starts the command, or says why not, with the exit code for that.
fn start(charge: &Charge, stdin: OwnedFd) -> Result<Pid, (u8, String)> {
    let Some((program, arguments)) = charge.command.split_first() else {
        return Err((exit::NOT_FOUND, "no command".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(stdin));
    if !charge.foreground {
        command.process_group(0);
    }
    match command.spawn() {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(error) => Err(not_started(&program.to_string_lossy(), &error)),
    }
}

/// The exit code of a command that could not be started, and why in one line.
fn not_started(program: &str, error: &io::Error) -> (u8, String) {
    /// Of what the system can execute it is nothing.
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

/// What a guardian knows of its command.
struct Watch {
    tree: Tree,
    grace: Duration,
    /// What does not end at a TERM is killed after the grace.
    kills: bool,
    /// The end of the lease, as far as the tool is known to have it.
    until: Instant,
    /// How the command itself ended.
    ended: Option<Ending>,
    /// When what is left of it is killed.
    kill_at: Option<Instant>,
    /// The number of attempts to kill the command.
    kills_sent: u32,
    /// A process of the command runs as another user, so it cannot be signalled.
    denied: bool,
    /// It is ended because of the lease.
    lost: bool,
    /// It was asked to end, so that its other processes are to end too.
    asked: bool,
    /// What was passed on last, and when.
    passed_on: Option<(Signal, Instant)>,
    /// What this process itself was sent last.
    received: Option<(Signal, Instant)>,
    /// What the tool was sent, and when it is known whether that reached the command as well.
    in_question: Option<(Signal, Instant)>,
}

impl Watch {
    fn new(tree: Tree, charge: &Charge, until: Instant) -> Self {
        Self {
            tree,
            grace: charge.grace,
            kills: charge.kills,
            until,
            ended: None,
            kill_at: None,
            kills_sent: 0,
            denied: false,
            lost: false,
            asked: false,
            passed_on: None,
            received: None,
            in_question: None,
        }
    }

    /// Returns when the command has ended, and with it what has to end with it.
    async fn stand(
        &mut self,
        mut orders: Lines<BufReader<tokio::net::UnixStream>>,
        mut children: tokio::signal::unix::Signal,
        mut signals: Signals,
        report: &impl Fn(Report),
    ) -> (Ending, bool) {
        let mut tool_lives = true;
        let mut is_told = false;
        loop {
            self.reap();
            if self.ended.is_some() {
                // What reached the command may have reached this process too.
                while let Some(signal) = signals.pending().await {
                    self.received(signal);
                }
            }
            self.keep_time();
            if self.denied && !is_told {
                is_told = true;
                report(Report::Denied);
            }
            if let Some(ending) = self.over() {
                return (ending, self.lost);
            }
            tokio::select! {
                biased;
                signal = signals.next() => self.received(signal),
                _ = children.recv() => {}
                order = orders.next_line(), if tool_lives => match order {
                    Ok(Some(line)) => self.obey(Order::parse(&line)),
                    Ok(None) | Err(_) => {
                        tool_lives = false;
                        // The lease is no longer renewed.
                        self.end(Instant::now().after(ORPHANED));
                    }
                },
                () = tokio::time::sleep(self.nap()) => {}
            }
        }
    }

    fn obey(&mut self, order: Option<Order>) {
        match order {
            Some(Order::Until(until)) => self.until = until,
            Some(Order::Signal(signal)) => {
                if !self.tree.own_group && is_of_terminals(signal) {
                    // The terminal sends it to the whole group, this process included. That has
                    // happened by now, but may not have been seen.
                    self.in_question = Some((signal, Instant::now().after(LOOK)));
                } else {
                    self.pass_on(signal);
                }
            }
            Some(Order::End) => self.end(Instant::now().after(self.grace)),
            Some(Order::Start(_)) | None => {}
        }
    }

    /// A signal that was sent to this process.
    fn received(&mut self, signal: Signal) {
        self.received = Some((signal, Instant::now()));
        if self.tree.own_group || !is_of_terminals(signal) {
            self.pass_on(signal);
        } else {
            self.asked |= signals::asks_to_end(signal);
        }
    }

    /// A terminal's signal of which only the tool may have heard.
    fn pass_on_unless_received(&mut self) {
        let Some((signal, _)) = self.in_question.take_if(|(_, at)| at.is_past()) else { return };
        let recently = |(got, at): (Signal, Instant)| got == signal && !at.after(SAME).is_past();
        if !self.received.is_some_and(recently) {
            self.pass_on(signal);
        }
    }

    /// A signal to all processes of this name (`pkill`) reaches both the tool and its guardian.
    fn pass_on(&mut self, signal: Signal) {
        let recently = |(sent, at): (Signal, Instant)| sent == signal && !at.after(SAME).is_past();
        if !self.passed_on.is_some_and(recently) {
            self.passed_on = Some((signal, Instant::now()));
            self.asked |= signals::asks_to_end(signal);
            if self.kills && signal == Signal::TERM {
                self.kill_at.get_or_insert_with(|| Instant::now().after(self.grace));
            }
            self.send(signal);
        }
    }

    fn send(&mut self, signal: Signal) {
        self.denied |= self.tree.signal(signal).is_err();
    }

    /// The command must be gone by then.
    fn end(&mut self, kill_at: Instant) {
        self.lost = true;
        match self.kill_at {
            Some(earlier) => self.kill_at = Some(earlier.min(kill_at)),
            None => {
                self.kill_at = Some(kill_at);
                self.send(Signal::TERM);
                // What is stopped cannot end.
                self.send(Signal::CONT);
            }
        }
    }

    fn keep_time(&mut self) {
        self.pass_on_unless_received();
        if self.ended.is_some() && self.asked && self.kill_at.is_none() {
            self.kill_at = Some(Instant::now().after(self.grace));
        }
        if self.until.before(self.grace).is_past() {
            // Before the lease ends: killing takes time, too, and more of it on a machine that is in
            // such trouble that its renewals fail.
            let spare = (self.grace / 2).min(Duration::from_secs(1));
            self.end(self.until.before(spare));
        }
        if self.kill_at.is_some_and(Instant::is_past) {
            self.denied |= self.tree.kill().is_err();
            self.kills_sent = self.kills_sent.saturating_add(1);
        }
    }

    /// How long until something is due that no event announces.
    fn nap(&self) -> Duration {
        if self.kills_sent > 0 {
            // A process that is still alive hangs in the kernel, or belongs to another user.
            return (LOOK * self.kills_sent.min(u32::from(u8::MAX))).min(LONGEST_NAP);
        }
        let next = match self.kill_at {
            Some(at) => at,
            None => self.until.before(self.grace),
        };
        let is_soon = self.ended.is_some() || self.in_question.is_some();
        let longest = if is_soon { LOOK } else { LONGEST_NAP };
        next.left().clamp(Duration::from_millis(1), longest)
    }

    /// Collects the processes that have ended.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid != self.tree.leader {
                continue;
            }
            self.ended = ending(status);
            // The signal may have been meant for the whole command.
            let signal = status.terminating_signal().and_then(Signal::from_named_raw);
            self.asked |= signal.is_some_and(signals::ends);
        }
    }

    /// How the command ended, if no process is left that has to end with it. A command that ends by itself
    /// may leave a daemon; one that was asked to end is over with its last process.
    fn over(&mut self) -> Option<Ending> {
        let ending = self.ended?;
        // Reap processes that have ended since, so that none stays a zombie.
        self.reap();
        if self.kill_at.is_some() && !self.tree.is_gone() {
            return None;
        }
        Some(ending)
    }
}

/// Whether a terminal sends it to all processes in its foreground.
fn is_of_terminals(signal: Signal) -> bool {
    [Signal::INT, Signal::QUIT, Signal::HUP, Signal::TSTP].contains(&signal)
}

fn ending(status: WaitStatus) -> Option<Ending> {
    let code = status.exit_status().map(|code| Ending::Code(u8::try_from(code).unwrap_or(u8::MAX)));
    code.or_else(|| status.terminating_signal().map(Ending::Signal))
}
