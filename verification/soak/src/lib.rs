//! Long runs of distlock under faults, with real servers. Each program prints figures, and says what
//! must never happen and did (a violation), and which figure is past its bound.
//!
//! `tests/short.rs` runs a short version of each through the same code, and looks at violations only:
//! figures belong to a quiet machine.

pub mod cancel;
pub mod capacity;
pub mod chaos;
mod effort;
pub mod ensembles;
pub mod failover;
pub mod faults;
mod figures;
pub mod handoffs;
pub mod held;
mod holder;
pub mod idle;
pub mod kept;
pub mod leaders;
pub mod outage;
pub mod pairs;
pub mod redlock;
pub mod refused;
mod report;
pub mod reshard;
pub mod scripts;
pub mod shards;
pub mod sharing;
pub mod stages;
mod stamp;
pub mod storm;
pub mod suspend;
pub mod waiters;

pub use effort::Effort;
pub use report::Report;
