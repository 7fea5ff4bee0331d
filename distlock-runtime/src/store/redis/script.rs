//! The Lua that locks need, and how it is run: by its hash, with its text where the server does
//! not have it. Never by `SCRIPT LOAD`, which a cluster client sends to every node. Without a
//! shebang line: a script that declares itself is refused under `maxmemory` even if it only frees.
//!
//! What is hot comes first in a text, before closures are made that it does not call: they cost
//! more than the look at the queue.

use redis::Cmd;

/// A script: its text, and the hash by which the server knows it.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    pub(crate) fn acquire() -> Self {
        Self::new(concat!(
            include_str!("lua/confirm.lua"),
            include_str!("lua/prelude.lua"),
            include_str!("lua/acquire.lua")
        ))
    }

    pub(crate) fn release() -> Self {
        Self::new(concat!(
            include_str!("lua/free.lua"),
            include_str!("lua/prelude.lua"),
            include_str!("lua/release.lua")
        ))
    }

    pub(crate) fn renew() -> Self {
        Self::new(include_str!("lua/renew.lua"))
    }

    pub(crate) fn raise() -> Self {
        Self::new(include_str!("lua/raise.lua"))
    }

    /// Runs it from the server's cache.
    pub(crate) fn by_hash(&self, keys: &[&str], args: &[&str]) -> Cmd {
        call("EVALSHA", &self.hash, keys, args)
    }

    /// Runs it and fills the server's cache.
    pub(crate) fn by_text(&self, keys: &[&str], args: &[&str]) -> Cmd {
        call("EVAL", self.text, keys, args)
    }
}

fn call(name: &str, script: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let words = keys.iter().chain(args);
    let size = words.map(|word| word.len()).sum::<usize>() + script.len() + 16;
    let mut call = Cmd::with_capacity(3 + keys.len() + args.len(), size);
    call.arg(name).arg(script).arg(keys.len());
    for word in keys.iter().chain(args) {
        call.arg(*word);
    }
    call
}
