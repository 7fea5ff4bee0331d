//! Nothing but tests, in a package of its own: what they need is not built for anything else.
