//! Locks in services that are not web frameworks: tonic and tower. Nothing else is in this package, so that
//! nothing else waits for them to be built.

/// The guide's page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/grpc_tower.md")]
struct Guide;
