//! Who holds what: the questions about locks that the processes of one store ask each other (R15).
//!
//! Nothing is stored for them per lock. A process asks the process that an owner token names, on its wake-up channel,
//! and gets one message with a [`PeerReport`]. The store carries both. No promise of a lock depends on either: a process
//! that does not answer, or lies, only costs a name in the output for operators.

mod lock_status;
mod questions;
mod report;

pub(crate) use distlock_core::questions::{Asker, Subject};
pub(crate) use lock_status::{LockReports, wanted};
pub(crate) use questions::{Answers, QuestionRoute, Questions, Want};
pub(crate) use report::{HeldLock, LONGEST_MESSAGE, PeerReport, ReportWriter, WaitingCalls};
