//! The commands: each calls one function of the database, in one statement and one round trip.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::store::{
    Attempt, BackendKind, Entered, Entry, Exchange, Fault, Freed, Held, Holder, Limit, LockName,
    Moment, Owned, Owner, ProcessInfo, Renewal, Term, Token,
};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::error::PostgresError;
use crate::messages;
use crate::session::{PostgresSession, SqlFunction, SqlParam, SqlValue};

/// The longest name that the server can store: it must fit on a page of the index, and into a message.
const LONGEST_NAME: usize = 2000;

/// The numbers of connections whose work the server has ended: none. Behind a pooler a lost connection may be another
/// client's by now, so this process cannot know.
const NONE_CLOSED: Range<u64> = 0..0;
const BACKWARDS: &str = "the sequence of fencing tokens goes backwards";

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

/// A call of a function that may grant a lock to a token.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GrantCall<'a> {
    TryAcquire(&'a Attempt),
    Enter(&'a Entry),
    Exchange(&'a Exchange),
}

impl<'a> GrantCall<'a> {
    /// Returns the token that may be granted the lock.
    pub(crate) fn owner(self) -> &'a Arc<Owner> {
        match self {
            Self::TryAcquire(Attempt { owner, .. }) | Self::Enter(Entry { owner, .. }) => owner,
            Self::Exchange(Exchange { new, .. }) => new,
        }
    }

    pub(crate) fn term(self) -> Term {
        match self {
            Self::TryAcquire(Attempt { term, .. })
            | Self::Enter(Entry { term, .. })
            | Self::Exchange(Exchange { term, .. }) => *term,
        }
    }

    /// Returns whether a trace of the token may stay in the database, even if the token is not granted the lock.
    pub(crate) fn may_leave_a_trace(self) -> bool {
        !matches!(self, Self::TryAcquire(_))
    }
}

/// The answer of a function that may grant a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GrantReply {
    /// The token holds the lock, or waits for it. After a try it does not wait.
    Entered(Entered),
    /// The old token of an exchange does not hold the lock.
    NotHeld,
    /// The call was late by the server's clock, whose time is known now. Repeat the call.
    Late,
    /// The server was restarted, or is another one. [Raise](PostgresSession::raise) the sequence and repeat the call.
    OtherServer,
}

impl PostgresSession {
    /// Raises the sequence to the server's clock and above every value that this process has seen.
    pub(crate) async fn raise(&self) -> Result<(), PostgresError> {
        let least = signed(self.fences().seen() + 1);
        let raised = self.run("SELECT distlock.raise($1)", &[(&least, Type::INT8)]).await?;
        let raised = numbers(&raised)?;
        let [floor, now, started] = raised[..] else { return Err(PostgresError::unexpected()) };
        self.fences().set_raised(floor, now, started);
        Ok(())
    }

    /// Calls a function that may grant a lock, but not after the time `within`. The call is sent at the moment `sent`.
    pub(crate) async fn grant(
        &self,
        call: GrantCall<'_>,
        sent: Moment,
        within: Duration,
    ) -> Result<GrantReply, PostgresError> {
        let not_after = self.fences().server_time_after(within);
        let rows = match call {
            GrantCall::TryAcquire(Attempt { owner, term, .. }) => {
                self.acquire(owner, *term, None, not_after).await?
            }
            GrantCall::Enter(Entry { owner, term, ticket }) => {
                self.acquire(owner, *term, Some(*ticket), not_after).await?
            }
            GrantCall::Exchange(exchange) => self.exchange(exchange, not_after).await?,
        };
        Ok(match numbers(&rows)?[..] {
            [1, fence, others] => GrantReply::Entered(Entered::Granted {
                fence: unsigned(fence),
                sent,
                contended: others != 0,
            }),
            [0, ticket, remaining, rank, behind, added] => GrantReply::Entered(Entered::Queued {
                ticket: unsigned(ticket),
                remaining: u64::try_from(remaining).ok().map(Duration::from_millis),
                rank: unsigned(rank),
                behind: unsigned(behind),
                added: added != 0,
            }),
            [0] => GrantReply::NotHeld,
            [3, now] => {
                self.fences().set_server_time(now);
                GrantReply::Late
            }
            [4] => GrantReply::OtherServer,
            _ => return Err(PostgresError::unexpected()),
        })
    }

    /// Acquires a lock that is free or reserved for the token. Otherwise enqueues the token, unless it has no ticket.
    async fn acquire(
        &self,
        owner: &Owner,
        term: Term,
        ticket: Option<u64>,
        not_after: i64,
    ) -> Result<Vec<Row>, PostgresError> {
        let name = stored_name(&owner.lock)?;
        let token = Token::parse(&owner.token);
        let reservation = token.map_or(Duration::from_secs(1), |token| token.reservation);
        let is_notified = token.is_some_and(|token| token.notified);
        let (most, ttl) = (most_holders(owner.limit), millis(term.stored_for()));
        let claim = i32::try_from(millis(reservation)).unwrap_or(i32::MAX);
        let values: [SqlValue<'_>; 11] = [
            &name,
            &owner.token,
            &most,
            &ttl,
            &signed(ticket.unwrap_or(0)),
            &claim,
            &is_notified,
            &ticket.is_none(),
            &not_after,
            &self.fences().server_started(),
            &self.database.url.async_commit,
        ];
        self.call(&ACQUIRE, &values).await
    }

    /// Gives a lock from a token that holds it exclusively to one that shares it.
    async fn exchange(
        &self,
        exchange: &Exchange,
        not_after: i64,
    ) -> Result<Vec<Row>, PostgresError> {
        let Exchange { old, new, term } = exchange;
        let name = stored_name(&new.lock)?;
        let values: [SqlValue<'_>; 8] = [
            &name,
            &new.token,
            &most_holders(new.limit),
            &millis(term.stored_for()),
            &old.token,
            &not_after,
            &self.fences().server_started(),
            &self.database.url.async_commit,
        ];
        self.call(&EXCHANGE, &values).await
    }

    /// Releases a lock, or with `keep` lets its lease end after that time. Removes the token from the queue.
    pub(crate) async fn release(
        &self,
        owner: &Owner,
        keep: Option<Duration>,
    ) -> Result<Freed, PostgresError> {
        // R9: an acquire whose connection ended before its answer may still run.
        let settled = owner.is_behind(self.number(), &NONE_CLOSED);
        let (name, keep) = (stored_name(&owner.lock)?, keep.map(millis));
        let values: [SqlValue<'_>; 4] =
            [&name, &owner.token, &keep, &self.database.url.async_commit];
        let rows = self.call(&RELEASE, &values).await?;
        let row = rows.first().ok_or_else(PostgresError::unexpected)?;
        let (state, next): (i32, Vec<String>) = (field(row, 0)?, field(row, 1)?);
        let next = next.into_iter().map(Into::into).collect();
        Ok(Freed { was_ours: state != 0, settled, next, awaited: state == 3 })
    }

    /// Renews leases in one statement. Returns one answer for each, in order.
    pub(crate) async fn renew(
        &self,
        renewals: &[Renewal],
    ) -> Result<Vec<Result<Owned, Fault>>, PostgresError> {
        let names: Vec<&str> = renewals.iter().map(|one| &**one.owner.lock.stored()).collect();
        let tokens: Vec<&str> = renewals.iter().map(|one| &*one.owner.token).collect();
        let ttls: Vec<_> = renewals.iter().map(|one| millis(one.ttl)).collect();
        let draws: Vec<_> = renewals.iter().map(|one| one.draw).collect();
        let values: [SqlValue<'_>; 5] =
            [&names, &tokens, &ttls, &draws, &self.database.url.async_commit];
        let rows = self.call(&RENEW, &values).await?;
        if rows.len() != renewals.len() {
            return Err(PostgresError::unexpected());
        }
        let answer = |(renewal, row): (&Renewal, &Row)| {
            let (state, fence): (i32, i64) = (field(row, 0)?, field(row, 1)?);
            let fence = (fence != 0).then(|| unsigned(fence));
            Ok(match (state, fence) {
                (0, _) => Ok(Owned::No),
                (_, Some(fence)) if !self.fences().is_new(fence, renewal.fence) => {
                    Err(Fault::passing(BackendKind::Other, BACKWARDS))
                }
                (state, fence) => Ok(Owned::Yes { contended: state == 2, fence }),
            })
        };
        renewals.iter().zip(&rows).map(answer).collect()
    }

    /// Returns the holders and waiters of a lock; `None` if it is free.
    pub(crate) async fn inspect(&self, lock: &LockName) -> Result<Option<Held>, PostgresError> {
        const SQL: &str = "SELECT token, remaining FROM distlock.inspect($1)";
        let name = stored_name(lock)?;
        let rows = self.run(SQL, &[(&name, Type::TEXT)]).await?;
        let mut held = Held { holders: Vec::new(), queue: Vec::new() };
        for row in rows {
            let (token, remaining): (_, Option<i64>) = (field(&row, 0)?, field(&row, 1)?);
            match remaining.map(|remaining| Duration::from_millis(unsigned(remaining))) {
                Some(rest) => held.holders.push(Holder { token, remaining: Some(rest) }),
                None => held.queue.push(token),
            }
        }
        Ok((!held.holders.is_empty()).then_some(held))
    }

    /// Returns names of held locks that begin with `begin`, in order. Begins after the name `after`, and returns at
    /// most `limit` names.
    pub(crate) async fn walk(
        &self,
        begin: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, PostgresError> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let params: [SqlParam<'_>; 3] =
            [(&begin, Type::TEXT), (&after, Type::TEXT), (&limit, Type::INT4)];
        single(&self.run("SELECT distlock.walk($1, $2, $3)", &params).await?)
    }

    /// Returns the server's time, in seconds since 1970.
    pub(crate) async fn time(&self) -> Result<u64, PostgresError> {
        let now: i64 = single(&self.run("SELECT distlock.now()", &[]).await?)?;
        Ok(unsigned(now) / 1_000_000)
    }

    /// Makes a round trip.
    pub(crate) async fn ping(&self) -> Result<(), PostgresError> {
        self.run("SELECT distlock.version()", &[]).await.map(|_| ())
    }

    /// Notifies the owner of a token that an operator has revoked its lock.
    pub(crate) async fn notify_revoked(
        &self,
        lock: &LockName,
        token: &str,
    ) -> Result<(), PostgresError> {
        let name = stored_name(lock)?;
        let params: [SqlParam<'_>; 3] =
            [(&messages::REVOKED, Type::TEXT), (&token, Type::TEXT), (&name, Type::TEXT)];
        self.run("SELECT distlock.tell($1, $2, $3)", &params).await.map(|_| ())
    }

    /// Notifies the token before a waiter that another one waits.
    pub(crate) async fn announce(&self, owner: &Owner) -> Result<(), PostgresError> {
        let name = &**owner.lock.stored();
        let params: [SqlParam<'_>; 2] = [(&name, Type::TEXT), (&owner.token, Type::TEXT)];
        self.run("SELECT distlock.announce($1, $2)", &params).await.map(|_| ())
    }

    /// Sends messages to processes. Returns for each whether its process listens. Does not send one that is too long.
    pub(crate) async fn send(
        &self,
        processes: &[&str],
        texts: &[String],
    ) -> Result<Vec<bool>, PostgresError> {
        let params: [SqlParam<'_>; 2] =
            [(&processes, Type::TEXT_ARRAY), (&texts, Type::TEXT_ARRAY)];
        single(&self.run("SELECT distlock.send($1, $2)", &params).await?)
    }

    /// Stores the record of a process under a prefix, for the time `kept`.
    pub(crate) async fn store_record(
        &self,
        prefix: &str,
        info: &ProcessInfo,
        kept: Duration,
    ) -> Result<(), PostgresError> {
        let record = info.record(self.time().await?);
        let (process, kept) = (info.id(), millis(kept));
        let params: [SqlParam<'_>; 4] = [
            (&prefix, Type::TEXT),
            (&process, Type::TEXT),
            (&record, Type::TEXT),
            (&kept, Type::INT8),
        ];
        self.run("SELECT distlock.introduce($1, $2, $3, $4)", &params).await.map(|_| ())
    }

    /// Removes the record of a process.
    pub(crate) async fn remove_record(
        &self,
        prefix: &str,
        process: &str,
    ) -> Result<(), PostgresError> {
        let params: [SqlParam<'_>; 2] = [(&prefix, Type::TEXT), (&process, Type::TEXT)];
        self.run("SELECT distlock.take_leave($1, $2)", &params).await.map(|_| ())
    }

    /// Returns the records under a prefix, by process: those of these processes, or all.
    pub(crate) async fn records(
        &self,
        prefix: &str,
        processes: Option<&[String]>,
    ) -> Result<HashMap<String, String>, PostgresError> {
        let params: [SqlParam<'_>; 2] = [(&prefix, Type::TEXT), (&processes, Type::TEXT_ARRAY)];
        const SQL: &str = "SELECT process, record FROM distlock.records($1, $2)";
        let rows = self.run(SQL, &params).await?;
        rows.iter().map(|row| Ok((field(row, 0)?, field(row, 1)?))).collect()
    }

    /// Removes the rows of processes that died a while ago, unless some process has done so within this time.
    pub(crate) async fn sweep(&self, unless_within: Duration) -> Result<(), PostgresError> {
        let every = i64::try_from(unless_within.as_millis()).unwrap_or(i64::MAX);
        self.run("SELECT distlock.sweep($1)", &[(&every, Type::INT8)]).await.map(|_| ())
    }
}

fn numbers(rows: &[Row]) -> Result<Vec<i64>, PostgresError> {
    single(rows)
}

/// Returns the single value of an answer.
fn single<'a, T: FromSql<'a>>(rows: &'a [Row]) -> Result<T, PostgresError> {
    field(rows.first().ok_or_else(PostgresError::unexpected)?, 0)
}

fn field<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, PostgresError> {
    row.try_get(at).map_err(|_| PostgresError::unexpected())
}

/// Returns the name of a lock. Refuses one that the server cannot store.
fn stored_name(lock: &LockName) -> Result<&str, PostgresError> {
    let name: &str = lock.stored();
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
    Ok(name)
}

fn millis(duration: Duration) -> i64 {
    // Round up: a lease of zero milliseconds would never exist.
    i64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(i64::MAX / 1000)
}

/// Returns the number of holders that a lock may have under a limit; `i32::MAX` for any number.
fn most_holders(limit: Limit) -> i32 {
    i32::try_from(limit.most()).unwrap_or(i32::MAX)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
