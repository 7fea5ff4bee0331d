//! What is recorded of locks: every metric in a scrape, sums that are right whatever becomes of calls,
//! recorders that come late or belong to one thread, labels, what the server is sent, and what is shipped to
//! look at them.

mod balance;
mod labels;
mod recorders;
mod scrape;
mod sent;
mod shipped;
mod text;
