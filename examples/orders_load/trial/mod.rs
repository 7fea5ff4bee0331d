//! Two instances of a service on one Redis server, and what they must stand.

use std::time::{Duration, Instant};

use distlock_testkit::{HttpClient, RedisServer, Service, wait_for};
use orders_load::{Plan, Report, audit, is_right, run};
use serde_json::Value;

/// Ten times the second in which a service is to be back.
const BACK: Duration = Duration::from_secs(10);

struct Shop {
    redis: RedisServer,
    instances: Vec<Service>,
}

impl Shop {
    /// Two instances with these options.
    fn open(program: &str, redis: RedisServer, options: &[&str]) -> Self {
        let start = || {
            let args = [&["--port", "0"], options].concat();
            Service::start(program, &args, &[("DISTLOCK_URL", &redis.url())])
        };
        let instances = vec![start(), start()];
        Self { redis, instances }
    }

    async fn load(&self, customers: u32, duration: Duration) -> Report {
        let instances = self.instances.iter().map(Service::addr).collect();
        run(&Plan { instances, customers, duration }).await
    }

    async fn post(&self, instance: usize, path: &str, body: &str) -> (u16, String) {
        let mut client =
            HttpClient::connect(self.instances[instance].addr()).await.expect("connect");
        let answer = client.request("POST", path, body).await.expect(path);
        if answer.status == 423 {
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
        }
        (answer.status, answer.body)
    }

    async fn place(&self) -> (u16, u64) {
        let new = r#"{"account":"ann","item":"a thing","amount":100}"#;
        let (status, body) = self.post(0, "/orders", new).await;
        let order = serde_json::from_str::<Value>(&body).unwrap_or_default();
        (status, order["id"].as_u64().unwrap_or_default())
    }

    /// The books are right, and no lock is left.
    async fn is_in_order(&self) {
        wait_for("no lock is left", async || self.locks().is_empty()).await;
        for instance in &self.instances {
            let audit = audit(instance.addr()).await.expect("an audit");
            assert!(is_right(&audit), "{audit}");
        }
    }

    fn locks(&self) -> Vec<String> {
        let mut keys = self.redis.lock_keys();
        keys.retain(|key| key.starts_with("distlock:"));
        keys
    }
}

/// Under load no order is paid twice and the balances add up; where a wait ran out the answer is 423
/// with `Retry-After`.
pub(crate) async fn under_load(program: &str) {
    let shop = Shop::open(program, RedisServer::start(), &["--work-ms", "5", "--wait-ms", "120"]);
    let report = shop.load(12, Duration::from_secs(3)).await;
    assert_eq!(report.paid_twice, [0; 0], "{report}");
    assert_eq!((report.without_retry_after, report.failed), (0, 0), "{report}");
    let known = [200, 201, 204, 409, 423];
    let strange = report.answers.keys().find(|(_, status)| !known.contains(status));
    assert!(strange.is_none(), "{report}");
    for (what, status) in [("pay", 200), ("pay", 409), ("pay", 423), ("transfer", 204)] {
        assert!(report.count_of(what, status) > 0, "no {what} with {status}: {report}");
    }
    assert!(report.abandoned > 0, "{report}");
    shop.is_in_order().await;
}

/// 503 while Redis is gone, and everything as before when it is back; also for those who were in the
/// middle of something.
pub(crate) async fn without_redis(program: &str) {
    // Books and locks survive the server's death.
    let redis = RedisServer::builder().durable().start();
    let mut shop = Shop::open(program, redis, &["--work-ms", "20", "--wait-ms", "200"]);
    let (status, order) = shop.place().await;
    assert_eq!(status, 201);
    let instances = shop.instances.iter().map(Service::addr).collect();
    let plan = Plan { instances, customers: 6, duration: Duration::from_secs(2) };
    let load = tokio::spawn(async move { run(&plan).await });
    wait_for("orders are being paid", async || !shop.locks().is_empty()).await;
    shop.redis.kill9();
    let report = load.await.expect("no panic");
    assert_eq!(report.paid_twice, [0; 0], "{report}");
    assert!(report.count(503) > 0, "{report}");
    assert_eq!(shop.post(0, &format!("/orders/{order}/pay"), "").await.0, 503);
    shop.redis.restart();
    let back = Instant::now();
    wait_for("the service is back", async || {
        shop.post(1, &format!("/orders/{order}/pay"), "").await.0 == 200
    })
    .await;
    assert!(back.elapsed() < BACK, "after {:?}", back.elapsed());
    shop.is_in_order().await;
}

/// A client that leaves in the middle of its request leaves no lock behind.
pub(crate) async fn client_gone(program: &str) {
    let options = ["--work-ms", "3000", "--wait-ms", "20000"];
    let shop = Shop::open(program, RedisServer::start(), &options);
    let (_, order) = shop.place().await;
    let mut client = HttpClient::connect(shop.instances[0].addr()).await.expect("connect");
    client.send("POST", &format!("/orders/{order}/pay"), "").await.expect("sent");
    // The order's, its account's and the shop's.
    let held = || shop.locks().iter().filter(|key| key.contains(":lock:")).count();
    wait_for("the order is being paid", async || held() == 3).await;
    drop(client);
    let (status, _) = shop.post(1, &format!("/orders/{order}/pay"), "").await;
    assert!([200, 409].contains(&status), "{status}");
    shop.is_in_order().await;
}
