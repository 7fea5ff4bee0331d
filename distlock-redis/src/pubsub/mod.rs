pub(crate) mod messages;
pub(crate) mod prefixes;
pub(crate) mod subscription;
