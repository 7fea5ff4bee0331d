//! Redis Sentinel.
//!
//! | file | contents |
//! |---|---|
//! | `sentinels` | following the sentinels, and finding the primary |
//! | `known_sentinels` | the sentinels that are followed, each of them once |
//! | `primary` | the primary, by the votes of the sentinels |

pub(crate) mod known_sentinels;
pub(crate) mod primary;
pub(crate) mod sentinels;
