//! Two instances of a service on one Redis server, and what they must stand.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use distlock_testkit::{HttpClient, RedisServer, Service, wait_for};
use orders_load::{Plan, Report, Spellings, audit, is_right, run, spell};
use serde_json::Value;
use tokio::task::JoinSet;

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
        self.place_for("ann").await
    }

    async fn place_for(&self, account: &str) -> (u16, u64) {
        let new = format!(r#"{{"account":"{account}","item":"a thing","amount":100}}"#);
        let (status, body) = self.post(0, "/orders", &new).await;
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

    /// How many locks are held.
    fn held(&self) -> usize {
        self.locks().iter().filter(|key| key.contains(":lock:")).count()
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
    let shop = Shop::open(program, RedisServer::start(), &["--work-ms", "20", "--wait-ms", "40"]);
    let report = shop.load(12, Duration::from_secs(3)).await;
    assert_eq!(report.done_twice, [0; 0], "{report}");
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
    assert_eq!(report.done_twice, [0; 0], "{report}");
    assert!(report.count(503) > 0, "{report}");
    assert_eq!(shop.post(0, &format!("/orders/{order}/pay"), "").await.0, 503);
    // Who looks at the console sees it as well.
    let said = shop.instances[0].output();
    assert!(said.contains("answered") && said.contains("503"), "{said}");
    shop.redis.restart();
    let back = Instant::now();
    wait_for("the service is back", async || {
        shop.post(1, &format!("/orders/{order}/pay"), "").await.0 == 200
    })
    .await;
    assert!(back.elapsed() < BACK, "after {:?}", back.elapsed());
    for instance in &shop.instances {
        wait_for("its books are back", async || audit(instance.addr()).await.is_ok()).await;
    }
    shop.is_in_order().await;
}

/// A client that leaves in the middle of its request leaves no lock behind.
pub(crate) async fn client_gone(program: &str) {
    let options = ["--work-ms", "3000", "--wait-ms", "20000"];
    let shop = Shop::open(program, RedisServer::start(), &options);
    let (_, order) = shop.place().await;
    let mut client = HttpClient::connect(shop.instances[0].addr()).await.expect("connect");
    client.send("POST", &format!("/orders/{order}/pay"), "").await.expect("sent");
    // The order's and its account's.
    wait_for("the order is being paid", async || shop.held() == 2).await;
    drop(client);
    let (status, _) = shop.post(1, &format!("/orders/{order}/pay"), "").await;
    assert!([200, 409].contains(&status), "{status}");
    shop.is_in_order().await;
}

/// A number in a path has many spellings, and its order has one lock: while it is being paid at one
/// instance nobody cancels it at the other, and the other way round.
pub(crate) async fn spellings(program: &str) {
    let options = ["--work-ms", "300", "--wait-ms", "20000"];
    let shop = Shop::open(program, RedisServer::start(), &options);
    for (first, second) in [("pay", "cancel"), ("cancel", "pay")] {
        for spelled in ["0{}", "%2B{}", "%3{}", "000{}"] {
            let (_, order) = shop.place().await;
            assert!(order < 10, "`%3{order}` is not a spelling of it");
            let mut begun = HttpClient::connect(shop.instances[0].addr()).await.expect("connect");
            begun.send("POST", &format!("/orders/{order}/{first}"), "").await.expect("sent");
            let lock = format!("order:{order}");
            wait_for("the first is at work", async || {
                shop.locks().iter().any(|key| key.contains(":lock:") && key.contains(&lock))
            })
            .await;
            let path = format!("/orders/{}/{second}", spelled.replace("{}", &order.to_string()));
            let (status, _) = shop.post(1, &path, "").await;
            assert_eq!(status, 409, "{path} while `{first}` was at work");
            assert_eq!(begun.head().await.expect("an answer").status, 200, "{first}");
        }
    }
    shop.is_in_order().await;
}

/// The same for many orders at once, each paid twice at both instances and cancelled under every
/// spelling: one of these requests is carried out, and no other.
pub(crate) async fn many_spellings(program: &str) {
    let options = ["--work-ms", "1", "--wait-ms", "20000"];
    let shop = Shop::open(program, RedisServer::start(), &options);
    let instances = shop.instances.iter().map(Service::addr).collect();
    let report = spell(&Spellings { instances, orders: 10, customers: 8 }).await;
    assert_eq!(report.done_twice, [0; 0], "{report}");
    let done = report.count_of("pay", 200) + report.count_of("cancel", 200);
    let refused = report.count_of("pay", 409) + report.count_of("cancel", 409);
    assert_eq!((report.count(201), done, refused, report.failed), (80, 80, 560, 0), "{report}");
    shop.is_in_order().await;
}

/// Ten payments that do not wait: one is carried out, nine are told to come again.
pub(crate) async fn ten_at_once(program: &str) {
    let options = ["--work-ms", "3000", "--wait-ms", "20000"];
    let shop = &Shop::open(program, RedisServer::start(), &options);
    let (_, order) = shop.place().await;
    let path = &format!("/orders/{order}/pay");
    let mut tries = JoinSet::new();
    for number in 0..10 {
        let (instance, path) = (shop.instances[number % 2].addr(), path.clone());
        tries.spawn(async move {
            let client = HttpClient::connect(instance).await.expect("connect");
            let mut client = client.with_header("prefer", "respond-async, wait=0");
            client.request("POST", &path, "").await.expect("an answer")
        });
    }
    let mut statuses: Vec<_> = tries.join_all().await.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [&[200][..], &[423; 9]].concat());
    shop.is_in_order().await;
}

/// No lock is everybody's: customers who have nothing to do with each other pay at the same time.
pub(crate) async fn side_by_side(program: &str) {
    // Who waited for another payment would give up long before that has ended.
    let options = ["--work-ms", "1500", "--wait-ms", "300"];
    let shop = &Shop::open(program, RedisServer::start(), &options);
    let pay = async |instance, account| {
        let (_, order) = shop.place_for(account).await;
        shop.post(instance, &format!("/orders/{order}/pay"), "").await.0
    };
    let statuses = tokio::join!(pay(0, "ann"), pay(1, "bob"), pay(0, "cleo"), pay(1, "dan"));
    assert_eq!(statuses, (200, 200, 200, 200));
    shop.is_in_order().await;
}

/// SIGTERM: who is at work is answered, no lock is left, and the program has succeeded.
pub(crate) async fn terminated(program: &str) {
    let options = ["--work-ms", "1000", "--wait-ms", "5000"];
    let mut shop = Shop::open(program, RedisServer::start(), &options);
    let (_, order) = shop.place().await;
    let mut client = HttpClient::connect(shop.instances[0].addr()).await.expect("connect");
    client.send("POST", &format!("/orders/{order}/pay"), "").await.expect("sent");
    wait_for("the order is being paid", async || shop.held() > 0).await;
    shop.instances[0].terminate();
    assert_eq!(client.head().await.expect("an answer").status, 200);
    let (succeeded, output) = shop.instances[0].ended();
    assert!(succeeded, "{output}");
    assert_eq!(shop.locks().iter().filter(|key| key.contains(":lock:")).count(), 0);
    shop.instances.remove(0);
    shop.is_in_order().await;
}

/// What cannot be started says why in a sentence; who asks for help gets it.
pub(crate) fn start(program: &str) {
    let run = |args: &[&str], url: &str| {
        let run = Command::new(program).args(args).env("DISTLOCK_URL", url).output();
        let run = run.expect("start the program");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (run.status.success(), text(&run.stdout), text(&run.stderr))
    };
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("its number").port().to_string();
    let (success, _, said) = run(&["--port", &port], "");
    assert!(!success && said.contains(&format!("port {port}")), "{said}");
    assert!(!said.contains("Os {"), "{said}");
    drop(taken);
    let (success, _, said) = run(&["--port", "0"], &format!("redis://:secret@127.0.0.1:{port}"));
    assert!(!success && !said.contains('{') && !said.contains("secret"), "{said}");
    let (success, said, _) = run(&["--help"], "");
    assert!(success && said.contains("--work-ms"), "{said}");
    let (success, _, said) = run(&["--prot", "0"], "");
    assert!(!success && said.contains("--prot") && said.contains("--port"), "{said}");
}

/// Each instance's page names who holds a lock, at whichever instance that is, and who waits for it.
pub(crate) async fn board(program: &str) {
    let options = ["--work-ms", "6000", "--wait-ms", "30000"];
    let shop = Shop::open(program, RedisServer::start(), &options);
    let (_, order) = shop.place().await;
    let path = format!("/orders/{order}/pay");
    let mut holder = HttpClient::connect(shop.instances[0].addr()).await.expect("connect");
    let mut waiter = HttpClient::connect(shop.instances[1].addr()).await.expect("connect");
    let paying = async { holder.request("POST", &path, "").await.expect("an answer").status };
    let waiting = async {
        wait_for("it is being paid", async || shop.held() > 0).await;
        waiter.request("POST", &path, "").await.expect("an answer").status
    };
    let looking = async {
        let key = format!("order:{order}");
        let mut seen = Value::Null;
        wait_for("both boards name both", async || {
            let mut boards = Vec::new();
            for instance in &shop.instances {
                let mut client = HttpClient::connect(instance.addr()).await.expect("connect");
                let answer = client.request("GET", "/api/board", "").await.expect("a board");
                boards.push(serde_json::from_str::<Value>(&answer.body).expect("JSON"));
            }
            let lock = |board: &Value| {
                let mut locks = board["locks"].as_array().cloned().unwrap_or_default().into_iter();
                locks.find(|lock| lock["key"] == *key).unwrap_or_default()
            };
            let locks: Vec<Value> = boards.iter().map(lock).collect();
            let own: Vec<&Value> = boards.iter().map(|board| &board["process"]).collect();
            seen = boards[1].clone();
            locks.iter().all(|lock| {
                lock["holders"][0]["process"] == *own[0] && lock["waiters"][0]["process"] == *own[1]
            }) && own[0] != own[1]
                && own[0].is_string()
        })
        .await;
        assert_eq!(seen["processes"].as_array().map(Vec::len), Some(2), "{seen}");
    };
    let (paid, refused, ()) = tokio::join!(paying, waiting, looking);
    assert_eq!((paid, refused), (200, 409));
    shop.is_in_order().await;
}

/// Prometheus is told what happened to locks, by their names and without a key.
pub(crate) async fn metrics(program: &str) {
    let shop = Shop::open(program, RedisServer::start(), &["--work-ms", "1"]);
    let (_, order) = shop.place().await;
    assert_eq!(shop.post(0, &format!("/orders/{order}/pay"), "").await.0, 200);
    let mut client = HttpClient::connect(shop.instances[0].addr()).await.expect("connect");
    let mut text = String::new();
    // The order and the account.
    let acquired = "distlock_acquisitions_total{lock=\"pay\",outcome=\"acquired\"} 2";
    let held = "distlock_held{lock=\"pay\"} 0";
    wait_for("all of it has been told", async || {
        text = client.request("GET", "/metrics", "").await.expect("a scrape").body;
        [acquired, held].iter().all(|line| text.lines().any(|said| said == *line))
    })
    .await;
    assert!(text.contains("# TYPE distlock_wait_seconds histogram"), "{text}");
    assert!(text.contains("distlock_hold_seconds_count{lock=\"pay\"} 2"), "{text}");
    assert!(!text.contains("order:") && !text.contains("account:"), "{text}");
}
