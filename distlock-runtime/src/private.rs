//! What generated code calls, and nothing else. No stability: the crates are pinned to each other.
