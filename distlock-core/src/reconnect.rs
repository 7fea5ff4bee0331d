//! Back-off, and a connection that is made again whenever it is lost.

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
    /// Returns a back-off that begins with about `first` and doubles up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Begins again with the first pause. Call this after a successful attempt.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Returns the pause before the next attempt, and doubles the one after it. The pause is drawn between half of its
    /// length and the whole, so that processes do not reconnect in step.
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

    /// Makes a connection, or returns why that failed.
    fn connect(&mut self) -> impl Future<Output = Result<Self::Connected, Fault>> + Send;

    /// Announces that the connection is up and drives it until it is lost; returns why it was lost.
    fn run(&mut self, connected: &mut Self::Connected) -> impl Future<Output = Fault> + Send;

    /// Announces that the connection is down. A lost connection is dropped only afterwards, because a call that fails
    /// with it must find it down already, and so wait for the next connection.
    fn down(&mut self, fault: &Fault);

    /// Waits for the pause before the next attempt. It may return earlier if something makes the rest of the pause
    /// pointless.
    fn wait(&mut self, pause: Duration) -> impl Future<Output = ()> + Send;

    /// Returns whether no further connection is wanted.
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
