//! A connection that is there, and the commands on it: each is one statement.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use crate::commands::{ACQUIRE, Command, EXCHANGE, Prepared, RELEASE, RENEW, Way};
use crate::database::{Health, Shared};
use crate::error::Fault;
use crate::fence::Fence;
use crate::request::{Ask, Freed, Granted, Held, Renewal, Reply, Swap};

/// The longest name there may be: its row in the index has to fit on a page, and it in a message.
const LONGEST_NAME: usize = 2000;

/// A connection. A clone is the same one.
#[derive(Clone)]
pub struct Live {
    client: Arc<Client>,
    number: u64,
    pub(crate) health: Arc<Health>,
    shared: Arc<Shared>,
    prepared: Arc<OnceLock<Prepared>>,
}

pub(crate) type Value<'a> = &'a (dyn ToSql + Sync);
pub(crate) type Param<'a> = (Value<'a>, Type);

impl Live {
    pub(crate) fn new(
        client: Client,
        number: u64,
        health: Arc<Health>,
        shared: Arc<Shared>,
    ) -> Self {
        let prepared = Arc::default();
        Self { client: Arc::new(client), number, health, shared, prepared }
    }

    /// Which of a table's connections it is: later ones have higher numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A command had no answer in time. The connection is dropped if it stays silent after that.
    pub fn missed(&self) {
        self.health.missed();
    }

    fn fence(&self) -> &Fence {
        &self.shared.fence
    }

    /// Prepares what is called often, once it is known that no pooler is in between. Not as a part of a command:
    /// it must be on its way when it is polled for the first time.
    pub(crate) async fn prepare(&self) {
        let mut direct = self.shared.direct.subscribe();
        let is_direct = direct.wait_for(|direct| *direct).await.is_ok();
        if !is_direct {
            return;
        }
        // A waiting backend does not check whether its client is still there. Servers before 14 do not have
        // this setting.
        const LOOKS: &str = "SELECT set_config(name, '1000', false) FROM pg_settings \
            WHERE name = 'client_connection_check_interval'";
        let _ = self.client.query_typed(LOOKS, &[]).await;
        let bound = self.shared.lock_timeout.as_millis();
        let bounds = format!("SELECT set_config('lock_timeout', '{bound}', false)");
        if self.client.query_typed(&bounds, &[]).await.is_ok()
            && let Ok(prepared) = Prepared::on(&self.client).await
        {
            let _ = self.prepared.set(prepared);
        }
    }

    async fn call(&self, command: &Command, values: &[Value<'_>]) -> Result<Vec<Row>, Fault> {
        let before = self.health.unconfirmed();
        let answer = match self.prepared.get().and_then(|prepared| prepared.of(command)) {
            Some(statement) => self.settle(self.client.query(statement, values).await),
            None => self.call_as(command, Way::Bounded, values).await,
        };
        match answer {
            // Nothing was done, because a message could not be sent; waiters look by themselves.
            Err(fault) if fault.is_of_messages() => self.call_as(command, Way::Quiet, values).await,
            // A failover may forget a commit that the standby has not confirmed.
            Ok(_) if self.health.unconfirmed() != before => Err(Fault::unconfirmed()),
            answer => answer,
        }
    }

    async fn call_as(
        &self,
        command: &Command,
        way: Way,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let params: Vec<_> = values.iter().copied().zip(command.types.iter().cloned()).collect();
        self.run(&command.sql(way, self.shared.lock_timeout), &params).await
    }

    pub(crate) async fn run(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        self.settle(self.client.query_typed(sql, params).await)
    }

    fn settle(&self, answer: Result<Vec<Row>, Error>) -> Result<Vec<Row>, Fault> {
        answer.inspect(|_| self.health.answered()).map_err(|error| {
            let fault = Fault::of(&error);
            if fault.answered {
                self.health.answered();
            }
            if fault.is_of_a_pooler() {
                self.shared.direct.send_replace(false);
            }
            if fault.ends_connection() {
                self.health.is_bad();
            }
            fault
        })
    }

    /// Raises the sequence to the server's clock and above everything this process has seen.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn raise(&self) -> Result<(), Fault> {
        let least = signed(self.fence().seen() + 1);
        let raised = self.run("SELECT distlock.raise($1)", &[(&least, Type::INT8)]).await?;
        let raised = numbers(&raised)?;
        let [floor, now, started] = raised[..] else { return Err(Fault::unexpected()) };
        self.fence().raised(floor, now, started);
        Ok(())
    }

    /// Takes a lock that is free or reserved for the token, or else has it wait.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked: the token may have the lock, or wait for it.
    pub async fn acquire(&self, ask: &Ask<'_>) -> Result<Reply, Fault> {
        check(ask.name)?;
        let (most, ttl, claim) = (most(ask.most), millis(ask.ttl), most_of(millis(ask.claim)));
        let ticket = signed(ask.ticket);
        let (not_after, started) = (self.fence().time_after(ask.within), self.fence().started());
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
            &self.shared.address.relaxed,
        ];
        self.reply(&numbers(&self.call(&ACQUIRE, &values).await?)?)
    }

    /// Gives a lock from a token that has it alone to one that does not keep others out.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked: either may have it.
    pub async fn exchange(&self, swap: &Swap<'_>) -> Result<Reply, Fault> {
        check(swap.name)?;
        let (most, ttl) = (most(swap.most), millis(swap.ttl));
        let (not_after, started) = (self.fence().time_after(swap.within), self.fence().started());
        let values: [Value<'_>; 8] = [
            &swap.name,
            &swap.new,
            &most,
            &ttl,
            &swap.old,
            &not_after,
            &started,
            &self.shared.address.relaxed,
        ];
        self.reply(&numbers(&self.call(&EXCHANGE, &values).await?)?)
    }

    fn reply(&self, answer: &[i64]) -> Result<Reply, Fault> {
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
                self.fence().is_now(now);
                Reply::Late
            }
            [4] => Reply::Moved,
            _ => return Err(Fault::unexpected()),
        })
    }

    /// Frees a lock, or keeps it for so long; takes the token out of the queue.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn release(
        &self,
        name: &str,
        token: &str,
        keep: Option<Duration>,
    ) -> Result<Freed, Fault> {
        check(name)?;
        let keep = keep.map(millis);
        let values: [Value<'_>; 4] = [&name, &token, &keep, &self.shared.address.relaxed];
        let rows = self.call(&RELEASE, &values).await?;
        let row = rows.first().ok_or_else(Fault::unexpected)?;
        let state: i32 = row.try_get(0).map_err(|_| Fault::unexpected())?;
        let next = row.try_get(1).map_err(|_| Fault::unexpected())?;
        Ok(Freed { was_held: state != 0, awaited: state == 3, next })
    }

    /// Extends leases, in one statement: for each whether it is the token's, whether others wait, and the
    /// value that was drawn.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn renew(
        &self,
        leases: &[Renewal<'_>],
    ) -> Result<Vec<Option<(bool, Option<u64>)>>, Fault> {
        let names: Vec<_> = leases.iter().map(|lease| lease.name).collect();
        let tokens: Vec<_> = leases.iter().map(|lease| lease.token).collect();
        let ttls: Vec<_> = leases.iter().map(|lease| millis(lease.ttl)).collect();
        let draws: Vec<_> = leases.iter().map(|lease| lease.draw).collect();
        let values: [Value<'_>; 5] = [&names, &tokens, &ttls, &draws, &self.shared.address.relaxed];
        let rows = self.call(&RENEW, &values).await?;
        if rows.len() != leases.len() {
            return Err(Fault::unexpected());
        }
        let answer = |row: &Row| {
            let state: i32 = row.try_get(0).map_err(|_| Fault::unexpected())?;
            let fence: i64 = row.try_get(1).map_err(|_| Fault::unexpected())?;
            let fence = (fence != 0).then(|| unsigned(fence));
            Ok((state != 0).then_some((state == 2, fence)))
        };
        rows.iter().map(answer).collect()
    }

    /// The holders of a lock, and its waiters.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn inspect(&self, name: &str) -> Result<Held, Fault> {
        check(name)?;
        const SQL: &str = "SELECT token, remaining FROM distlock.inspect($1)";
        let rows = self.run(SQL, &[(&name, Type::TEXT)]).await?;
        let mut held = Held::default();
        for row in rows {
            let token = row.try_get(0).map_err(|_| Fault::unexpected())?;
            match row.try_get::<_, Option<i64>>(1).map_err(|_| Fault::unexpected())? {
                Some(remaining) => {
                    let remaining = Duration::from_millis(unsigned(remaining));
                    held.holders.push((token, remaining));
                }
                None => held.waiters.push(token),
            }
        }
        Ok(held)
    }

    /// The next names of locks that are held and begin so, in order, behind that one: no more than so many.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn walk(&self, begin: &str, after: &str, limit: u32) -> Result<Vec<String>, Fault> {
        let limit = most(limit);
        let params: [Param<'_>; 3] =
            [(&begin, Type::TEXT), (&after, Type::TEXT), (&limit, Type::INT4)];
        let rows = self.run("SELECT distlock.walk($1, $2, $3)", &params).await?;
        let row = rows.first().ok_or_else(Fault::unexpected)?;
        row.try_get(0).map_err(|_| Fault::unexpected())
    }

    /// The server's time, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn time(&self) -> Result<u64, Fault> {
        let rows = self.run("SELECT distlock.now()", &[]).await?;
        let row = rows.first().ok_or_else(Fault::unexpected)?;
        let now: i64 = row.try_get(0).map_err(|_| Fault::unexpected())?;
        Ok(unsigned(now) / 1_000_000)
    }

    /// A round trip.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn ping(&self) -> Result<(), Fault> {
        self.run("SELECT distlock.version()", &[]).await.map(|_| ())
    }

    /// Removes the rows of processes that died a while ago, unless some process has done so within this time.
    pub(crate) async fn sweep(&self, unless_within: Duration) -> Result<(), Fault> {
        let every = i64::try_from(unless_within.as_millis()).unwrap_or(i64::MAX);
        self.run("SELECT distlock.sweep($1)", &[(&every, Type::INT8)]).await.map(|_| ())
    }
}

fn numbers(rows: &[Row]) -> Result<Vec<i64>, Fault> {
    let row = rows.first().ok_or_else(Fault::unexpected)?;
    row.try_get(0).map_err(|_| Fault::unexpected())
}

pub(crate) fn check(name: &str) -> Result<(), Fault> {
    if name.len() > LONGEST_NAME {
        return Err(Fault::name("the key is too long: Postgres takes 2000 bytes with its prefix"));
    }
    if name.contains('\0') {
        return Err(Fault::name("the key contains a NUL character, which Postgres cannot store"));
    }
    Ok(())
}

pub(crate) fn millis(duration: Duration) -> i64 {
    // Not zero: a lease of less than a millisecond would never have been.
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
