//! Real redis-server processes and a faulty network for the tests of distlock.
//!
//! Everything here panics when it cannot do its work: it is called from tests, and a test without
//! its server or its network has failed. Nothing started here outlives the test process, however
//! that ends.
//!
//! ```no_run
//! use distlock_testkit::{Mode, Proxy, RedisServer, wait_until};
//!
//! let mut server = RedisServer::start();
//! let proxy = Proxy::to(server.addr());
//! // … let the code under test talk to `proxy.url()` …
//! proxy.set(Mode::DropDown);
//! server.kill9();
//! server.restart();
//! wait_until("the lock is free", || server.lock_keys().is_empty());
//! ```

mod data;
mod http;
mod log;
mod poll;
mod process;
mod proxy;
mod server;
mod wait;

pub use data::data_at;
pub use http::{HttpClient, HttpResponse};
pub use log::Log;
pub use poll::{in_line, poll_once};
pub use process::{Fork, Service, fork_self, in_fork, without_threads};
pub use proxy::{Mode, Proxy};
pub use server::{RedisServer, RedisServerBuilder};
pub use wait::{wait_for, wait_until, wait_within};
