//! The wall clock of this machine, for times that are shown to operators where the store has no clock. It may
//! jump, so no lock depends on it.

/// In seconds since 1970.
pub fn unix_time() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(0, |time| time.as_secs())
}
