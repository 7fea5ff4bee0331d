//! The life of a lock under everything that callers, clocks and operators do to it. Which test stands
//! for which entry of the fault catalogue is in `README.md` beside this file.

mod cycle;
mod holding;
mod input;
mod nested;
mod several;
mod support;
mod time;
