//! Signals to this process, which it forwards to the command.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::task::yield_now;
use tokio::time::timeout;

/// Signals that end a command without a handler for them.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
const OTHERS: [Signal; 3] = [Signal::USR1, Signal::USR2, Signal::CONT];

/// The signals that this process catches.
pub(super) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Catches all signals that are forwarded. Signals that were ignored at the start of this program, by nohup or by a
    /// shell that runs it in the background, stay ignored, here and by the command.
    ///
    /// In the `foreground` of a terminal it does not catch TSTP: with Ctrl-Z the terminal stops all processes of the
    /// group, and the shell waits for this one to stop.
    pub(super) fn catch(foreground: bool) -> io::Result<Self> {
        let ignored = ignored();
        let wanted = ENDING.into_iter().chain(OTHERS);
        let wanted = wanted.chain((!foreground).then_some(Signal::TSTP));
        let may_be_ignored = [Signal::HUP, Signal::INT, Signal::QUIT];
        let wanted = wanted
            .filter(|signal| !(may_be_ignored.contains(signal) && ignored & bit(*signal) != 0));
        Self::catch_these(wanted)
    }

    /// Catches these signals.
    pub(super) fn catch_these(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let stream = |signal: Signal| {
            unix::signal(SignalKind::from_raw(signal.as_raw())).map(|stream| (signal, stream))
        };
        Ok(Self { caught: signals.into_iter().map(stream).collect::<io::Result<_>>()? })
    }

    /// Returns the next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.caught {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns a signal that has arrived already.
    pub(super) async fn pending(&mut self) -> Option<Signal> {
        // The runtime notices the signal when it polls its sockets, which it does before it resumes a task that has
        // yielded. On a busy machine a timeout alone would end before that.
        yield_now().await;
        yield_now().await;
        timeout(Duration::from_millis(1), self.next()).await.ok()
    }
}

/// Whether the signal ends a process without a handler for it.
pub(super) fn ends(signal: Signal) -> bool {
    ENDING.contains(&signal) || [Signal::USR1, Signal::USR2].contains(&signal)
}

/// Whether the signal asks a process to end, rather than to do something.
pub(super) fn asks_to_end(signal: Signal) -> bool {
    ENDING.contains(&signal)
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// Returns the signals that this process ignores, one bit each; none if the system does not show them.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
