//! The Lua scripts, and how they are run: by hash; as text where the server does not know the hash, and
//! the first time on a connection where order matters. Never by `SCRIPT LOAD`, which a cluster client
//! sends to every node. Without a shebang line: a script that has one is refused under `maxmemory`
//! even if it only frees.
//!
//! The hot part of a script comes first, before closures are made that it does not call: making them
//! costs more than asking whether the queue exists.

use std::borrow::Cow;
use std::io::Write;

use distlock_core::limit::Limit;
use distlock_core::name::LockName;
use redis::{Cmd, RedisWrite, ToRedisArgs, ToSingleRedisArg};

/// A script: its text, and the hash by which the server knows it.
pub(crate) struct Script {
    text: Cow<'static, str>,
    hash: String,
    /// Its bit among the scripts that every connection first sends as text; 0 if it is not one.
    pub(crate) bit: u8,
}

impl Script {
    fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash, bit: 0 }
    }

    /// A script that nothing sent later may overtake, as would happen if the server first had to
    /// answer that it does not know the hash: a guard is dropped, and its lock taken again.
    fn in_order(bit: u8, text: impl Into<Cow<'static, str>>) -> Self {
        Self { bit, ..Self::new(text) }
    }

    /// The alone token of a lock becomes another one.
    pub(crate) fn downgrade(wakes: Wakes) -> Self {
        let text = concat!(
            "local v, n, first = redis.pcall('GET', KEYS[1]), 0, nil\n",
            include_str!("lua/prelude.lua"),
            include_str!("lua/fence.lua"),
            include_str!("lua/downgrade.lua")
        );
        Self::in_order(16, wakes.of(text))
    }

    /// A token without a majority steps back.
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

    /// Runs it from the server's cache.
    pub(crate) fn by_hash(&self, keys: &[Arg<'_>], args: &[Arg<'_>]) -> Cmd {
        call("EVALSHA", &self.hash, keys, args)
    }

    /// Runs it and fills the server's cache.
    pub(crate) fn by_text(&self, keys: &[Arg<'_>], args: &[Arg<'_>]) -> Cmd {
        call("EVAL", &self.text, keys, args)
    }
}

/// How scripts send messages to other processes, and see whether one is there to hear them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// To all subscribers of a process's channel.
    Channels,
    /// Within the part of a cluster that has the lock. One more argument, the last, is the tag of its slot, which is in
    /// the names of the channels there; or nothing, where the cluster's messages go to all nodes.
    Shards,
}

/// What stands before a script that [sends messages within its shard](Wakes::Shards).
const SHARDS: &str = "local tag = table.remove(ARGV)
local PUBLISH, NUMSUB = 'SPUBLISH', 'SHARDNUMSUB'
if tag == '' then
  PUBLISH, NUMSUB = 'PUBLISH', 'NUMSUB'
else
  tag = '{' .. tag .. '}:'
end
";

/// Stands where a script begins to remove keys that it may touch again.
const STAYS: &str = "-- (In a cluster: whether the slot stays where it is.)\n";

/// What stands there in a cluster: a look at a key that is never there. While a slot moves key by key, the node that it
/// leaves refuses whatever is not there any more, in the middle of a script as well, and what was done by then stays
/// done. So it refuses this, and nothing was done.
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

/// One step of a lock's life as two scripts: they differ in their hot parts, so that tokens that are alone
/// and tokens that are not each have what they need first.
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

    /// A release of the lock alone.
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

    /// The script for exclusive tokens, and the one for shared tokens.
    pub(crate) fn both(self) -> (Script, Script) {
        (self.alone, self.shared)
    }

    /// The script for tokens with this limit.
    pub(crate) fn of(&self, limit: Limit) -> &Script {
        if limit.is_alone() { &self.alone } else { &self.shared }
    }
}

/// A key or an argument, written to the command without a `String` of its own.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Text(&'a str),
    Number(u64),
    /// The name of a lock's queue.
    Queue(&'a LockName),
}

impl Arg<'_> {
    /// Its length, or more.
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
                    // Into memory: it cannot fail.
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

/// What a script is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Take the lock, confirm it, wait for it.
    Acquire,
    /// Free it, or leave its queue.
    Release,
    /// Extend a lease.
    Renew,
    /// Give the lock from a token that has it alone to one that does not keep others out.
    Downgrade,
    /// Free the lock while its slot of a cluster is being migrated, and touch no other key.
    Free,
    /// Raise the fence counter.
    Raise,
}

/// The text of a script, for tokens that have the lock alone or for others.
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
