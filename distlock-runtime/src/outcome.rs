//! How a failed lock becomes the return value of the function it guards.
