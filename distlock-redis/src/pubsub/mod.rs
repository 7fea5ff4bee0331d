pub(crate) mod letters;
pub(crate) mod prefixes;
pub(crate) mod shards;
pub(crate) mod subscription;
