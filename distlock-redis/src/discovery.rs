//! How a process learns which node of a cluster has which slot: it asks the nodes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll::{Pending, Ready};
use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tokio::time::timeout;

use crate::cluster::{APART, Cluster};
use crate::connection::connect::connect;
use crate::connection::error::{KNOWS_NO_CLUSTER, NO_CLUSTER, fault};
use crate::connection::server_info::Mode;
use crate::connection::sign_in::why_not;
use crate::slots::{Addr, SlotMap};
use distlock_core::clock::Clock;
use distlock_core::jitter::jittered;
use distlock_core::select::until;
use distlock_core::store::BackendKind;
use distlock_core::store::Fault;

/// The map is asked for again after so long, whatever has been heard.
const REFRESH: Duration = Duration::from_secs(60);
/// How long one node may take to tell it.
const ANSWER: Duration = Duration::from_millis(500);
const NO_SLOTS: &str = "the cluster has no slots yet";

impl Cluster {
    async fn refresh(&self) {
        let told = self.ask_around().await;
        self.known.send_modify(|known| {
            let asked = known.asked + 1;
            let (mut known_now, outage) = match told {
                Ok(slots) => (self.with(slots, known, None), None),
                Err(fault) => {
                    let since = known.outage.as_ref().map(|(since, _)| *since);
                    let since = since.unwrap_or_else(|| Clock::Boottime.now());
                    let slots = known.slots.clone();
                    (self.with(slots, known, None), Some((since, fault)))
                }
            };
            known_now.outage = outage;
            known_now.asked = asked;
            *known = Arc::new(known_now);
        });
    }

    /// Asks one node after the other, two at a time, beginning with another one each time.
    async fn ask_around(&self) -> Result<SlotMap, Fault> {
        let mut nodes: Vec<_> = {
            let known = self.known.borrow();
            known.slots.nodes().iter().map(|addr| at(addr, &self.seeds[0])).collect()
        };
        if !nodes.is_empty() {
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len();
            nodes.rotate_left(first);
        }
        for seed in &self.seeds {
            if !nodes.iter().any(|info| info.addr() == seed.addr()) {
                nodes.push(seed.clone());
            }
        }
        let mut failed = Fault::timed_out();
        for pair in nodes.chunks(2) {
            let told = match pair {
                [one, other] => first_of(self.ask(one), self.ask(other)).await,
                _ => self.ask(&pair[0]).await,
            };
            match told {
                Ok(slots) => return Ok(slots),
                Err(fault) => failed = fault,
            }
        }
        Err(failed)
    }

    /// Asks one node for the map.
    async fn ask(&self, info: &ConnectionInfo) -> Result<SlotMap, Fault> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let tls = self.tls_for(&addr_of(info));
        let limit = ANSWER.min(self.start.link.connect_timeout);
        let asked = async {
            let connected = connect(info, tls.as_deref(), config).await;
            let (mut connection, driver) = match connected {
                Ok(connected) => connected,
                Err(error) => {
                    let why = why_not(&error, info, tls.as_deref(), Mode::Cluster).await;
                    return Err(why.at(&info.addr().to_string()));
                }
            };
            let mut slots = redis::cmd("CLUSTER");
            slots.arg("SLOTS");
            let answer = until(slots.query_async::<Value>(&mut connection), driver).await;
            answer
                .unwrap_or_else(|| Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()))
                .map_err(|error| refused(&error))
        };
        let late = |_| Fault::timed_out().at(&info.addr().to_string());
        let answer = timeout(limit, asked).await.map_err(late)??;
        let map = SlotMap::parse(&answer, &addr_of(info))?;
        match map.nodes() {
            [] => Err(Fault::passing(BackendKind::Other, NO_SLOTS)),
            _ => Ok(map),
        }
    }
}

/// Asks for the map whenever it is wanted, until the engine's runtime is dropped.
pub(crate) async fn supervise(cluster: Arc<Cluster>) {
    cluster.wanted.notified().await;
    loop {
        cluster.refresh().await;
        tokio::time::sleep(APART).await;
        until(cluster.wanted.notified(), tokio::time::sleep(jittered(REFRESH))).await;
    }
}

/// The first of two that succeeds, or the error of the second.
async fn first_of<T, E>(
    one: impl Future<Output = Result<T, E>>,
    other: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut failed = false;
    let first = poll_fn(|cx| {
        if !failed {
            match one.as_mut().poll(cx) {
                Ready(Ok(done)) => return Ready(Some(Ok(done))),
                Ready(Err(_)) => failed = true,
                Pending => {}
            }
        }
        match other.as_mut().poll(cx) {
            Ready(Ok(done)) => Ready(Some(Ok(done))),
            Ready(Err(error)) if failed => Ready(Some(Err(error))),
            Ready(Err(_)) => Ready(None),
            Pending => Pending,
        }
    })
    .await;
    match first {
        Some(done) => done,
        None => one.await,
    }
}

/// What the answer of a server that is no node of a cluster means.
fn refused(error: &RedisError) -> Fault {
    let said = error.to_string();
    if said.contains("cluster support disabled") {
        return Fault::lasting(BackendKind::Other, NO_CLUSTER);
    }
    // A sentinel, for one. Servers differ in their quotation marks.
    match said.contains("unknown command") && said.contains("CLUSTER") {
        true => Fault::lasting(BackendKind::Other, KNOWS_NO_CLUSTER),
        false => fault(error),
    }
}

/// How to reach the node at an address, where users sign in as at another one.
pub(crate) fn at(addr: &Addr, like: &ConnectionInfo) -> ConnectionInfo {
    like.clone().set_addr(ConnectionAddr::Tcp(addr.host.to_string(), addr.port))
}

pub(crate) fn addr_of(info: &ConnectionInfo) -> Addr {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => Addr { host: host.as_str().into(), port: *port },
        _ => Addr { host: "".into(), port: 0 },
    }
}
