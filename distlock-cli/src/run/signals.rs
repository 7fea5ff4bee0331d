//! Signals that this process takes for the command.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::task::yield_now;
use tokio::time::timeout;

/// What ends a command that does not care.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
const OTHERS: [Signal; 3] = [Signal::USR1, Signal::USR2, Signal::CONT];

/// Signals that are caught from now on.
pub(super) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// All that are passed on. Those that were ignored when this program was started, by nohup or by
    /// a shell that runs it in the background, stay ignored, here and by the command.
    ///
    /// In the `foreground` of a terminal TSTP is not taken: with Ctrl-Z the terminal stops all
    /// processes of the group, and a shell waits for this one to stop.
    pub(super) fn catch(foreground: bool) -> io::Result<Self> {
        let ignored = ignored();
        let wanted = ENDING.into_iter().chain(OTHERS);
        let wanted = wanted.chain((!foreground).then_some(Signal::TSTP));
        let may_be_ignored = [Signal::HUP, Signal::INT, Signal::QUIT];
        let wanted = wanted
            .filter(|signal| !(may_be_ignored.contains(signal) && ignored & bit(*signal) != 0));
        Self::catch_these(wanted)
    }

    /// These.
    pub(super) fn catch_these(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let stream = |signal: Signal| {
            unix::signal(SignalKind::from_raw(signal.as_raw())).map(|stream| (signal, stream))
        };
        Ok(Self { caught: signals.into_iter().map(stream).collect::<io::Result<_>>()? })
    }

    /// The next one. Cancel safe.
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

    /// One that has come already.
    pub(super) async fn pending(&mut self) -> Option<Signal> {
        // The runtime sees what the handler wrote only when it looks at its sockets, which it does
        // before a task that has yielded goes on. On a busy machine a time-out alone is over before that.
        yield_now().await;
        yield_now().await;
        timeout(Duration::from_millis(1), self.next()).await.ok()
    }
}

/// Whether a process that has no handler for it ends, and with it what this tool was to do.
pub(super) fn ends(signal: Signal) -> bool {
    ENDING.contains(&signal) || [Signal::USR1, Signal::USR2].contains(&signal)
}

/// Whether it asks to end, rather than to do something.
pub(super) fn asks_to_end(signal: Signal) -> bool {
    ENDING.contains(&signal)
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The signals that this process ignores, a bit for each, as far as the system says so.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
