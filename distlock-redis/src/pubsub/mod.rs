//! Messages between processes over pub/sub.
//!
//! | file | contents |
//! |---|---|
//! | `subscription` | the connection that is subscribed to this process's channels |
//! | `prefixes` | the prefixes whose channels are subscribed |
//! | `messages` | sending messages, and the channels of a cluster's shards |

pub(crate) mod messages;
pub(crate) mod prefixes;
pub(crate) mod subscription;
