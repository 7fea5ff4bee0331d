//! A store that checks fencing tokens: what to do where two holders at once would be wrong.
//!
//! ```sh
//! cargo run --example fenced_store
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example fenced_store
//! ```
//!
//! Ann and Bob pay into one account: read, add, write. Ann stands still between her last look at the
//! lock and her write (a suspended virtual machine, a long garbage collection, a swapped-out page),
//! for longer than her lease lasts. Bob gets the lock, rightly, and writes. Then Ann goes on.
//!
//! No lock can stop a write that is already past the last check. The store can: with each write it
//! is given the token of the lock it was made under, and refuses one that is smaller than the largest
//! it has seen. The story is told twice, without the check and with it.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use distlock::LockManager;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Short, so that no one has to wait long for Ann to be late.
const LEASE: Duration = Duration::from_millis(500);
const START: i64 = 100;

/// What keeps the balance, and the largest token that ever wrote it. The check and the write must be
/// one step, or another write could come between them.
enum Store {
    Memory(Mutex<Account>),
    Redis { connection: MultiplexedConnection, key: String },
}

#[derive(Default)]
struct Account {
    balance: i64,
    token: u64,
}

/// In Redis one step is a script. Tokens are compared as texts of digits: a number in Lua does not
/// tell two large neighbours apart.
const WRITE: &str = "
local largest = redis.call('HGET', KEYS[1], 'token') or '0'
local token = ARGV[1]
if #token < #largest or (#token == #largest and token < largest) then
  return 0
end
redis.call('HSET', KEYS[1], 'token', token, 'balance', ARGV[2])
return 1";

impl Store {
    async fn read(&self) -> Result<i64, Error> {
        match self {
            Self::Memory(account) => Ok(account.lock().map_err(|_| "poisoned")?.balance),
            Self::Redis { connection, key } => {
                let mut get = redis::cmd("HGET");
                Ok(get.arg(key).arg("balance").query_async(&mut connection.clone()).await?)
            }
        }
    }

    /// Writes whatever it is told: the store of most programs.
    async fn write_unchecked(&self, balance: i64) -> Result<(), Error> {
        match self {
            Self::Memory(account) => account.lock().map_err(|_| "poisoned")?.balance = balance,
            Self::Redis { connection, key } => {
                let mut set = redis::cmd("HSET");
                let set = set.arg(key).arg("balance").arg(balance);
                set.query_async::<()>(&mut connection.clone()).await?;
            }
        }
        Ok(())
    }

    /// Writes unless a larger token has written before; false if it refused. In SQL:
    /// `UPDATE account SET balance = $1, token = $2 WHERE id = $3 AND token <= $2`.
    async fn write_fenced(&self, balance: i64, token: u64) -> Result<bool, Error> {
        match self {
            Self::Memory(account) => {
                let mut account = account.lock().map_err(|_| "poisoned")?;
                if token < account.token {
                    return Ok(false);
                }
                *account = Account { balance, token };
                Ok(true)
            }
            Self::Redis { connection, key } => {
                let mut eval = redis::cmd("EVAL");
                let eval = eval.arg(WRITE).arg(1).arg(key).arg(token).arg(balance);
                Ok(eval.query_async(&mut connection.clone()).await?)
            }
        }
    }
}

struct Bank {
    locks: LockManager,
    store: Store,
    checks_tokens: bool,
    opened: Instant,
    ann_stands_still: Notify,
    bob_is_done: Notify,
}

impl Bank {
    /// Reads, adds and writes under the lock; false if the write was refused.
    async fn pay_in(&self, who: &str, amount: i64, stands_still: bool) -> Result<bool, Error> {
        // Renewal runs beside the code that holds the lock and stands still only with the whole
        // process. Here there is but one process, so Ann does without.
        let request = self.locks.lock("account:42").ttl(LEASE).renew(!stands_still);
        let guard = request.wait(Duration::from_secs(30)).acquire().await?;
        let token = guard.fencing_token();
        let before = self.store.read().await?;
        self.tell(who, &format!("has the lock, token {token}, and reads {before}"));
        if stands_still {
            assert!(guard.is_held(), "Ann makes sure of it");
            self.tell(who, "looks at the lock once more: it is hers. And stands still ...");
            self.ann_stands_still.notify_one();
            self.bob_is_done.notified().await;
        }
        let after = before + amount;
        let accepted = if self.checks_tokens {
            self.store.write_fenced(after, token).await?
        } else {
            self.store.write_unchecked(after).await?;
            true
        };
        let outcome = if accepted { "" } else { ": REFUSED, a larger token wrote before" };
        let late = if stands_still { "knows nothing of it and " } else { "" };
        self.tell(who, &format!("{late}writes {after}{outcome}"));
        // Ann hears here that it was lost. That is a good thing to log, and too late to act on.
        let _ = guard.release().await;
        Ok(accepted)
    }

    async fn ann(&self) -> Result<(), Error> {
        if !self.pay_in("Ann", 10, true).await? {
            self.tell("Ann", "begins again, as if she had not begun");
            self.pay_in("Ann", 10, false).await?;
        }
        Ok(())
    }

    async fn bob(&self) -> Result<(), Error> {
        self.ann_stands_still.notified().await;
        self.pay_in("Bob", 20, false).await?;
        self.bob_is_done.notify_one();
        Ok(())
    }

    fn tell(&self, who: &str, what: &str) {
        println!("  {:4.1} s  {who} {what}", self.opened.elapsed().as_secs_f64());
    }
}

/// Tells the story; the balance at its end.
async fn story(locks: &LockManager, store: Store, checks_tokens: bool) -> Result<i64, Error> {
    let (ann_stands_still, bob_is_done) = (Notify::new(), Notify::new());
    let (locks, opened) = (locks.clone(), Instant::now());
    let bank = Bank { locks, store, checks_tokens, opened, ann_stands_still, bob_is_done };
    bank.store.write_unchecked(START).await?;
    println!("The store {} tokens:\n", if checks_tokens { "checks" } else { "does not check" });
    tokio::try_join!(bank.ann(), bank.bob())?;
    let balance = bank.store.read().await?;
    if let Store::Redis { mut connection, key } = bank.store {
        redis::cmd("DEL").arg(key).query_async::<()>(&mut connection).await?;
    }
    Ok(balance)
}

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let url = std::env::var("DISTLOCK_URL").ok().filter(|url| url != "memory://");
    let locks = match &url {
        Some(url) => LockManager::connect(url).await?,
        None => LockManager::in_memory(),
    };
    // An account of its own for every run.
    let run = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    println!("An account with {START}. Ann pays in 10 and Bob 20, each under the lock.\n");
    let mut balances = Vec::new();
    for checks_tokens in [false, true] {
        let store = match &url {
            Some(url) => {
                let client = redis::Client::open(url.as_str())?;
                let connection = client.get_multiplexed_async_connection().await?;
                Store::Redis { connection, key: format!("fenced_store:{run}:{checks_tokens}") }
            }
            None => Store::Memory(Mutex::default()),
        };
        let balance = story(&locks, store, checks_tokens).await?;
        let verdict = match balance - START - 30 {
            0 => "as it should be".to_owned(),
            missing => format!("{} are gone", -missing),
        };
        println!("\n  balance {balance}: {verdict}\n");
        balances.push(balance);
    }
    locks.close(Duration::from_secs(5)).await;
    Ok(if balances == [110, 130] { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
