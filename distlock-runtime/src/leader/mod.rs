//! Leader election: of all processes that campaign under a key, one leads.
//!
//! A term is a lease of the key's lock, and a candidate waits for that lock as any other call does: in order,
//! and woken without polling. So two candidates lead at once only if two callers could hold one lock. What
//! is added is to begin again: `campaign` says when, `run` does it around a body, `handle` for a program
//! that asks whether it leads.

mod campaign;
mod handle;
mod outcome;
mod request;
mod run;
mod term;

pub use handle::{Leader, Leadership};
pub use outcome::TermOutcome;
pub use request::LeaderRequest;
pub use term::Term;
