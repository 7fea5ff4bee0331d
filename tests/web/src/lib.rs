//! Locks behind real HTTP servers. The same site is served by axum and by actix-web, and the same
//! questions are asked of both over TCP; nothing else is in this package, so that nothing else waits
//! for the frameworks to be built.

pub mod promises;
pub mod site;

/// The recipes on the attribute's page.
#[cfg(doctest)]
#[doc = include_str!("../../../src/redis_lock_web.md")]
struct Recipes;

/// The page of `route_key!`.
#[cfg(doctest)]
#[doc = include_str!("../../../src/route_key.md")]
struct RouteKeys;

/// What is written for both frameworks in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/web.md")]
struct Guide;

/// The first thing that users read.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
