//! distlock on another store than Redis beside what is used there instead, in turns in one run.
//!
//! ```sh
//! cargo run --release -p distlock-bench --bin beside -- postgres
//! cargo run --release -p distlock-bench --bin beside -- etcd --peer 'NAME=COMMAND'
//! cargo run --release -p distlock-bench --bin beside -- zookeeper --peer 'NAME=COMMAND'
//! ```
//!
//! Postgres is measured beside an advisory lock and beside a row that is locked with `SELECT … FOR UPDATE`, each on a
//! connection of its own. A `COMMAND` is a driver in another process, such as those in `benches/peers`; `peer` says what it does.
#![allow(clippy::print_stdout, reason = "figures are its answer")]

mod dropped;
mod figures;
mod peer;
mod server;
mod shape;
mod way;

use figures::Figures;
use server::Server;
use shape::{SHAPES, Shape};
use way::Way;

const ROUNDS: usize = 3;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let store = args.next().expect("postgres, etcd or zookeeper");
    let server = Server::start(&store);
    let (mut ways, mut shapes) = (vec![Way::Distlock], &SHAPES[..]);
    if store == "postgres" {
        ways.extend([Way::Advisory, Way::ForUpdate]);
    }
    while let Some(option) = args.next() {
        match (&*option, args.next()) {
            ("--peer", Some(peer)) => {
                let (name, command) = peer.split_once('=').expect("--peer NAME=COMMAND");
                ways.push(Way::Peer { name: name.to_owned(), command: command.to_owned() });
            }
            ("--shape", Some(number)) => {
                let number: usize = number.parse().expect("a number from 1 on");
                shapes = &SHAPES[number - 1..number];
            }
            _ => panic!("--peer NAME=COMMAND and --shape NUMBER are all there is"),
        }
    }
    for shape in shapes {
        println!("{}:", shape.title);
        measure(&ways, shape, &server).await;
    }
    if store == "postgres" && shapes.len() == SHAPES.len() {
        println!(
            "{} calls dropped at a random moment, of a lock that is held half of the time:",
            dropped::CALLS
        );
        for way in &ways {
            println!("  {:22} {}", way.name(), dropped::left_behind(way, &server).await);
        }
    }
}

/// In turns, each beginning a round once; the round of the median rate, and the worst of all rounds.
async fn measure(ways: &[Way], shape: &Shape, server: &Server) {
    let mut rounds: Vec<Vec<Figures>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            let at = (turn + round) % ways.len();
            rounds[at].push(Figures::of(&ways[at], shape, server).await);
        }
    }
    let medians: Vec<_> = rounds.into_iter().map(Figures::median).collect();
    for (way, figures) in ways.iter().zip(&medians) {
        println!("  {:22} {}", way.name(), figures.beside(&medians[0]));
    }
}
