//! The Lua that locks need, and how it is run: by its hash, and with its text where the server does
//! not have it, or the first time on a connection where order matters. Never by `SCRIPT LOAD`, which
//! a cluster client sends to every node. Without a shebang line: a script that declares itself is
//! refused under `maxmemory` even if it only frees.
//!
//! What is hot comes first in a text, before closures are made that it does not call: they cost
//! more than the look at the queue.

use std::io::Write;

use redis::{Cmd, RedisWrite, ToRedisArgs, ToSingleRedisArg};

use crate::error::LockName;

/// A script: its text, and the hash by which the server knows it.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
    /// Its place among those whose text goes out first on every connection, as a bit.
    pub(super) bit: u8,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned(), bit: 0 }
    }

    /// One that must not be overtaken by what is sent behind it, as it would be if the server first
    /// had to say that it does not know the hash: a guard is dropped, and its lock taken again.
    fn in_order(bit: u8, text: &'static str) -> Self {
        Self { bit, ..Self::new(text) }
    }

    pub(crate) fn acquire() -> Self {
        let text = concat!(
            include_str!("lua/confirm.lua"),
            include_str!("lua/prelude.lua"),
            include_str!("lua/acquire.lua")
        );
        Self::in_order(1, text)
    }

    pub(crate) fn release() -> Self {
        let text = concat!(
            include_str!("lua/free.lua"),
            include_str!("lua/prelude.lua"),
            include_str!("lua/release.lua")
        );
        Self::in_order(2, text)
    }

    pub(crate) fn renew() -> Self {
        Self::new(include_str!("lua/renew.lua"))
    }

    pub(crate) fn raise() -> Self {
        Self::new(include_str!("lua/raise.lua"))
    }

    /// Runs it from the server's cache.
    pub(crate) fn by_hash(&self, keys: &[Word<'_>], args: &[Word<'_>]) -> Cmd {
        call("EVALSHA", &self.hash, keys, args)
    }

    /// Runs it and fills the server's cache.
    pub(crate) fn by_text(&self, keys: &[Word<'_>], args: &[Word<'_>]) -> Cmd {
        call("EVAL", self.text, keys, args)
    }
}

/// A key or an argument, written where it goes without a text of its own before.
#[derive(Clone, Copy)]
pub(crate) enum Word<'a> {
    Text(&'a str),
    Number(u64),
    /// The name of a lock's queue.
    Queue(&'a LockName),
}

impl Word<'_> {
    /// How long it is at most.
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Number(_) => 20,
            Self::Queue(lock) => lock.queue().iter().map(|part| part.len()).sum(),
        }
    }
}

impl ToRedisArgs for Word<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self {
            Self::Text(text) => out.write_arg(text.as_bytes()),
            Self::Number(number) => number.write_redis_args(out),
            Self::Queue(lock) => {
                let mut out = out.writer_for_next_arg();
                for part in lock.queue() {
                    // Into memory: it cannot fail.
                    let _ = out.write_all(part.as_bytes());
                }
            }
        }
    }
}

impl ToSingleRedisArg for Word<'_> {}

fn call(name: &str, script: &str, keys: &[Word<'_>], args: &[Word<'_>]) -> Cmd {
    let words = keys.iter().chain(args);
    let size = words.clone().map(Word::len).sum::<usize>() + script.len() + 16;
    let mut call = Cmd::with_capacity(3 + keys.len() + args.len(), size);
    call.arg(name).arg(script).arg(keys.len());
    for word in words {
        call.arg(word);
    }
    call
}
