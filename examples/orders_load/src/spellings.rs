//! Customers who know that a number has many spellings: `/orders/7`, `/orders/07`, `/orders/+7`. An
//! order has one lock, whatever it is called.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use distlock_testkit::{HttpClient, HttpResponse};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{ACCOUNTS, Dice, Report, connect};

/// Every order is paid twice at each instance and cancelled under each spelling, all at once.
#[derive(Debug, Clone)]
pub struct Spellings {
    /// The instances of the shop.
    pub instances: Vec<SocketAddr>,
    /// How many orders are placed by each customer.
    pub orders: u64,
    /// How many customers do this at the same time.
    pub customers: u32,
}

const SPELLINGS: [&str; 4] = ["{}", "0{}", "%2B{}", "000{}"];

/// Sends the customers in.
pub async fn spell(plan: &Spellings) -> Report {
    let start = Instant::now();
    let mut customers = JoinSet::new();
    for number in 0..plan.customers {
        let plan = plan.clone();
        customers.spawn(async move {
            let mut speller = Speller::new(number, &plan);
            for _ in 0..plan.orders {
                speller.one_order().await;
            }
            speller.report
        });
    }
    let mut report = Report::default();
    while let Some(customer) = customers.join_next().await {
        report.add(customer.expect("a customer does not panic"));
    }
    report.time = start.elapsed();
    report
}

/// A connection that is used for one request of each order.
struct Seat {
    instance: SocketAddr,
    what: &'static str,
    spelling: &'static str,
    client: Option<HttpClient>,
}

impl Seat {
    fn new(instance: SocketAddr, what: &'static str, spelling: &'static str) -> Self {
        Self { instance, what, spelling, client: None }
    }

    async fn post(&mut self, path: &str, body: &str) -> io::Result<HttpResponse> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => connect(self.instance, "a speller").await?,
        };
        let answer = client.request("POST", path, body).await?;
        self.client = Some(client);
        Ok(answer)
    }
}

struct Speller {
    seats: Vec<Seat>,
    account: &'static str,
    dice: Dice,
    report: Report,
}

impl Speller {
    fn new(number: u32, plan: &Spellings) -> Self {
        let everywhere = || plan.instances.iter().copied().cycle();
        let payments = everywhere().take(2 * plan.instances.len()).zip(SPELLINGS.iter().cycle());
        // Each spelling at another instance than the payment that is spelled the same.
        let cancellations = everywhere().skip(1).zip(SPELLINGS.iter());
        let place = Seat::new(plan.instances[0], "place", "");
        let payments = payments.map(|(instance, spelling)| Seat::new(instance, "pay", spelling));
        let cancellations =
            cancellations.map(|(instance, spelling)| Seat::new(instance, "cancel", spelling));
        let seats = [place].into_iter().chain(payments).chain(cancellations).collect();
        let account = ACCOUNTS[number as usize % ACCOUNTS.len()];
        Self { seats, account, dice: Dice(number.into()), report: Report::default() }
    }

    async fn one_order(&mut self) {
        let account = self.account;
        let new = format!(r#"{{"account":"{account}","item":"a thing","amount":100}}"#);
        let placed = self.seats[0].post("/orders", &new).await;
        self.report.note("place", &placed);
        let order = placed.ok().and_then(|placed| serde_json::from_str::<Value>(&placed.body).ok());
        let Some(id) = order.and_then(|order| order["id"].as_u64()) else { return };
        let late = ["pay", "cancel"][self.dice.below(2) as usize];
        let mut requests = JoinSet::new();
        for mut seat in self.seats.drain(1..) {
            let wait = if seat.what == late { self.dice.below(4) } else { 0 };
            requests.spawn(async move {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                let number = seat.spelling.replace("{}", &id.to_string());
                let answer = seat.post(&format!("/orders/{number}/{}", seat.what), "").await;
                (seat, answer)
            });
        }
        let mut done = 0;
        while let Some(request) = requests.join_next().await {
            let (seat, answer) = request.expect("a request does not panic");
            self.report.note(seat.what, &answer);
            done += u32::from(answer.is_ok_and(|answer| answer.status == 200));
            self.seats.push(seat);
        }
        if done > 1 {
            self.report.done_twice.push(id);
        }
    }
}
