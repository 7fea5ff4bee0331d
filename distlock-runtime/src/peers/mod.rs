//! Which process holds what: the questions about locks that the processes of one store ask each other (R15).
//!
//! Nothing is stored for it per lock. A process that wants to know asks the process that an owner token
//! names, on its wake-up channel, and gets one message: an [`Account`]. The store carries both, and no promise of a
//! lock rests on either: a process that does not answer, or lies, costs a name in what an operator sees.

mod answers;
mod asked;
pub(crate) mod lock_status;
mod questions;
mod report;

pub(crate) use answers::Answers;
#[allow(unreachable_pub)] // Public for the model.
pub use asked::{Asked, Asker};
pub(crate) use questions::{Questions, Want, Way};
pub(crate) use report::{Account, AccountWriter, HeldLock, Place};

/// No message is longer, in bytes.
pub(crate) const LONGEST_MESSAGE: usize = 64 * 1024;

/// Whether a text may be the name of a process: in a message it may come from any client.
fn is_process(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(is_part)
}
