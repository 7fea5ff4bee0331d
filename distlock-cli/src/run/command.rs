//! The command, as the tool sees it: through its guardian.

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

use super::guardian::Charge;
use super::tree::Tree;
use super::wire::{Order, Report};

/// A command with its guardian.
pub(super) struct Guarded {
    /// Not the runtime's: that writes only once it has seen that there is room.
    orders: UnixStream,
    reports: Lines<BufReader<tokio::net::UnixStream>>,
    guardian: Pid,
    own_group: bool,
    leader: Option<Pid>,
}

impl Guarded {
    /// Starts the guardian, which starts nothing yet.
    pub(super) fn prepare(
        charge: &Charge,
        environment: Vec<(&'static str, OsString)>,
    ) -> io::Result<Self> {
        // If the guardian is killed its children come to this process, where they are found.
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(getpid()))?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(this_program()?);
        command.arg0("distlock").args(charge.arguments()).envs(environment);
        command.env_remove(crate::store::secret::URL);
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        if !charge.foreground {
            // Out of reach of what is sent to the tool's group.
            command.process_group(0);
        }
        let guardian = Pid::from_child(&command.spawn()?);
        send_stdin(&ours)?;
        ours.set_nonblocking(true)?;
        let orders = ours.try_clone()?;
        let reports = BufReader::new(tokio::net::UnixStream::from_std(ours)?).lines();
        Ok(Self { orders, reports, guardian, own_group: !charge.foreground, leader: None })
    }

    /// Tells the guardian. Not delivered to one that is stopped, or gone, which shows elsewhere.
    pub(super) fn order(&self, order: &Order) {
        let _ = (&self.orders).write(order.line().as_bytes());
    }

    /// The next report; `None` if the guardian is gone. Cancel safe.
    pub(super) async fn report(&mut self) -> Option<Report> {
        loop {
            let line = self.reports.next_line().await.ok().flatten()?;
            if let Some(report) = Report::parse(&line) {
                if let Report::Started(leader) = report {
                    self.leader = Some(leader);
                }
                return Some(report);
            }
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.leader.is_some()
    }

    /// Ends the command without its guardian, and that too. Whether none of them is left.
    pub(super) async fn kill_all(&self) -> bool {
        let _ = kill_process(self.guardian, Signal::KILL);
        let leader = self.leader.unwrap_or(self.guardian);
        let own_group = self.own_group && self.leader.is_some();
        Tree { leader, own_group, root: getpid() }.kill_all(Duration::from_secs(5)).await
    }
}

/// This process's standard input, for the command: the guardian's own is the socket.
fn send_stdin(socket: &UnixStream) -> io::Result<()> {
    let stdin = io::stdin();
    let files = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    buffer.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut buffer, SendFlags::empty())?;
    Ok(())
}

/// Also if the file was replaced meanwhile, by an upgrade.
fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        return Ok(running.to_owned());
    }
    // Without a list of processes it is known only as what it was called.
    let called = || std::env::args_os().next().map(PathBuf::from);
    std::env::current_exe().or_else(|error| called().ok_or(error))
}
