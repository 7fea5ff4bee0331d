//! Sends customers to one or more instances of the shop, and checks its books after them:
//!
//! ```sh
//! cargo run -p orders_load -- 127.0.0.1:3000 127.0.0.1:3001 --customers 20 --seconds 5
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to a person")]

use std::process::ExitCode;
use std::time::Duration;

use orders_load::{Plan, audit, is_right, run};

#[tokio::main]
async fn main() -> ExitCode {
    let plan = match plan() {
        Ok(plan) => plan,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::FAILURE;
        }
    };
    let report = run(&plan).await;
    println!("{report}");
    match audit(plan.instances[0]).await {
        Ok(audit) => {
            println!("  audit: {audit}");
            let right = report.paid_twice.is_empty() && is_right(&audit);
            println!("{}", if right { "The books are right." } else { "THE BOOKS ARE WRONG." });
            if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("No audit: {error}");
            ExitCode::FAILURE
        }
    }
}

fn plan() -> Result<Plan, &'static str> {
    const USAGE: &str = "Usage: orders_load 127.0.0.1:3000 [another instance …] [--customers 20] \
                         [--seconds 5]; at most 200 customers and 600 seconds";
    let mut plan = Plan { instances: Vec::new(), customers: 20, duration: Duration::from_secs(5) };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|number| number.parse().ok()).ok_or(USAGE);
        match argument.as_str() {
            "--customers" => plan.customers = number()?,
            "--seconds" => plan.duration = Duration::from_secs(number()?.into()),
            instance => plan.instances.push(instance.parse().map_err(|_| USAGE)?),
        }
    }
    let bounded = (1..=200).contains(&plan.customers) && plan.duration <= Duration::from_secs(600);
    if plan.instances.is_empty() || !bounded { Err(USAGE) } else { Ok(plan) }
}
