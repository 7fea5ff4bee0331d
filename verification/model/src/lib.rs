//! The waiting protocol, checked: the product's own state machine of a lock (`distlock_core::line`) on a modelled
//! server and network, exhaustively and at random; and its counting of a quorum's votes on several. See the
//! README beside it.

mod actions;
mod check;
mod config;
mod driver;
mod explore;
mod fingerprint;
mod invariants;
mod mutants;
mod names;
mod network;
mod normal;
pub mod quorum;
mod random;
mod scenarios;
mod server;
mod setting;
mod shrink;
mod simulate;
mod swarm;
mod token;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod unchanged;
mod world;

pub use check::{Outcome, Violation, check, most_memory};
pub use invariants::Invariant;
pub use mutants::Mutant;
pub use scenarios::{Scenario, scenarios};
pub use simulate::{Failure, Simulated, simulate, simulate_broken};
