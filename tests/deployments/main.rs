//! Locks on what Redis is deployed as, each a module: what it promises there, and what goes wrong there.

mod freed;
mod kinds;
mod promises;
mod quorum;
mod redlock;
mod replicas;
mod rights;
mod sentinel;
mod tls;
mod wrong_urls;
