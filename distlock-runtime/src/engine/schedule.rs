//! The former names, for the Redis store.

pub(crate) use super::alarm::{Alarm, Alarms as Schedule};
