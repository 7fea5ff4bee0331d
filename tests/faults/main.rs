//! What can go wrong, and what comes of it: one named test for each entry of the catalogue that one
//! machine allows. `README.md` beside this file is the table; `table.rs` keeps the two together.
//!
//! A test's name starts with the entry it shows, and says the outcome.

mod closing;
mod counter;
mod crowd;
mod cycle;
mod engine;
mod fork;
mod grace;
mod hints;
mod identity;
mod input;
mod limits;
mod links;
mod load;
mod logging;
mod messages;
mod network;
mod older;
mod outage;
mod pairing;
mod questions;
mod refusals;
mod release;
mod renewals;
mod scripts;
mod server;
mod several;
mod sharing;
mod subscription;
mod support;
mod table;
mod tap;
mod time;
mod waiting;
