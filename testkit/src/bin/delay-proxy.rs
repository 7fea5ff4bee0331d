//! A TCP proxy that delays each direction, for measurements as over a network.
//!
//! Prints the address it listens on, and runs until its standard input ends:
//!
//! ```sh
//! cargo run --release -p distlock-testkit --bin delay-proxy -- 127.0.0.1:6379 0.25
//! ```
#![allow(clippy::print_stdout, reason = "the address is its answer")]

use std::io::Read;
use std::time::Duration;

use distlock_testkit::{Mode, Proxy};

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(server), Some(ms)) = (args.next(), args.next()) else {
        panic!("usage: delay-proxy HOST:PORT MILLISECONDS");
    };
    let delay: f64 = ms.parse().expect("milliseconds as a number");
    let proxy = Proxy::to(server.parse().expect("an address like 127.0.0.1:6379"));
    proxy.set(Mode::Delay(Duration::from_secs_f64(delay / 1000.0)));
    println!("{}", proxy.addr());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
