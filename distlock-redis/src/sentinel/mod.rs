pub(crate) mod known_sentinels;
pub(crate) mod primary;
pub(crate) mod sentinels;
