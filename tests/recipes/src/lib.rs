//! The guide's recipes, run beside a Postgres of their own. They are in a workspace of its own, so that nobody else
//! waits for what they need.

/// The page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/recipes.md")]
struct Recipes;
