//! The life of one lock, a step a file: `acquire` → (while others are before: `waiter`, in a `batch`
//! of the `table`, which the `usher` takes to the store's queue) → `lease` (what is held, and its
//! deadline) → `hold` (the body, polled only before the deadline) → `release`. A `claim` is the token
//! that all of it is done under; `guard` is what the user has in hand, and `lapsed` are leases that
//! ran out there. `alleged` looks into what is said to have been taken away; `outage` keeps calls from
//! waiting for a store that is gone.

pub(crate) mod acquire;
mod alleged;
mod batch;
pub(crate) mod claim;
pub(crate) mod guard;
pub(crate) mod hold;
mod lapsed;
pub(crate) mod lease;
pub(crate) mod nested;
pub(crate) mod outage;
pub(crate) mod release;
pub(crate) mod table;
mod usher;
pub(crate) mod waiter;
pub(crate) mod witness;
