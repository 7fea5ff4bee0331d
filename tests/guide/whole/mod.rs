//! The tests that the guide shows, as programs: rustdoc leaves out functions with `#[test]`, so they would
//! not even be compiled where they are shown. `shown.rs` checks that pages and files say the same.

// As tests of users do.
#![allow(clippy::unwrap_used)]

#[rustfmt::skip] // as on the page
mod a_lost_lock;
#[rustfmt::skip]
mod on_a_server;
#[rustfmt::skip]
mod permits;
#[rustfmt::skip]
mod what_can_go_wrong;
