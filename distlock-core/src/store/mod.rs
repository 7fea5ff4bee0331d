//! The boundary between locks and the place that keeps them: the trait [`Store`] and its vocabulary.
//!
//! A store knows owner tokens and the commands for them: try once, stand in the queue, renew, release. It has a clock. It
//! knows no leases and no waiters of this process. Retries over time and the cancellation of calls are the same for every
//! store, so the runtime does them (`lock` and `engine` in `distlock-runtime`). A store that can notify waiters says so. A
//! store that asks several servers does that behind the same operations.
//!
//! | file | contents |
//! |---|---|
//! | `interface.rs` | [`Store`], which every store implements, and [`ProcessDirectory`] for stores of several processes |
//! | `admin.rs` | [`StoreAdmin`], the commands of operators |
//! | `operation.rs` | [`Op`], the requests, and the answers to them |
//! | `owner.rs` | [`Owner`], an owner token and the commands that were sent for it |
//! | `term.rs` | [`Term`], the length of a lease |
//! | `fault.rs` | [`Fault`], the failure of an operation |
//! | `reports.rs` | [`Notification`], [`StoreEvents`] and [`StoreStatus`], the reports of a store about itself |
//! | `record.rs`, `contention.rs` | two parts that several stores are built from |
//!
//! Other crates can implement a store, too. They pass it to the hidden method `LockManagerBuilder::store`. Nothing here is
//! stable, so such a crate depends on the exact version of this one.

pub mod admin;
pub mod contention;
mod fault;
mod interface;
mod operation;
pub mod owner;
pub mod record;
mod reports;
pub mod term;

pub use admin::StoreAdmin;
pub use fault::{BackendKind, Fault};
pub use interface::{Outage, ProcessDirectory, ProcessMessage, Records, Store};
pub use operation::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Freed, Held, Holder, Op, OpOn, Owned,
    Renewal, Renewed,
};
pub use owner::Owner;
pub use reports::{
    DrivenBy, LinkWatch, Listener, LockFilter, Message, Notification, StoreEvents, StoreStatus,
    WakeUps,
};
pub use term::Term;

pub use crate::clock::{Clock, Moment};
pub use crate::limit::Limit;
pub use crate::name::{LockName, StoredName};
pub use crate::process_info::ProcessInfo;
pub use crate::token::Token;
