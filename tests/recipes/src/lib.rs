//! The guide's recipes, run beside a Postgres of their own. They are in a workspace of their own, so that no
//! other build waits for what they need.

/// The page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/recipes.md")]
struct Recipes;
