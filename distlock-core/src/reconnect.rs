//! A connection that is made again whenever it is lost.

use std::future::Future;
use std::time::Duration;

use crate::back_off::BackOff;
use crate::store::Fault;

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
    use std::pin::pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// A connection that cannot be made the first two times, is lost after that, and is then over.
    struct Client<'a> {
        attempts: usize,
        log: &'a Mutex<Vec<&'static str>>,
    }

    impl Client<'_> {
        fn note(&self, event: &'static str) {
            self.log.lock().expect("no panic").push(event);
        }
    }

    impl Reconnect for Client<'_> {
        type Connected = ();

        async fn connect(&mut self) -> Result<(), Fault> {
            self.attempts += 1;
            if self.attempts <= 2 { Err(Fault::timed_out()) } else { Ok(()) }
        }

        async fn run(&mut self, _connected: &mut ()) -> Fault {
            self.note("up");
            Fault::timed_out()
        }

        fn down(&mut self, _fault: &Fault) {
            self.note("down");
        }

        async fn wait(&mut self, pause: Duration) {
            assert!(pause <= Duration::from_millis(200));
            self.note("wait");
        }

        fn is_over(&self) -> bool {
            self.attempts == 3
        }
    }

    #[test]
    fn a_connection_is_made_again_until_it_is_over() {
        let log = Mutex::new(Vec::new());
        let back_off = BackOff::new(Duration::from_millis(100), Duration::from_secs(1));
        {
            let kept = pin!(keep_connected(Client { attempts: 0, log: &log }, back_off));
            let polled = kept.poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(polled, Poll::Ready(()));
        }
        let log = log.into_inner().expect("no panic");
        assert_eq!(log, ["down", "wait", "down", "wait", "up", "down"]);
    }
}
