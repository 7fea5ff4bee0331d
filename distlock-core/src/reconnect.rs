//! A connection that is made again whenever it is lost, and the pauses in between.

use std::future::Future;
use std::time::Duration;

use crate::jitter::jittered;
use crate::store::Fault;

/// Exponential back-off with jitter.
#[derive(Debug, Clone)]
pub struct BackOff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl BackOff {
    /// Begins with about `first` and doubles up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Begins again: the last attempt has succeeded.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Returns the pause before the next attempt: between half and the whole of what has been reached, so that
    /// processes do not act in step.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        jittered(pause)
    }
}

/// One connection of a store, which [`keep_connected`] makes again whenever it is lost.
pub trait Reconnect: Send {
    /// A connection that is up. It is dropped after [`down`](Self::down).
    type Connected: Send;

    /// Makes a connection, or says why that failed.
    fn connect(&mut self) -> impl Future<Output = Result<Self::Connected, Fault>> + Send;

    /// Announces that the connection is up and drives it until it is lost; returns why it was lost.
    fn run(&mut self, connected: &mut Self::Connected) -> impl Future<Output = Fault> + Send;

    /// Announces that the connection is down. A lost connection is dropped only afterwards: a call that fails with it
    /// must already find it down, and so wait for the next one.
    fn down(&mut self, fault: &Fault);

    /// Waits before the next attempt, or for something that makes the wait pointless.
    fn wait(&mut self, pause: Duration) -> impl Future<Output = ()> + Send;

    /// Whether no further connection is wanted.
    fn is_over(&self) -> bool {
        false
    }
}

/// Keeps a client connected until it [is over](Reconnect::is_over) or this future is dropped.
pub async fn keep_connected(mut client: impl Reconnect, mut back_off: BackOff) {
    loop {
        match client.connect().await {
            Ok(mut connected) => {
                back_off.reset();
                let fault = client.run(&mut connected).await;
                client.down(&fault);
            }
            Err(fault) => client.down(&fault),
        }
        if client.is_over() {
            return;
        }
        client.wait(back_off.pause()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again() {
        let ms = Duration::from_millis;
        let mut back_off = BackOff::new(ms(50), ms(150));
        for whole in [50, 100, 150, 150] {
            let pause = back_off.pause();
            assert!((ms(whole) / 2..=ms(whole)).contains(&pause), "{pause:?} of {whole} ms");
        }
        back_off.reset();
        assert!(back_off.pause() <= ms(50));
    }
}
