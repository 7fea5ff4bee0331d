//! What an annotated function is: what compiles and what rustc says, which key it locks, what its
//! options do, what it returns, and its future. On the in-memory store, where a store's kind does not
//! matter.

mod future;
mod keys;
mod options;
mod returns;
mod sharing;
mod support;
mod ui;
