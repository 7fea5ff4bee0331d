//! What can go wrong, and what comes of it: one named test for each entry of the catalogue that one
//! machine allows. `README.md` beside this file is the table; `table.rs` keeps the two together.
//!
//! A test's name starts with the entry it shows, and says the outcome.

mod limits;
mod load;
mod network;
mod server;
mod support;
mod table;
mod waiting;
