//! Sends a command: the caller writes it itself where that saves waking another thread.
//!
//! While few commands are under way each caller polls the driver once, right after it has put its
//! command into the channel. While many are, one caller in sixteen does so for all of them.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::task::coop::unconstrained;

use super::caller_driver;
use super::driver::Driver;
use super::traffic::UnderWay;

/// With more commands than this under way from one thread others will follow: writing them together
/// is cheaper.
const FEW: usize = 8;
/// So many are written without waiting for more, so that the server has something to do.
const TOGETHER: usize = 16;

/// Runs `call`, which sends a command over this connection and waits for its answer.
pub(in super::super) async fn carry<T>(
    driver: &Arc<Driver>,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> T {
    let (_, traffic) = driver.traffic.own();
    let placement = driver.placement();
    if driver.bell.is_on_engine() {
        placement.count_engine_command();
    } else if traffic.is_brisk(placement.engine_commands()) {
        caller_driver::spawn_here(driver);
    }
    let under_way = UnderWay::new(&traffic.under_way);
    let mut sent = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut sent, true) {
            return call.as_mut().poll(cx);
        }
        let many = under_way.now() > FEW;
        if many && driver.unwritten.fetch_add(1, Ordering::Relaxed) + 1 < TOGETHER {
            placement.defer();
            return send(call.as_mut(), cx);
        }
        let (out, rang) = driver.bell.hold_back(|| send(call.as_mut(), cx));
        // With many under way, the first of them has rung.
        if (rang || many) && !driver.poll_here() {
            driver.bell.ring();
        }
        out
    })
    .await
}

/// The first poll of a call, which puts its command into the channel even if the caller has used up
/// tokio's budget: a command that is sent later must come behind it.
fn send<T>(call: Pin<&mut impl Future<Output = T>>, cx: &mut Context<'_>) -> Poll<T> {
    pin!(unconstrained(call)).poll(cx)
}
