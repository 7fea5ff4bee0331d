//! Sends customers to one or more instances of the shop, and checks its books after them:
//!
//! ```sh
//! cargo run -p orders_load -- 127.0.0.1:3000 127.0.0.1:3001 --customers 20 --seconds 5
//! ```
//!
//! With `--spellings 5000` they place so many orders, and pay and cancel each of them at once under
//! several spellings of its number.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to a person")]

use std::process::ExitCode;
use std::time::Duration;

use orders_load::{Plan, Spellings, audit, is_right, run, spell};

const USAGE: &str = "\
Usage: orders_load 127.0.0.1:3000 [another instance …]

Options:
  --customers 20    how many come at once, at most 200
  --seconds 5       how long they stay, at most 600
  --spellings 5000  instead of that: so many orders, each paid twice at every instance and cancelled
                    under several spellings of its number, all at once; at most 1000000
  --help            this text";

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some((plan, spellings)) = plan() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let report = match &spellings {
        Some(spellings) => spell(spellings).await,
        None => run(&plan).await,
    };
    println!("{report}");
    match audit(plan.instances[0]).await {
        Ok(audit) => {
            println!("  audit: {audit}");
            let right = report.done_twice.is_empty() && is_right(&audit);
            println!("{}", if right { "The books are right." } else { "THE BOOKS ARE WRONG." });
            if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("No audit: {error}");
            ExitCode::FAILURE
        }
    }
}

fn plan() -> Option<(Plan, Option<Spellings>)> {
    let mut plan = Plan { instances: Vec::new(), customers: 20, duration: Duration::from_secs(5) };
    let mut orders: Option<u32> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next()?.parse().ok();
        match argument.as_str() {
            "--customers" => plan.customers = number()?,
            "--seconds" => plan.duration = Duration::from_secs(number()?.into()),
            "--spellings" => orders = Some(number()?),
            instance => plan.instances.push(instance.parse().ok()?),
        }
    }
    let customers = plan.customers;
    let bounded = (1..=200).contains(&customers)
        && plan.duration <= Duration::from_secs(600)
        && orders.is_none_or(|orders| (1..=1_000_000).contains(&orders));
    let spellings = orders.map(|orders| {
        let orders = u64::from(orders.div_ceil(customers.max(1)));
        Spellings { instances: plan.instances.clone(), orders, customers }
    });
    (!plan.instances.is_empty() && bounded).then_some((plan, spellings))
}
