//! The command, which this program controls through a guardian.

use std::ffi::OsString;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};

use super::guardian::GuardianArguments;
use super::platform;
use super::tree::ProcessTree;
use super::wire::{GuardianOrder, GuardianReport};
use crate::store::HIDDEN_URL;

/// A command with its guardian.
pub(super) struct GuardedCommand {
    /// Not a socket of the runtime, which writes only after it has seen that there is room.
    orders: UnixStream,
    reports: Lines<BufReader<tokio::net::UnixStream>>,
    guardian: Pid,
    own_group: bool,
    leader: Option<Pid>,
}

impl GuardedCommand {
    /// Starts the guardian, which waits for the order to start the command.
    pub(super) fn prepare(
        arguments: &GuardianArguments,
        environment: Vec<(&'static str, OsString)>,
    ) -> io::Result<Self> {
        // If the guardian is killed, this process adopts its children and can find them.
        platform::adopt_orphans()?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(this_program()?);
        command.arg0("distlock").args(arguments.to_args()).envs(environment);
        command.env_remove(HIDDEN_URL);
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        if !arguments.foreground {
            // Keeps signals to the group of this process from the guardian.
            command.process_group(0);
        }
        let guardian = Pid::from_child(&command.spawn()?);
        send_stdin(&ours)?;
        ours.set_nonblocking(true)?;
        let orders = ours.try_clone()?;
        let reports = BufReader::new(tokio::net::UnixStream::from_std(ours)?).lines();
        Ok(Self { orders, reports, guardian, own_group: !arguments.foreground, leader: None })
    }

    /// Sends an order to the guardian. Ignores errors: other checks notice a guardian that is stopped or gone.
    pub(super) fn order(&self, order: &GuardianOrder) {
        let _ = (&self.orders).write(order.line().as_bytes());
    }

    /// Returns the next report; `None` if the guardian is gone. Cancel safe.
    pub(super) async fn report(&mut self) -> Option<GuardianReport> {
        loop {
            let line = self.reports.next_line().await.ok().flatten()?;
            if let Some(report) = GuardianReport::parse(&line) {
                if let GuardianReport::Started(leader) = report {
                    self.leader = Some(leader);
                }
                return Some(report);
            }
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.leader.is_some()
    }

    /// Kills the guardian and the command. Returns whether no process is left.
    pub(super) async fn kill_all(&self) -> bool {
        let _ = kill_process(self.guardian, Signal::KILL);
        let leader = self.leader.unwrap_or(self.guardian);
        let own_group = self.own_group && self.leader.is_some();
        ProcessTree { leader, own_group, root: getpid() }.kill_all(Duration::from_secs(5)).await
    }
}

/// Sends the standard input of this process for the command, because the guardian's own is the socket.
fn send_stdin(socket: &UnixStream) -> io::Result<()> {
    let stdin = io::stdin();
    let files = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    buffer.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut buffer, SendFlags::empty())?;
    Ok(())
}

/// Returns the path of this program, even if an upgrade has replaced the file.
fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        return Ok(running.to_owned());
    }
    // Without `/proc` there may be nothing but the name that it was started with.
    let name = || std::env::args_os().next().map(PathBuf::from);
    std::env::current_exe().or_else(|error| name().ok_or(error))
}
