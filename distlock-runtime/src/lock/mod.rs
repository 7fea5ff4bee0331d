//! The life of one lock, a step a file: `acquire` (with `waiting` while others hold it) →
//! `lease` (what is held, and its deadline) → `hold` (the body, polled only before the deadline) →
//! `release`. `guard` is what the user has in hand.

pub(crate) mod acquire;
pub(crate) mod guard;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod nested;
pub(crate) mod release;
pub(crate) mod waiting;
