//! Where orders and balances are kept: in memory, or in Redis for several instances. What is written
//! is written all or not at all, but nothing here keeps two writers from each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, FromRedisValue, RedisError};
use serde::{Deserialize, Serialize};

/// Whose money the shop takes, in the beginning. All amounts are in cents.
const CUSTOMERS: [&str; 8] = ["ann", "bob", "cleo", "dan", "eve", "finn", "gita", "hugo"];
const BEGINNING: i64 = 100_000_000;
/// Whose it becomes.
pub(crate) const SHOP: &str = "shop";

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    pub id: u64,
    /// Who pays.
    pub account: String,
    /// What for.
    pub item: String,
    /// How much.
    pub amount: i64,
    /// What became of it.
    pub state: State,
}

/// What became of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing yet.
    Open,
    /// It was paid.
    Paid,
    /// It will not be paid.
    Cancelled,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Whose.
    pub name: String,
    /// How much is on it.
    pub balance: i64,
}

/// Whether the books are right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// All orders.
    pub orders: usize,
    /// Those that are paid.
    pub paid: usize,
    /// Those that were charged more than once, or charged and not paid.
    pub wrongly_charged: Vec<u64>,
    /// What is missing on all accounts together.
    pub missing: i64,
    /// What the shop has and was not paid for.
    pub surplus: i64,
}

/// One of the changes that are made together.
pub(crate) enum Change<'a> {
    Order(&'a Order),
    Balance(&'a str, i64),
    /// What the shop earns, on top of what it has by then.
    Income(i64),
    /// The customer's bank was asked for the money of this order.
    Charge(u64),
}

/// Orders, accounts, and what every instance says of itself.
#[derive(Clone)]
pub struct Books(Kept);

#[derive(Clone)]
enum Kept {
    Memory(Arc<Mutex<Ledger>>),
    Redis(Arc<Server>),
}

#[derive(Default)]
struct Ledger {
    orders: BTreeMap<u64, Order>,
    accounts: BTreeMap<String, i64>,
    charges: BTreeMap<u64, u64>,
}

struct Server {
    client: Client,
    /// The one in use, until it fails.
    connection: tokio::sync::Mutex<Option<MultiplexedConnection>>,
}

impl Books {
    /// New books in memory, or those of a Redis server.
    pub async fn open(url: Option<&str>) -> Result<Self, RedisError> {
        let names = CUSTOMERS.into_iter().map(|name| (name, BEGINNING)).chain([(SHOP, 0)]);
        let Some(url) = url else {
            let accounts = names.map(|(name, balance)| (name.to_owned(), balance)).collect();
            let ledger = Ledger { accounts, ..Ledger::default() };
            return Ok(Self(Kept::Memory(Arc::new(Mutex::new(ledger)))));
        };
        let server = Server { client: Client::open(url)?, connection: Default::default() };
        let mut new = redis::pipe();
        for (name, balance) in names {
            new.hset_nx("orders:accounts", name, balance);
        }
        server.ask::<()>(&new).await?;
        Ok(Self(Kept::Redis(Arc::new(server))))
    }

    /// Whether other instances can see them.
    pub fn are_shared(&self) -> bool {
        matches!(self.0, Kept::Redis(_))
    }

    pub(crate) async fn place(&self, mut order: Order) -> Result<Order, RedisError> {
        match &self.0 {
            Kept::Memory(ledger) => {
                let mut ledger = lock(ledger);
                order.id = ledger.orders.len() as u64 + 1;
                ledger.orders.insert(order.id, order.clone());
            }
            Kept::Redis(server) => {
                (order.id,) = server.ask(redis::pipe().incr("orders:next", 1)).await?;
                self.write(&[Change::Order(&order)]).await?;
            }
        }
        Ok(order)
    }

    pub(crate) async fn order(&self, id: u64) -> Result<Option<Order>, RedisError> {
        match &self.0 {
            Kept::Memory(ledger) => Ok(lock(ledger).orders.get(&id).cloned()),
            Kept::Redis(server) => {
                let (text,): (Option<String>,) =
                    server.ask(redis::pipe().hget("orders:orders", id)).await?;
                Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
            }
        }
    }

    pub(crate) async fn balance(&self, name: &str) -> Result<Option<i64>, RedisError> {
        match &self.0 {
            Kept::Memory(ledger) => Ok(lock(ledger).accounts.get(name).copied()),
            Kept::Redis(server) => {
                let (balance,) = server.ask(redis::pipe().hget("orders:accounts", name)).await?;
                Ok(balance)
            }
        }
    }

    /// Makes all of the changes or none.
    pub(crate) async fn write(&self, changes: &[Change<'_>]) -> Result<(), RedisError> {
        match &self.0 {
            Kept::Memory(ledger) => {
                let mut ledger = lock(ledger);
                for change in changes {
                    match change {
                        Change::Order(order) => {
                            ledger.orders.insert(order.id, (*order).clone());
                        }
                        Change::Balance(name, balance) => {
                            ledger.accounts.insert((*name).to_owned(), *balance);
                        }
                        Change::Income(amount) => {
                            *ledger.accounts.entry(SHOP.to_owned()).or_default() += amount;
                        }
                        Change::Charge(id) => *ledger.charges.entry(*id).or_default() += 1,
                    }
                }
                Ok(())
            }
            Kept::Redis(server) => {
                let mut pipe = redis::pipe();
                pipe.atomic();
                for change in changes {
                    match change {
                        Change::Order(order) => {
                            let text = serde_json::to_string(order).unwrap_or_default();
                            pipe.hset("orders:orders", order.id, text);
                        }
                        Change::Balance(name, balance) => {
                            pipe.hset("orders:accounts", name, balance);
                        }
                        Change::Income(amount) => {
                            pipe.hincr("orders:accounts", SHOP, amount);
                        }
                        Change::Charge(id) => {
                            pipe.hincr("orders:charges", id, 1);
                        }
                    }
                }
                server.ask::<redis::Value>(&pipe).await.map(drop)
            }
        }
    }

    /// The latest orders, newest first, and all accounts.
    pub(crate) async fn latest(
        &self,
        count: u64,
    ) -> Result<(Vec<Order>, Vec<Account>), RedisError> {
        let (orders, accounts) = match &self.0 {
            Kept::Memory(ledger) => {
                let ledger = lock(ledger);
                let orders = ledger.orders.values().rev().take(count as usize).cloned().collect();
                (orders, ledger.accounts.clone())
            }
            Kept::Redis(server) => {
                let mut pipe = redis::pipe();
                let (next, accounts): (Option<u64>, _) =
                    server.ask(pipe.get("orders:next").hgetall("orders:accounts")).await?;
                let next = next.unwrap_or(0);
                // One more, so that it is never a question about nothing.
                let ids: Vec<u64> = (next.saturating_sub(count)..=next).rev().collect();
                let (texts,): (Vec<Option<String>>,) =
                    server.ask(redis::pipe().hmget("orders:orders", ids)).await?;
                let read = |text: Option<String>| serde_json::from_str(&text?).ok();
                (texts.into_iter().filter_map(read).take(count as usize).collect(), accounts)
            }
        };
        let account = |(name, balance)| Account { name, balance };
        Ok((orders, accounts.into_iter().map(account).collect()))
    }

    /// Looks through everything.
    pub async fn audit(&self) -> Result<Audit, RedisError> {
        let (orders, accounts, charges) = match &self.0 {
            Kept::Memory(ledger) => {
                let ledger = lock(ledger);
                let orders: Vec<Order> = ledger.orders.values().cloned().collect();
                (orders, ledger.accounts.clone(), ledger.charges.clone())
            }
            Kept::Redis(server) => {
                // At one moment, not while a payment is half seen.
                let mut pipe = redis::pipe();
                pipe.atomic().hvals("orders:orders");
                pipe.hgetall("orders:accounts").hgetall("orders:charges");
                let (texts, accounts, charges): (Vec<String>, _, _) = server.ask(&pipe).await?;
                let read = |text: &String| serde_json::from_str(text).ok();
                (texts.iter().filter_map(read).collect(), accounts, charges)
            }
        };
        let is_wrong = |order: &&Order| {
            charges.get(&order.id).copied().unwrap_or(0) != u64::from(order.state == State::Paid)
        };
        let paid: Vec<&Order> = orders.iter().filter(|order| order.state == State::Paid).collect();
        let taken: i64 = paid.iter().map(|order| order.amount).sum();
        Ok(Audit {
            orders: orders.len(),
            paid: paid.len(),
            wrongly_charged: orders.iter().filter(is_wrong).map(|order| order.id).collect(),
            missing: BEGINNING * CUSTOMERS.len() as i64 - accounts.values().sum::<i64>(),
            surplus: accounts.get(SHOP).copied().unwrap_or(0) - taken,
        })
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Asks over the connection there is, or a new one. A question that failed is not asked again:
    /// it is unknown whether it was answered.
    async fn ask<T: FromRedisValue>(&self, pipe: &redis::Pipeline) -> Result<T, RedisError> {
        let mut connection = self.connection().await?;
        let answer = pipe.query_async(&mut connection).await;
        if answer.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
            *self.connection.lock().await = None;
        }
        answer
    }

    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = &*slot {
            return Ok(connection.clone());
        }
        let patience = Some(Duration::from_secs(2));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(patience)
            .set_response_timeout(patience);
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await?;
        // Reaches a server that is still loading its data, too.
        connection.exists::<_, bool>("orders:next").await?;
        Ok(slot.insert(connection).clone())
    }
}
