//! The commands about locks. Each gets a connection to the node that has the lock.
//!
//! | file | contents |
//! |---|---|
//! | `acquire` | the fast path: one attempt without Lua |
//! | `queue` | waiting in the queue, and attempts to share a lock |
//! | `run_script` | running a script that may grant the lock, and exchanging its token |
//! | `renew` | renewals of many leases at once, also in a cluster |
//! | `release` | releases, also while a slot is being migrated |
//! | `fence` | the counters of fencing tokens |
//! | `raise_counters` | raising the counters of several slots |
//! | `confirm` | confirmation of writes by replicas |
//! | `inspect` | queries that change nothing |
//! | `admin` | commands of operators' tools |
//! | `first_contact` | reporting mistakes early, and the trial of all scripts |
//! | `server` | the state that all commands share |

pub(crate) mod acquire;
pub(crate) mod admin;
pub(crate) mod confirm;
pub(crate) mod fence;
pub(crate) mod first_contact;
pub(crate) mod inspect;
pub(crate) mod queue;
pub(crate) mod raise_counters;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run_script;
pub(crate) mod server;
