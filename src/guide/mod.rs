//! The guide, a page a module.
//!
//! Begin with [`start`]. [`keys`], [`attribute`] and [`waiting`] are the daily work; [`several`], [`sharing`]
//! and [`fencing`] are for when it gets serious. [`guarantees`] says what is promised and what breaks it.
//! [`jobs`], [`web`], [`grpc_tower`] and [`testing`] show whole cases. [`settings`] lists every feature, variable and
//! setting, and [`troubleshooting`] every message. [`operating`], [`observability`], [`stores`], [`production`] and
//! [`io`] are for operators. [`from_rust`] is for those who have a lock of their own, [`from_java`] for those who know
//! Redisson or ShedLock. [`wrong_ways`] shows the locks of tutorials failing, and [`faq`] answers the rest.
//! [`numbers`] and [`policy`] say how fast it is and what stays as it is.

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/start.md")]
pub mod start {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/keys.md")]
pub mod keys {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/attribute.md")]
pub mod attribute {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/diagrams/embedded.md")]
#[doc = include_str!("../../docs/guide/waiting.md")]
pub mod waiting {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/several.md")]
pub mod several {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/sharing.md")]
pub mod sharing {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/diagrams/embedded.md")]
#[doc = include_str!("../../docs/guide/fencing.md")]
pub mod fencing {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/diagrams/embedded.md")]
#[doc = include_str!("../../docs/guide/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/jobs.md")]
pub mod jobs {}

#[doc = include_str!("links.md")]
// Tested in `tests/recipes`, which has what they are for.
#[cfg_attr(not(doctest), doc = include_str!("../../docs/guide/recipes.md"))]
pub mod recipes {}

#[doc = include_str!("links.md")]
// Tested in `tests/web`, which has both frameworks.
#[cfg_attr(not(doctest), doc = include_str!("../../docs/guide/web.md"))]
pub mod web {}

#[doc = include_str!("links.md")]
// Tested in `tests/ecosystem`, which has tonic and tower.
#[cfg_attr(not(doctest), doc = include_str!("../../docs/guide/grpc_tower.md"))]
pub mod grpc_tower {}

#[doc = include_str!("links.md")]
// Its tests need the test kit.
#[cfg_attr(any(not(doctest), feature = "test-util"), doc = include_str!("../../docs/guide/testing.md"))]
pub mod testing {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/observability.md")]
pub mod observability {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/operating.md")]
pub mod operating {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/production.md")]
pub mod production {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/stores.md")]
pub mod stores {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/io.md")]
pub mod io {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/settings.md")]
pub mod settings {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/troubleshooting.md")]
pub mod troubleshooting {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/from_rust.md")]
pub mod from_rust {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/from_java.md")]
pub mod from_java {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/wrong_ways.md")]
pub mod wrong_ways {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/faq.md")]
pub mod faq {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/numbers.md")]
pub mod numbers {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/guide/policy.md")]
pub mod policy {}
