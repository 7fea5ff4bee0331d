//! The facts that `distlock` asks each operating system for in its own way. It is a crate of its own so that
//! `distlock-core` has no code that differs between systems. Use the `distlock` crate; this one has no stability of its
//! own.

#[cfg_attr(not(unix), path = "clock_elsewhere.rs")]
mod clock;

pub use clock::{boottime, host_name};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn boottime_moves_forward() {
        let first = super::boottime();
        std::thread::sleep(Duration::from_millis(2));
        assert!(super::boottime() - first >= 2_000_000);
    }
}
