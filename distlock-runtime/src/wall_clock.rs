//! The wall clock of this machine, for what people are told of processes where a store does not tell the time. It may
//! jump, so no lock depends on it.

/// In seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(0, |time| time.as_secs())
}
