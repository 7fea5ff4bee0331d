//! What a lock promises, with a server that does its part: one at a time, in order, renewed while it
//! is held, and free however its holder ends. What goes wrong outside is in `tests/faults/`.

mod blocking;
mod cancellation;
mod conformance;
mod driver_placement;
mod endings;
mod ensembles;
mod etcd;
mod exclusion;
mod foreign;
mod holding;
mod inspect;
mod interleavings;
mod leader;
mod manager;
mod members;
mod memory;
mod nested;
mod observer;
mod options;
mod postgres;
mod renewal;
mod scripts;
mod several;
mod shared_manager;
mod sharing;
mod testing;
mod testing_server;
mod testing_shared;
mod waiting;
mod zookeeper;
