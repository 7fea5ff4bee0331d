//! The facts that `distlock` asks each operating system for in its own way. It is a crate of its own so that
//! `distlock-core` has no code that differs between systems. Use the `distlock` crate; this one has no stability of its
//! own.

mod clock;

pub use clock::boottime;

/// Returns the name of this machine, or of the container.
#[cfg(unix)]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the name of this machine.
#[cfg(not(unix))]
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".into())
}
