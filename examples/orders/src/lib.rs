//! A small shop, without its web server: orders are placed, paid and cancelled, and money goes from
//! one account to another. `axum_orders` and `actix_orders` serve it, with the page in `page.html`.
//!
//! ```sh
//! cargo run -p axum_orders
//! cargo run -p actix_orders -- --port 3001
//! ```
//!
//! By itself each of them keeps orders, accounts and locks in memory. With `DISTLOCK_URL` they are in
//! Redis, and any number of instances of either kind are one shop:
//!
//! ```sh
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run -p axum_orders -- --port 3000
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run -p axum_orders -- --port 3001
//! cargo run -p orders_load -- 127.0.0.1:3000 127.0.0.1:3001
//! ```
//!
//! `/metrics` is for Prometheus; `contrib/` has a dashboard and alerts. The page shows who holds which lock, at
//! whichever instance, as [`inspect`](distlock::LockManager::inspect) says.
//!
//! Orders and balances are read, looked at for a while, and then written: without the locks an order
//! would be paid twice as soon as two customers are quick enough. A payment takes the lock of its
//! order and the one of its customer's account. What the shop earns is added up by the store in one
//! step, which needs no lock: every call would wait for the same one.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to a person")]

mod arguments;
mod board;
mod books;
mod error;
mod held;
mod process;
mod shop;

pub use arguments::Arguments;
pub use board::Turn;
pub use books::{Account, Audit, Books, Order, State};
pub use error::ShopError;
pub use process::{asked_to_end, listen, run};
pub use shop::{NewOrder, Shop, Transfer};

/// The page, which asks `/api/board` what is going on.
pub const PAGE: &str = include_str!("page.html");
