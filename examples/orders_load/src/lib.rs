//! Customers who do not behave: they press "pay" on several instances at once, cancel what they are
//! paying for, send money in circles, and leave in the middle of a request. Whatever they do, no
//! order may be paid twice and no money may be lost.

mod spellings;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use distlock_testkit::{HttpClient, HttpResponse};
use serde_json::Value;
use tokio::task::JoinSet;

pub use spellings::{Spellings, spell};

/// Whose money is spent.
const ACCOUNTS: [&str; 8] = ["ann", "bob", "cleo", "dan", "eve", "finn", "gita", "hugo"];

/// Who comes, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The instances of the shop.
    pub instances: Vec<SocketAddr>,
    /// How many customers come at once.
    pub customers: u32,
    /// How long they stay.
    pub duration: Duration,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many answers of each kind: what was asked for, and the status.
    pub answers: BTreeMap<(&'static str, u16), u64>,
    /// Orders for which more than one payment or cancellation was answered with 200.
    pub done_twice: Vec<u64>,
    /// Answers with 423 that did not say when to come again.
    pub without_retry_after: u64,
    /// Requests whose customer left before the answer.
    pub abandoned: u64,
    /// Requests that were not answered.
    pub failed: u64,
    /// How long it took.
    pub time: Duration,
}

impl Report {
    /// Answers with this status.
    pub fn count(&self, status: u16) -> u64 {
        self.answers.iter().filter(|((_, is), _)| *is == status).map(|(_, count)| count).sum()
    }

    /// Answers of this kind with this status.
    pub fn count_of(&self, what: &str, status: u16) -> u64 {
        let fits = |(is, answer): &(&str, u16)| *is == what && *answer == status;
        self.answers.iter().filter(|(key, _)| fits(key)).map(|(_, count)| count).sum()
    }

    fn note(&mut self, what: &'static str, answer: &io::Result<HttpResponse>) {
        let Ok(answer) = answer else {
            self.failed += 1;
            return;
        };
        *self.answers.entry((what, answer.status)).or_default() += 1;
        let seconds = answer.header("retry-after").and_then(|after| after.parse::<u64>().ok());
        if answer.status == 423 && seconds.is_none_or(|seconds| seconds < 1) {
            self.without_retry_after += 1;
        }
    }

    fn add(&mut self, other: Self) {
        for (key, count) in other.answers {
            *self.answers.entry(key).or_default() += count;
        }
        self.done_twice.extend(other.done_twice);
        self.without_retry_after += other.without_retry_after;
        self.abandoned += other.abandoned;
        self.failed += other.failed;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.answers.values().sum();
        writeln!(f, "{total} answers in {:.1} s", self.time.as_secs_f64())?;
        for ((what, status), count) in &self.answers {
            writeln!(f, "  {what:<9} {status}  {count:>6}")?;
        }
        writeln!(f, "  {} abandoned, {} not answered", self.abandoned, self.failed)?;
        writeln!(f, "  423 without Retry-After: {}", self.without_retry_after)?;
        write!(f, "  orders paid or cancelled more than once: {:?}", self.done_twice)
    }
}

/// Sends the customers in.
pub async fn run(plan: &Plan) -> Report {
    let start = Instant::now();
    let mut customers = JoinSet::new();
    for number in 0..plan.customers {
        customers.spawn(Customer::new(number, plan).shop_until(start + plan.duration));
    }
    let mut report = Report::default();
    while let Some(customer) = customers.join_next().await {
        report.add(customer.expect("a customer does not panic"));
    }
    report.time = start.elapsed();
    report
}

/// What an instance says of its books.
pub async fn audit(instance: SocketAddr) -> io::Result<Value> {
    let answer = HttpClient::once(instance, "GET", "/api/audit").await?;
    match answer.status {
        200 => serde_json::from_str(&answer.body).map_err(io::Error::other),
        status => Err(io::Error::other(format!("the audit was answered with {status}"))),
    }
}

/// Whether an audit found nothing wrong.
pub fn is_right(audit: &Value) -> bool {
    audit["wrongly_charged"].as_array().is_some_and(Vec::is_empty)
        && audit["missing"] == 0
        && audit["surplus"] == 0
}

struct Customer {
    name: String,
    plan: Plan,
    dice: Dice,
    report: Report,
}

impl Customer {
    fn new(number: u32, plan: &Plan) -> Self {
        let (name, plan) = (format!("customer {}", number + 1), plan.clone());
        Self { name, plan, dice: Dice(number.into()), report: Report::default() }
    }

    async fn shop_until(mut self, end: Instant) -> Report {
        while Instant::now() < end {
            self.one_order().await;
            self.one_transfer().await;
        }
        self.report
    }

    async fn one_order(&mut self) {
        let account = self.account();
        let amount = 100 + self.dice.below(900);
        let new = format!(r#"{{"account":"{account}","item":"a thing","amount":{amount}}}"#);
        let placed = self.post("place", "/orders", &new).await;
        let order = placed.ok().and_then(|placed| serde_json::from_str::<Value>(&placed.body).ok());
        let Some(id) = order.and_then(|order| order["id"].as_u64()) else {
            // The shop cannot take orders now: do not hammer at it.
            tokio::time::sleep(Duration::from_millis(50)).await;
            return;
        };
        let pay = format!("/orders/{id}/pay");
        if self.dice.below(4) == 0 {
            self.abandon(&pay).await;
        }
        let mut payments = JoinSet::new();
        for instance in self.plan.instances.iter().copied().cycle().take(3) {
            let (name, pay) = (self.name.clone(), pay.clone());
            payments.spawn(async move {
                connect(instance, &name).await?.request("POST", &pay, "").await
            });
        }
        let mut done = 0;
        if self.dice.below(4) == 0 {
            let cancelled = self.post("cancel", &format!("/orders/{id}/cancel"), "").await;
            done += u32::from(cancelled.is_ok_and(|cancelled| cancelled.status == 200));
        }
        while let Some(payment) = payments.join_next().await {
            let payment = payment.expect("a payment does not panic");
            done += u32::from(payment.as_ref().is_ok_and(|payment| payment.status == 200));
            self.report.note("pay", &payment);
        }
        if done > 1 {
            self.report.done_twice.push(id);
        }
    }

    async fn one_transfer(&mut self) {
        let (from, to) = (self.account(), self.account());
        let amount = 1 + self.dice.below(5_000);
        if from != to {
            let body = format!(r#"{{"from":"{from}","to":"{to}","amount":{amount}}}"#);
            let _ = self.post("transfer", "/transfers", &body).await;
        }
    }

    async fn post(
        &mut self,
        what: &'static str,
        path: &str,
        body: &str,
    ) -> io::Result<HttpResponse> {
        let instance = self.instance();
        let name = &self.name;
        let answer = async { connect(instance, name).await?.request("POST", path, body).await };
        let answer = answer.await;
        self.report.note(what, &answer);
        answer
    }

    /// Asks, and leaves before the answer.
    async fn abandon(&mut self, path: &str) {
        if let Ok(mut client) = connect(self.instance(), &self.name).await
            && client.send("POST", path, "").await.is_ok()
        {
            tokio::time::sleep(Duration::from_millis(self.dice.below(20))).await;
            self.report.abandoned += 1;
        }
    }

    fn account(&mut self) -> &'static str {
        ACCOUNTS[self.dice.below(8) as usize]
    }

    fn instance(&mut self) -> SocketAddr {
        let count = self.plan.instances.len() as u64;
        self.plan.instances[self.dice.below(count) as usize]
    }
}

async fn connect(instance: SocketAddr, name: &str) -> io::Result<HttpClient> {
    Ok(HttpClient::connect(instance).await?.with_header("x-customer", name))
}

/// The same customers every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
