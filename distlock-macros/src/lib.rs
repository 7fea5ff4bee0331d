//! The procedural macros of `distlock`. Use the `distlock` crate.
