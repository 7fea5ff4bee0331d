//! The commands: each calls one function of the database, in one statement and one round trip.

use std::collections::HashMap;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::PostgresError;
use crate::session::{Param, PostgresSession, SqlFunction, Value};

/// The longest name that the server can store: it must fit on a page of the index, and into a message.
const LONGEST_NAME: usize = 2000;

/// The functions that are called often enough to prepare their calls.
pub(crate) const PREPARED: [&SqlFunction; 3] = [&ACQUIRE, &RELEASE, &RENEW];

const ACQUIRE: SqlFunction = SqlFunction {
    call: "distlock.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    columns: &[],
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::INT8,
        Type::INT8,
        Type::INT4,
        Type::BOOL,
        Type::BOOL,
        Type::INT8,
        Type::INT8,
        Type::BOOL,
    ],
};

const EXCHANGE: SqlFunction = SqlFunction {
    call: "distlock.downgrade($1, $2, $3, $4, $5, $6, $7, $8)",
    columns: &[],
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::INT8,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::BOOL,
    ],
};

const RELEASE: SqlFunction = SqlFunction {
    call: "distlock.release($1, $2, $3, $4)",
    columns: &["state", "next"],
    types: &[Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL],
};

const RENEW: SqlFunction = SqlFunction {
    call: "distlock.renew($1, $2, $3, $4, $5)",
    columns: &["state", "fence"],
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY, Type::BOOL],
};

/// A request to acquire a lock.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The token that wants the lock.
    pub token: &'a str,
    /// The number of holders that the lock may have with this one; `u32::MAX` for any number.
    pub most: u32,
    /// The length of the lease.
    pub ttl: Duration,
    /// The ticket in the queue; 0 for a new one at the end.
    pub ticket: u64,
    /// The length of the reservation when the token's turn has come.
    pub claim: Duration,
    /// The token is sent messages, so without a connection that listens it is dead.
    pub told: bool,
    /// The token takes the lock now or not at all, and does not wait.
    pub is_try: bool,
    /// The function must not grant the lock after this time.
    pub within: Duration,
}

/// A request to exchange the token that holds a lock.
#[derive(Debug, Clone, Copy)]
pub struct Swap<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The token that holds the lock exclusively.
    pub old: &'a str,
    /// The token that is to hold the lock.
    pub new: &'a str,
    /// The number of holders that the lock may have with the new one; `u32::MAX` for any number.
    pub most: u32,
    /// The length of the lease.
    pub ttl: Duration,
    /// The function must not grant the lock after this time.
    pub within: Duration,
}

/// A granted lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// A value of the sequence.
    pub fence: u64,
    /// Other tokens wait.
    pub contended: bool,
}

/// The answer to a request for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The token holds the lock.
    Granted(Granted),
    /// The token does not hold the lock. It waits, unless the request was a try.
    Waits {
        /// The ticket in the queue.
        ticket: u64,
        /// The time until there is room, if no holder releases or renews the lock.
        remaining: Option<Duration>,
        /// The number of waiters before the token.
        rank: u64,
        /// The number of waiters after the token.
        behind: u64,
        /// The token has just entered the queue.
        added: bool,
    },
    /// The old token of an exchange does not hold the lock.
    NotHeld,
    /// The request was late by the server's clock, whose time is known now. Repeat the request.
    Late,
    /// The server was restarted, or is another one. [Raise](PostgresSession::raise) the sequence and repeat the
    /// request.
    Moved,
}

/// The answer to a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// The token held the lock.
    pub was_held: bool,
    /// The lease is kept, and other tokens wait.
    pub awaited: bool,
    /// The tokens that were let in.
    pub next: Vec<String>,
}

/// A lease to renew.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The token that holds the lock.
    pub token: &'a str,
    /// The least time to live after the renewal.
    pub ttl: Duration,
    /// The renewal also draws a value of the sequence.
    pub draw: bool,
}

/// The holders and waiters of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The tokens that hold the lock, each with the rest of its lease. The lease that ends first comes first.
    pub holders: Vec<(String, Duration)>,
    /// The tokens that wait, in order.
    pub waiters: Vec<String>,
}

/// The record of a process.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The prefix under which the process uses locks.
    pub prefix: &'a str,
    /// The name of the process, which its tokens begin with.
    pub process: &'a str,
    /// The text of the record.
    pub text: &'a str,
}

impl PostgresSession {
    /// Raises the sequence to the server's clock and above every value that this process has seen.
    pub async fn raise(&self) -> Result<(), PostgresError> {
        let least = signed(self.fences().seen() + 1);
        let raised = self.run("SELECT distlock.raise($1)", &[(&least, Type::INT8)]).await?;
        let raised = numbers(&raised)?;
        let [floor, now, started] = raised[..] else { return Err(PostgresError::unexpected()) };
        self.fences().set_raised(floor, now, started);
        Ok(())
    }

    /// Acquires a lock that is free or reserved for the token. Otherwise enqueues the token, unless it is a try.
    pub async fn acquire(&self, ask: &Ask<'_>) -> Result<Reply, PostgresError> {
        check(ask.name)?;
        let (most, ttl, claim) = (most(ask.most), millis(ask.ttl), most_of(millis(ask.claim)));
        let ticket = signed(ask.ticket);
        let (not_after, started) =
            (self.fences().server_time_after(ask.within), self.fences().server_started());
        let values: [Value<'_>; 11] = [
            &ask.name,
            &ask.token,
            &most,
            &ttl,
            &ticket,
            &claim,
            &ask.told,
            &ask.is_try,
            &not_after,
            &started,
            &self.database.url.async_commit,
        ];
        self.reply(&numbers(&self.call(&ACQUIRE, &values).await?)?)
    }

    /// Gives a lock from a token that holds it exclusively to one that shares it.
    pub async fn exchange(&self, swap: &Swap<'_>) -> Result<Reply, PostgresError> {
        check(swap.name)?;
        let (most, ttl) = (most(swap.most), millis(swap.ttl));
        let (not_after, started) =
            (self.fences().server_time_after(swap.within), self.fences().server_started());
        let values: [Value<'_>; 8] = [
            &swap.name,
            &swap.new,
            &most,
            &ttl,
            &swap.old,
            &not_after,
            &started,
            &self.database.url.async_commit,
        ];
        self.reply(&numbers(&self.call(&EXCHANGE, &values).await?)?)
    }

    fn reply(&self, answer: &[i64]) -> Result<Reply, PostgresError> {
        Ok(match *answer {
            [1, fence, others] => {
                Reply::Granted(Granted { fence: unsigned(fence), contended: others != 0 })
            }
            [0, ticket, remaining, rank, behind, added] => Reply::Waits {
                ticket: unsigned(ticket),
                remaining: u64::try_from(remaining).ok().map(Duration::from_millis),
                rank: unsigned(rank),
                behind: unsigned(behind),
                added: added != 0,
            },
            [0] => Reply::NotHeld,
            [3, now] => {
                self.fences().set_server_time(now);
                Reply::Late
            }
            [4] => Reply::Moved,
            _ => return Err(PostgresError::unexpected()),
        })
    }

    /// Releases a lock, or with `keep` lets its lease end after that time. Removes the token from the queue.
    pub async fn release(
        &self,
        name: &str,
        token: &str,
        keep: Option<Duration>,
    ) -> Result<Freed, PostgresError> {
        check(name)?;
        let keep = keep.map(millis);
        let values: [Value<'_>; 4] = [&name, &token, &keep, &self.database.url.async_commit];
        let rows = self.call(&RELEASE, &values).await?;
        let row = rows.first().ok_or_else(PostgresError::unexpected)?;
        let state: i32 = row.try_get(0).map_err(|_| PostgresError::unexpected())?;
        let next = row.try_get(1).map_err(|_| PostgresError::unexpected())?;
        Ok(Freed { was_held: state != 0, awaited: state == 3, next })
    }

    /// Renews leases in one statement. Returns for each lease that still exists whether others wait, and the value
    /// that was drawn.
    pub async fn renew(
        &self,
        leases: &[Renewal<'_>],
    ) -> Result<Vec<Option<(bool, Option<u64>)>>, PostgresError> {
        let names: Vec<_> = leases.iter().map(|lease| lease.name).collect();
        let tokens: Vec<_> = leases.iter().map(|lease| lease.token).collect();
        let ttls: Vec<_> = leases.iter().map(|lease| millis(lease.ttl)).collect();
        let draws: Vec<_> = leases.iter().map(|lease| lease.draw).collect();
        let values: [Value<'_>; 5] =
            [&names, &tokens, &ttls, &draws, &self.database.url.async_commit];
        let rows = self.call(&RENEW, &values).await?;
        if rows.len() != leases.len() {
            return Err(PostgresError::unexpected());
        }
        let answer = |row: &Row| {
            let state: i32 = row.try_get(0).map_err(|_| PostgresError::unexpected())?;
            let fence: i64 = row.try_get(1).map_err(|_| PostgresError::unexpected())?;
            let fence = (fence != 0).then(|| unsigned(fence));
            Ok((state != 0).then_some((state == 2, fence)))
        };
        rows.iter().map(answer).collect()
    }

    /// Returns the holders and waiters of a lock.
    pub async fn inspect(&self, name: &str) -> Result<Held, PostgresError> {
        check(name)?;
        const SQL: &str = "SELECT token, remaining FROM distlock.inspect($1)";
        let rows = self.run(SQL, &[(&name, Type::TEXT)]).await?;
        let mut held = Held::default();
        for row in rows {
            let token = row.try_get(0).map_err(|_| PostgresError::unexpected())?;
            match row.try_get::<_, Option<i64>>(1).map_err(|_| PostgresError::unexpected())? {
                Some(remaining) => {
                    let remaining = Duration::from_millis(unsigned(remaining));
                    held.holders.push((token, remaining));
                }
                None => held.waiters.push(token),
            }
        }
        Ok(held)
    }

    /// Returns names of held locks that begin with `begin`, in order. Begins after the name `after`, and returns at
    /// most `limit` names.
    pub async fn walk(
        &self,
        begin: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<String>, PostgresError> {
        let limit = most(limit);
        let params: [Param<'_>; 3] =
            [(&begin, Type::TEXT), (&after, Type::TEXT), (&limit, Type::INT4)];
        let rows = self.run("SELECT distlock.walk($1, $2, $3)", &params).await?;
        let row = rows.first().ok_or_else(PostgresError::unexpected)?;
        row.try_get(0).map_err(|_| PostgresError::unexpected())
    }

    /// Returns the server's time, in seconds since 1970.
    pub async fn time(&self) -> Result<u64, PostgresError> {
        let rows = self.run("SELECT distlock.now()", &[]).await?;
        let row = rows.first().ok_or_else(PostgresError::unexpected)?;
        let now: i64 = row.try_get(0).map_err(|_| PostgresError::unexpected())?;
        Ok(unsigned(now) / 1_000_000)
    }

    /// Makes a round trip.
    pub async fn ping(&self) -> Result<(), PostgresError> {
        self.run("SELECT distlock.version()", &[]).await.map(|_| ())
    }

    /// Sends the process of a token a message about a lock.
    pub async fn tell(&self, kind: &str, token: &str, name: &str) -> Result<(), PostgresError> {
        check(name)?;
        let params: [Param<'_>; 3] =
            [(&kind, Type::TEXT), (&token, Type::TEXT), (&name, Type::TEXT)];
        self.run("SELECT distlock.tell($1, $2, $3)", &params).await.map(|_| ())
    }

    /// Notifies the token before a waiter that another one waits.
    pub async fn announce(&self, name: &str, token: &str) -> Result<(), PostgresError> {
        let params: [Param<'_>; 2] = [(&name, Type::TEXT), (&token, Type::TEXT)];
        self.run("SELECT distlock.announce($1, $2)", &params).await.map(|_| ())
    }

    /// Sends texts to processes. Returns for each whether its process listens. Does not send a text that is too long.
    pub async fn send(&self, texts: &[(&str, String)]) -> Result<Vec<bool>, PostgresError> {
        let processes: Vec<_> = texts.iter().map(|(process, _)| *process).collect();
        let bodies: Vec<_> = texts.iter().map(|(_, text)| text.as_str()).collect();
        let params: [Param<'_>; 2] = [(&processes, Type::TEXT_ARRAY), (&bodies, Type::TEXT_ARRAY)];
        let rows = self.run("SELECT distlock.send($1, $2)", &params).await?;
        let row = rows.first().ok_or_else(PostgresError::unexpected)?;
        row.try_get(0).map_err(|_| PostgresError::unexpected())
    }

    /// Stores the record of a process for the time `kept`.
    pub async fn introduce(
        &self,
        record: &Record<'_>,
        kept: Duration,
    ) -> Result<(), PostgresError> {
        let kept = millis(kept);
        let params: [Param<'_>; 4] = [
            (&record.prefix, Type::TEXT),
            (&record.process, Type::TEXT),
            (&record.text, Type::TEXT),
            (&kept, Type::INT8),
        ];
        self.run("SELECT distlock.introduce($1, $2, $3, $4)", &params).await.map(|_| ())
    }

    /// Removes the record of a process.
    pub async fn take_leave(&self, prefix: &str, process: &str) -> Result<(), PostgresError> {
        let params: [Param<'_>; 2] = [(&prefix, Type::TEXT), (&process, Type::TEXT)];
        self.run("SELECT distlock.take_leave($1, $2)", &params).await.map(|_| ())
    }

    /// Returns the records under a prefix, by process: those of these processes, or all.
    pub async fn records(
        &self,
        prefix: &str,
        processes: Option<&[String]>,
    ) -> Result<HashMap<String, String>, PostgresError> {
        let params: [Param<'_>; 2] = [(&prefix, Type::TEXT), (&processes, Type::TEXT_ARRAY)];
        const SQL: &str = "SELECT process, record FROM distlock.records($1, $2)";
        let rows = self.run(SQL, &params).await?;
        let field = |row: &Row, at| row.try_get(at).map_err(|_| PostgresError::unexpected());
        rows.iter().map(|row| Ok((field(row, 0)?, field(row, 1)?))).collect()
    }

    /// Removes the rows of processes that died a while ago, unless some process has done so within this time.
    pub(crate) async fn sweep(&self, unless_within: Duration) -> Result<(), PostgresError> {
        let every = i64::try_from(unless_within.as_millis()).unwrap_or(i64::MAX);
        self.run("SELECT distlock.sweep($1)", &[(&every, Type::INT8)]).await.map(|_| ())
    }
}

fn numbers(rows: &[Row]) -> Result<Vec<i64>, PostgresError> {
    let row = rows.first().ok_or_else(PostgresError::unexpected)?;
    row.try_get(0).map_err(|_| PostgresError::unexpected())
}

/// Refuses a name that the server cannot store.
fn check(name: &str) -> Result<(), PostgresError> {
    if name.len() > LONGEST_NAME {
        return Err(PostgresError::invalid_name(
            "the key is too long: Postgres takes 2000 bytes with its prefix",
        ));
    }
    if name.contains('\0') {
        return Err(PostgresError::invalid_name(
            "the key contains a NUL character, which Postgres cannot store",
        ));
    }
    Ok(())
}

fn millis(duration: Duration) -> i64 {
    // Round up: a lease of zero milliseconds would never exist.
    i64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(i64::MAX / 1000)
}

fn most(most: u32) -> i32 {
    i32::try_from(most).unwrap_or(i32::MAX)
}

fn most_of(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
