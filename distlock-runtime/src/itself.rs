//! This process, as one of its managers.

pub(crate) use distlock_core::process_info::{ProcessInfo as Itself, shortened};
