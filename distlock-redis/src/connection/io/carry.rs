//! The seam between callers that send commands and what moves a connection's bytes.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::task::coop::unconstrained;

use distlock_core::store::status::DrivenBy;

/// The client library's driver: resolves when the connection has ended.
pub(crate) type ClientDriver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What moves the bytes of one connection.
pub(crate) trait Carry: Send + Sync {
    /// The engine's part: resolves when the connection has ended.
    fn run(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The current thread is about to send a command. Returns the thread's part of the counters.
    fn begin(&self) -> u8;

    /// Sees to it that the command is written which `put` puts into the client's channel. Calls `put`
    /// once, before it returns.
    fn send(&self, thread: u8, put: &mut dyn FnMut());

    /// The command was answered, or is not waited for any more.
    fn end(&self, thread: u8);

    /// How many commands were sent until now.
    fn sent(&self) -> u32;

    /// The same if none of them is under way: what is sent next is sent behind all of them.
    fn sent_while_idle(&self) -> Option<u32>;

    /// Ends the connection: everything under way fails.
    fn stop(&self);

    /// Whose runtime reads and writes at present.
    fn driven_by(&self) -> DrivenBy;
}

/// Runs `call`, which sends a command over this connection and waits for its answer.
///
/// Cancel safe: the command is under way once this was polled, and its answer is dropped if this is.
pub(crate) async fn carry<T>(
    carrier: &dyn Carry,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> T {
    let under_way = UnderWay { carrier, thread: carrier.begin() };
    let mut sent = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut sent, true) {
            return call.as_mut().poll(cx);
        }
        let mut out = Poll::Pending;
        // Whatever tokio's budget of the caller is: a command that is sent later must come behind.
        carrier.send(under_way.thread, &mut || out = pin!(unconstrained(call.as_mut())).poll(cx));
        out
    })
    .await
}

/// A command that is under way.
struct UnderWay<'a> {
    carrier: &'a dyn Carry,
    thread: u8,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.carrier.end(self.thread);
    }
}
