//! Commands that a store is asked as they are, and its replies: see [`console`](crate::console).

/// A command as it is sent to the store: its name and arguments.
pub type StoreCommand = Vec<Vec<u8>>;

/// What the store answers to one command.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq)]
pub enum StoreReply {
    /// There is nothing.
    Nil,
    /// An integer.
    Number(i64),
    /// A text; it need not be UTF-8.
    Text(Vec<u8>),
    /// A list; maps are lists in which each key stands in front of its value.
    List(Vec<StoreReply>),
    /// The server refused this command; its words, without keys and other arguments.
    Error(String),
}
