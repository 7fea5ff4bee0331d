//! The Lua scripts, and the commands that run them.
//!
//! A script is run by its hash. It is run by its text if the server does not know the hash, and on its first use on a
//! connection if nothing may overtake it. `SCRIPT LOAD` is never used, because a cluster client sends it to every node.
//! No script has a shebang line: under `maxmemory`, a server refuses a script with a shebang even if the script only
//! frees memory.
//!
//! The frequent path of a script comes first, before closures that it does not call are created: creating them costs
//! more than asking whether the queue exists.

use std::borrow::Cow;
use std::io::Write;

use distlock_core::limit::Limit;
use distlock_core::name::LockName;
use redis::{Cmd, RedisWrite, ToRedisArgs, ToSingleRedisArg};

/// A script: its text, and the hash by which the server knows it.
pub(crate) struct Script {
    text: Cow<'static, str>,
    hash: String,
    /// The bit of a script that every connection sends as text the first time; 0 for other scripts.
    pub(crate) bit: u8,
}

impl Script {
    fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash, bit: 0 }
    }

    /// Makes a script that no later command may overtake. That could happen if the server first had to reply that it
    /// does not know the hash: a guard is dropped, and its lock acquired again.
    fn in_order(bit: u8, text: impl Into<Cow<'static, str>>) -> Self {
        Self { bit, ..Self::new(text) }
    }

    /// Replaces the exclusive token of a lock by another token.
    pub(crate) fn downgrade(wakes: Wakes) -> Self {
        let text = concat!(
            "local v, n, first = redis.pcall('GET', KEYS[1]), 0, nil\n",
            include_str!("lua/prelude.lua"),
            include_str!("lua/fence.lua"),
            include_str!("lua/downgrade.lua")
        );
        Self::in_order(16, wakes.of(text))
    }

    /// Takes back the vote of a token that has no majority.
    pub(crate) fn offer() -> Self {
        let text = concat!(
            "local v, n, first = redis.pcall('GET', KEYS[1]), 0, nil\n",
            include_str!("lua/prelude.lua"),
            include_str!("lua/offer.lua")
        );
        Self::in_order(32, text)
    }

    pub(crate) fn raise() -> Self {
        Self::new(include_str!("lua/raise.lua"))
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the command that runs the script from the server's cache.
    pub(crate) fn by_hash(&self, keys: &[Arg<'_>], args: &[Arg<'_>]) -> Cmd {
        call("EVALSHA", &self.hash, keys, args)
    }

    /// Returns the command that runs the script and adds it to the server's cache.
    pub(crate) fn by_text(&self, keys: &[Arg<'_>], args: &[Arg<'_>]) -> Cmd {
        call("EVAL", &self.text, keys, args)
    }
}

/// How scripts send messages to other processes, and check that they are subscribed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// To all subscribers of a process's channel.
    Channels,
    /// Within the shard that has the lock. The last argument is then the tag of the lock's slot, which is in the names
    /// of the channels there. It is empty if the cluster sends messages to all nodes.
    Shards,
}

/// The beginning of a script that [sends messages within its shard](Wakes::Shards).
const SHARDS: &str = "local tag = table.remove(ARGV)
local PUBLISH, NUMSUB = 'SPUBLISH', 'SHARDNUMSUB'
if tag == '' then
  PUBLISH, NUMSUB = 'PUBLISH', 'NUMSUB'
else
  tag = '{' .. tag .. '}:'
end
";

/// Marks where a script begins to remove keys that it may touch again.
const STAYS: &str = "-- (In a cluster: whether the slot stays where it is.)\n";

/// The replacement for that mark in a cluster: a look at a key that never exists. While a slot is being migrated key by
/// key, the old node refuses keys that it no longer has, even in the middle of a script, and the changes until then
/// stay. This look is refused before the script has changed anything.
const LOOK: &str = "redis.call('EXISTS', KEYS[1] .. '?')\n";

impl Wakes {
    fn of(self, text: &'static str) -> Cow<'static, str> {
        match self {
            Self::Channels => text.into(),
            Self::Shards => {
                let text = text.replace("'PUBLISH'", "PUBLISH").replace("'NUMSUB'", "NUMSUB");
                let text = text.replace(STAYS, LOOK);
                (SHARDS.to_owned() + &text.replace("'wake:'", "'wake:' .. tag")).into()
            }
        }
    }
}

/// One operation as two scripts. They differ in their frequent paths: one is for exclusive tokens, the other one for
/// shared tokens.
pub(crate) struct ScriptPair {
    alone: Script,
    shared: Script,
}

impl ScriptPair {
    pub(crate) fn acquire(wakes: Wakes) -> Self {
        let alone = concat!(
            include_str!("lua/confirm.lua"),
            include_str!("lua/prelude.lua"),
            include_str!("lua/fence.lua"),
            include_str!("lua/acquire.lua")
        );
        let shared = concat!(
            include_str!("lua/share.lua"),
            include_str!("lua/prelude.lua"),
            include_str!("lua/fence.lua"),
            include_str!("lua/acquire.lua")
        );
        let (alone, shared) = (wakes.of(alone), wakes.of(shared));
        Self { alone: Script::in_order(1, alone), shared: Script::in_order(2, shared) }
    }

    pub(crate) fn release(wakes: Wakes) -> Self {
        let alone = concat!(
            include_str!("lua/free.lua"),
            include_str!("lua/prelude.lua"),
            include_str!("lua/release.lua")
        );
        let shared = concat!(
            include_str!("lua/leave.lua"),
            include_str!("lua/prelude.lua"),
            include_str!("lua/release.lua")
        );
        let (alone, shared) = (wakes.of(alone), wakes.of(shared));
        Self { alone: Script::in_order(4, alone), shared: Script::in_order(8, shared) }
    }

    /// Frees the lock and does nothing else.
    pub(crate) fn free() -> Self {
        Self {
            alone: Script::new(include_str!("lua/free_lock.lua")),
            shared: Script::new(include_str!("lua/leave_lock.lua")),
        }
    }

    pub(crate) fn renew() -> Self {
        Self {
            alone: Script::new(include_str!("lua/renew.lua")),
            shared: Script::new(include_str!("lua/prolong.lua")),
        }
    }

    /// Returns the script for exclusive tokens, and the one for shared tokens.
    pub(crate) fn both(self) -> (Script, Script) {
        (self.alone, self.shared)
    }

    /// Returns the script for tokens with this limit.
    pub(crate) fn of(&self, limit: Limit) -> &Script {
        if limit.is_alone() { &self.alone } else { &self.shared }
    }
}

/// A key or an argument. It is written to the command without an allocation of its own.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Text(&'a str),
    Number(u64),
    /// The name of a lock's queue.
    Queue(&'a LockName),
}

impl Arg<'_> {
    /// Returns its length, or more.
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Number(_) => 20,
            Self::Queue(lock) => lock.queue().iter().map(|part| part.len()).sum(),
        }
    }
}

impl ToRedisArgs for Arg<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self {
            Self::Text(text) => out.write_arg(text.as_bytes()),
            Self::Number(number) => number.write_redis_args(out),
            Self::Queue(lock) => {
                let mut out = out.writer_for_next_arg();
                for part in lock.queue() {
                    // Writing to memory cannot fail.
                    let _ = out.write_all(part.as_bytes());
                }
            }
        }
    }
}

impl ToSingleRedisArg for Arg<'_> {}

fn call(name: &str, script: &str, keys: &[Arg<'_>], args: &[Arg<'_>]) -> Cmd {
    let words = keys.iter().chain(args);
    let size = words.clone().map(Arg::len).sum::<usize>() + script.len() + 16;
    let mut call = Cmd::with_capacity(3 + keys.len() + args.len(), size);
    call.arg(name).arg(script).arg(keys.len());
    for word in words {
        call.arg(word);
    }
    call
}

/// The purpose of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Acquires the lock, confirms a reservation, or waits.
    Acquire,
    /// Frees the lock, or leaves its queue.
    Release,
    /// Extends a lease.
    Renew,
    /// Replaces an exclusive token by one that admits others.
    Downgrade,
    /// Frees the lock while its slot of a cluster is being migrated, and touches no other key.
    Free,
    /// Raises the fence counter.
    Raise,
}

/// Returns the text of a script, for exclusive tokens if `alone` is set, else for shared tokens.
pub fn text(step: Step, alone: bool) -> String {
    let limit = if alone { Limit::ALONE } else { Limit::READ };
    let wakes = Wakes::Channels;
    match step {
        Step::Acquire => ScriptPair::acquire(wakes).of(limit).text().to_owned(),
        Step::Release => ScriptPair::release(wakes).of(limit).text().to_owned(),
        Step::Renew => ScriptPair::renew().of(limit).text().to_owned(),
        Step::Downgrade => Script::downgrade(wakes).text().to_owned(),
        Step::Free => ScriptPair::free().of(limit).text().to_owned(),
        Step::Raise => Script::raise().text().to_owned(),
    }
}
