//! Locks on what Redis is deployed as, each a module: what it promises there, and what goes wrong there.

mod kinds;
mod redlock;
mod replicas;
mod sentinel;
mod tls;
