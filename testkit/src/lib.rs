//! Real redis-server processes and a faulty network for the tests of distlock.
