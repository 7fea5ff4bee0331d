//! The feature `metrics`: what happens to locks, as metrics of the facade
//! [`metrics`](https://docs.rs/metrics). With the feature and a recorder, every manager records; the guide
//! lists the names, on its page on observability.
//!
//! The label `lock` is the lock's name and never its key. One manager has labels for 500 names; further
//! ones share the label `other`.
//!
//! A recorder may be installed at any time, and a thread may have one of its own: what calls bring about
//! there is recorded there. What happens in the background goes to the recorder of the process, but the end
//! of a hold to the one that its beginning went to.

pub use crate::observe::metrics::{BUCKETS, register};
#[doc(hidden)]
pub use crate::observe::metrics::{Kind, METRICS, Metric};
