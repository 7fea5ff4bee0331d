//! The Lua that locks need, and how it is run: by its hash, with its text where the server does
//! not have it. Never by `SCRIPT LOAD`, which a cluster client sends to every node. Without a
//! shebang line: a script that declares itself is refused under `maxmemory` even if it only frees.

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

    pub(crate) fn release() -> Self {
        Self::new(include_str!("release.lua"))
    }

    pub(crate) fn renew() -> Self {
        Self::new(include_str!("renew.lua"))
    }

    pub(crate) fn raise() -> Self {
        Self::new(include_str!("raise.lua"))
    }

    /// Runs it from the server's cache.
    pub(crate) fn by_hash(&self, key: &str, args: &[&[u8]]) -> Cmd {
        call("EVALSHA", &self.hash, key, args)
    }

    /// Runs it and fills the server's cache.
    pub(crate) fn by_text(&self, key: &str, args: &[&[u8]]) -> Cmd {
        call("EVAL", self.text, key, args)
    }
}

fn call(name: &str, script: &str, key: &str, args: &[&[u8]]) -> Cmd {
    let size = args.iter().map(|arg| arg.len()).sum::<usize>() + script.len() + key.len() + 16;
    let mut call = Cmd::with_capacity(4 + args.len(), size);
    call.arg(name).arg(script).arg(1).arg(key);
    for arg in args {
        call.arg(*arg);
    }
    call
}
