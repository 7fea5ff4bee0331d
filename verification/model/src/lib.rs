//! The waiting protocol as a state machine, checked exhaustively. See the README beside it.

mod actions;
mod check;
mod config;
mod invariants;
mod mutants;
mod network;
mod normal;
mod process;
mod scenarios;
mod server;
mod token;
mod world;

pub use check::{Outcome, check};
pub use invariants::Invariant;
pub use mutants::Mutant;
pub use scenarios::{Scenario, scenarios};
