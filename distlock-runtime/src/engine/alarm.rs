//! A moment to wait for on the callers' clock, which a test may pause.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use distlock_core::catch_panic::IncapableRuntimes;
use distlock_core::clock::{Clock, Moment};
pub(crate) use distlock_core::timers::Alarms;
use tokio::runtime::{Handle, Id, RuntimeFlavor};

/// Resolves at a moment, whatever runtime it is polled on.
///
/// The engine wakes it. Where leases age on the callers' clock, it is waited for on tokio's timers as well, where there
/// are any: only those move a paused clock on.
pub(crate) struct Alarm<'a> {
    /// Where the clock is the callers'.
    timer: Option<(tokio::time::Instant, Timer)>,
    alarm: distlock_core::timers::Alarm<'a>,
}

impl<'a> Alarm<'a> {
    #[inline]
    pub(crate) fn at(alarms: &'a Alarms, clock: Clock, at: Moment) -> Self {
        let is_set = at != Moment::NEVER;
        let instant = is_set.then(|| clock.instant(at)).flatten();
        let timer = instant.map(|at| (tokio::time::Instant::from_std(at), Timer::default()));
        Self { timer, alarm: distlock_core::timers::Alarm::at(alarms, clock, at) }
    }
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { timer, alarm } = self.get_mut();
        if let Some((at, timer)) = timer
            && timer.poll(*at, cx).is_ready()
        {
            return Poll::Ready(());
        }
        Pin::new(alarm).poll(cx)
    }
}

/// Runs `act` on the current runtime, unless that cannot do it; without unwinding it is not tried.
fn attempt<T>(unable: &IncapableRuntimes<Id>, here: Id, act: impl FnOnce() -> T) -> Option<T> {
    cfg!(panic = "unwind").then(|| unable.attempt(here, act)).flatten()
}

/// A timer of the caller's runtime, where there is one that may pause its clock.
#[derive(Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    runtime: Option<Id>,
}

impl Timer {
    fn poll(&mut self, at: tokio::time::Instant, cx: &mut Context<'_>) -> Poll<()> {
        static UNABLE: IncapableRuntimes<Id> = IncapableRuntimes::new();
        let Ok(here) = Handle::try_current() else { return Poll::Pending };
        if self.runtime != Some(here.id()) {
            // The timers of the runtime that it was polled on before may not run any more.
            self.runtime = Some(here.id());
            // The clock of one with several threads cannot be paused.
            let may_pause = here.runtime_flavor() == RuntimeFlavor::CurrentThread;
            self.sleep = may_pause
                .then(|| attempt(&UNABLE, here.id(), || Box::pin(tokio::time::sleep_until(at))))
                .flatten();
        }
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        // A runtime that has ended makes timers, but polls none.
        let polled = attempt(&UNABLE, here.id(), || sleep.as_mut().poll(cx));
        if polled.is_none() {
            self.sleep = None;
        }
        polled.unwrap_or(Poll::Pending)
    }
}
