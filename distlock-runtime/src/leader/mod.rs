//! Leader election: of all processes that campaign under a key, one leads.
//!
//! A term is a lease of the key's lock, and whoever campaigns waits for that lock: in order, without
//! polling, and woken as any other call. So nothing here can make two of them leaders that a lock would not;
//! what is added is to begin again: `campaign` says when, `run` does it around a body, `handle` for a program
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
