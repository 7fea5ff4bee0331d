//! Locks in services that are not web frameworks: tonic and tower. Nothing else is in this package, so that
//! nothing else waits for them to be built.
