//! Leader election: of all processes that campaign under a key, one leads.
//!
//! A term is a lease of the key's lock, and a candidate waits for that lock as any other call does: in order, and
//! notified without polling. So two candidates lead at once only if two callers could hold one lock. The election only
//! adds the repetition: `campaign` asks for the next term, and runs a body in each; `handle` is for a program that asks
//! whether it leads.

mod campaign;
mod handle;
mod term;

pub use campaign::LeaderRequest;
pub use handle::{Leader, Leadership};
pub use term::{Term, TermOutcome};
