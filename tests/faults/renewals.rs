//! Renewing very many leases.

use distlock_testkit::{LONG, Mode, Proxy, RedisServer, ms, patient, patient_builder, wait_for};
use tokio::task::JoinSet;

use crate::support::works_again;

#[tokio::test]
async fn f22_very_many_leases_are_renewed_over_a_line_that_takes_longer_than_a_commands_time() {
    const LEASES: usize = 6_000;
    let ttl = ms(9_000);
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let builder = patient_builder(&proxy.url()).command_timeout(ms(1500));
    let manager = builder.connect().await.expect("connect");
    let mut calls = JoinSet::new();
    for n in 0..LEASES {
        let request = manager.lock(format!("k-{n}")).ttl(ttl).wait(LONG);
        calls.spawn(async move { request.acquire().await.expect("granted") });
    }
    let guards = calls.join_all().await;
    // All of them are some 1.7 MB: 3.4 s over this line. A thousand take 0.6 s.
    proxy.set(Mode::Narrow(ms(2)));
    let start = std::time::Instant::now();
    // By then each of them has been renewed, or is lost.
    while start.elapsed() < ttl {
        let lost = guards.iter().filter(|guard| !guard.is_held()).count();
        assert_eq!(lost, 0, "lost after {:?}", start.elapsed());
        tokio::time::sleep(ms(50)).await;
    }
    proxy.set(Mode::Pass);
    drop(guards);
    wait_for("all are free", async || server.lock_keys().is_empty()).await;
    works_again(&patient(&server.url()).await, &server).await;
}
