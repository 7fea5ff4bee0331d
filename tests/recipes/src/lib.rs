//! The guide's recipes, run beside a Postgres of their own. They are in a workspace of their own, so that no
//! other build waits for what they need.
//!
//! Each file in `tests/` begins with what the page shows; `tests/guide/shown.rs` of the main workspace checks
//! that both say the same.
