//! What the tests of distlock have in common: real redis-server processes, a faulty network, processes
//! of their own, managers, and looks at what is stored.
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

mod calls;
mod certificates;
mod cluster;
pub mod conformance;
mod data;
mod ensemble;
mod etcd;
mod http;
mod info;
mod log;
mod manager;
mod own_server;
mod pgbouncer;
mod poll;
mod postgres;
mod process;
mod proxy;
mod quorum;
mod refusal;
mod running;
mod scripts;
mod sentinels;
mod server;
mod stored;
mod time;
mod wait;
mod wall_clock;
mod zookeeper;

pub use calls::{
    Waiting, assert_busy, assert_lost, backend, held, served, settle, waits, whole_text,
};
pub use certificates::{Certificate, Certificates};
pub use cluster::{Cluster, ClusterBuilder};
pub use data::{Data, data_at, environment};
pub use ensemble::{Ensemble, Member};
pub use etcd::{Etcd, EtcdServer, base64, no_key_is_left};
pub use http::{HttpClient, HttpResponse};
pub use info::{clients, connections, info, runs};
pub use log::Log;
pub use manager::{connect, connect_all, notified, patient, patient_builder};
pub use pgbouncer::PgBouncer;
pub use poll::{block_on, dropped_after, in_line, poll_now, poll_once};
pub use postgres::{PostgresServer, no_row_is_left};
pub use process::{Fork, Service, fork_self, in_fork, in_own_process, test_name, without_threads};
pub use proxy::{Mode, Proxy};
pub use quorum::Quorum;
pub use refusal::Refusal;
pub use running::Running;
pub use scripts::{Args, Bench, Said, Sight};
pub use sentinels::{Sentinels, SentinelsBuilder};
pub use server::{RedisServer, RedisServerBuilder, major_version};
pub use stored::{nothing_is_left, owner, queue, stand, stored, ttl_of};
pub use time::{LONG, SECOND, ms};
pub use wait::{wait_for, wait_until, wait_within};
pub use wall_clock::WallClock;
pub use zookeeper::{ZooKeeper, ZooKeeperPath, ZooKeeperServer};
