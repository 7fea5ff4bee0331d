//! What the shop does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::{LockManager, Process, redis_lock};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::arguments::Arguments;
use crate::board::{Board, Turn};
use crate::books::{Audit, Books, Change, Order, SHOP, State};
use crate::error::ShopError;
use crate::held::{held, said};

/// How many orders the page shows.
const SHOWN: u64 = 12;
/// How long the page waits for the store.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it waits for other instances, which answer once a second.
const ANSWERS: Duration = Duration::from_secs(2);

/// One instance of the shop.
pub struct Shop {
    /// Whose turn it is.
    pub locks: LockManager,
    /// How long a request waits for a lock.
    pub wait: Duration,
    board: Board,
    books: Books,
    work: Duration,
    metrics: PrometheusHandle,
}

/// `POST /orders`.
#[derive(Debug, Clone, Deserialize)]
pub struct NewOrder {
    account: String,
    item: String,
    amount: i64,
}

/// `POST /transfers`.
#[derive(Debug, Clone, Deserialize)]
pub struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

impl Shop {
    /// Opens the shop, on the Redis server that `DISTLOCK_URL` names if it names one.
    pub async fn open(instance: &str, arguments: Arguments) -> Result<Arc<Self>, ShopError> {
        // Before the first lock: what was taken before is not counted.
        let metrics = PrometheusBuilder::new().set_buckets(distlock::metrics::BUCKETS)?;
        let metrics = metrics.install_recorder()?;
        let url = std::env::var("DISTLOCK_URL").ok().filter(|url| !url.starts_with("memory:"));
        let locks = match &url {
            Some(url) => {
                LockManager::builder().url(url).ttl(Duration::from_secs(5)).connect().await?
            }
            None => LockManager::in_memory(),
        };
        let books = Books::open(url.as_deref()).await?;
        let Arguments { work, wait, .. } = arguments;
        let board = Board::new(instance);
        Ok(Arc::new(Self { locks, wait, board, books, work, metrics }))
    }

    /// Takes an order. No other call knows it yet, so there is nothing to lock.
    pub async fn place(&self, new: NewOrder) -> Result<Order, ShopError> {
        let NewOrder { account, item, amount } = new;
        if !(1..=1_000_000).contains(&amount) {
            return Err(ShopError::Nonsense("the amount must be between 0.01 and 10000.00"));
        }
        if item.trim().is_empty() || item.chars().count() > 60 {
            return Err(ShopError::Nonsense("the item must have a name of at most 60 characters"));
        }
        self.balance(&account).await?;
        let order = Order { id: 0, account, item, amount, state: State::Open };
        Ok(self.books.place(order).await?)
    }

    /// A request begins. It may ask for a shorter wait than the shop's: `Prefer: wait=0` (RFC 7240).
    pub fn begin<'a>(&self, path: &str, header: impl Fn(&str) -> Option<&'a str>) -> Turn {
        let mut preferences = header("prefer").unwrap_or_default().split(',').map(str::trim);
        let seconds = preferences.find_map(|each| each.strip_prefix("wait=")?.parse().ok());
        let wait = seconds.map_or(self.wait, |seconds| self.wait.min(Duration::from_secs(seconds)));
        self.board.begin(header("x-customer"), path, wait)
    }

    /// Pays an order, whose lock the caller has.
    pub async fn pay(&self, order_id: u64, turn: &Turn) -> Result<Order, ShopError> {
        turn.has([format!("order:{order_id}")]);
        let order = self.open_order(order_id).await?;
        turn.wants([format!("account:{}", order.account)]);
        self.charge(order, turn).await
    }

    /// The order's lock keeps others from this order; other orders are of the same account.
    #[redis_lock(
        key = "account:{order.account}",
        name = "pay",
        wait = turn.wait(),
        manager = self.locks
    )]
    async fn charge(&self, mut order: Order, turn: &Turn) -> Result<Order, ShopError> {
        turn.has([format!("account:{}", order.account)]);
        let from = self.balance(&order.account).await?;
        if from < order.amount {
            return Err(ShopError::TooLittle(order.account));
        }
        tokio::time::sleep(self.work).await;
        order.state = State::Paid;
        let changes = [
            Change::Order(&order),
            Change::Charge(order.id),
            Change::Balance(&order.account, from - order.amount),
            // Added by the store itself: no one reads it before, so no one has to be kept away.
            Change::Income(order.amount),
        ];
        self.books.write(&changes).await?;
        Ok(order)
    }

    /// Cancels an order, whose lock the caller has.
    pub async fn cancel(&self, order_id: u64, turn: &Turn) -> Result<Order, ShopError> {
        turn.has([format!("order:{order_id}")]);
        let mut order = self.open_order(order_id).await?;
        tokio::time::sleep(self.work).await;
        order.state = State::Cancelled;
        self.books.write(&[Change::Order(&order)]).await?;
        Ok(order)
    }

    /// Moves money from one account to another.
    pub async fn transfer(&self, transfer: Transfer, turn: &Turn) -> Result<(), ShopError> {
        let Transfer { from, to, amount } = &transfer;
        if *amount < 1 || from == to || from == SHOP || to == SHOP {
            return Err(ShopError::Nonsense("a transfer moves money between two customers"));
        }
        turn.wants([format!("account:{from}"), format!("account:{to}")]);
        self.move_money(from, to, *amount, turn).await
    }

    /// Both accounts or none, and in one order for every call: transfers in opposite directions do
    /// not wait for each other.
    #[redis_lock(
        keys = ["account:{from}", "account:{to}"],
        name = "transfer",
        wait = turn.wait(),
        manager = self.locks
    )]
    async fn move_money(
        &self,
        from: &str,
        to: &str,
        amount: i64,
        turn: &Turn,
    ) -> Result<(), ShopError> {
        turn.has([format!("account:{from}"), format!("account:{to}")]);
        let (left, right) = (self.balance(from).await?, self.balance(to).await?);
        if left < amount {
            return Err(ShopError::TooLittle(from.to_owned()));
        }
        tokio::time::sleep(self.work).await;
        let changes = [Change::Balance(from, left - amount), Change::Balance(to, right + amount)];
        Ok(self.books.write(&changes).await?)
    }

    async fn open_order(&self, id: u64) -> Result<Order, ShopError> {
        let order = self.books.order(id).await?;
        let order = order.ok_or_else(|| ShopError::NotFound(format!("order {id}")))?;
        match order.state {
            State::Open => Ok(order),
            State::Paid => Err(ShopError::NotOpen("paid")),
            State::Cancelled => Err(ShopError::NotOpen("cancelled")),
        }
    }

    async fn balance(&self, name: &str) -> Result<i64, ShopError> {
        let balance = self.books.balance(name).await?;
        balance.ok_or_else(|| ShopError::NotFound(format!("account {name}")))
    }

    /// Whether the books are right.
    pub async fn audit(&self) -> Result<Audit, ShopError> {
        Ok(self.books.audit().await?)
    }

    /// `GET /metrics`: what happens to locks, for Prometheus.
    pub fn metrics(&self) -> String {
        self.metrics.run_upkeep();
        self.metrics.render()
    }

    /// `GET /api/board`: what the page shows. What goes on here is known even if the store is gone.
    pub async fn show(&self) -> Value {
        let me = self.board.seen();
        let store = if self.books.are_shared() { "redis" } else { "memory" };
        // A server that stands still is as good as gone: the page is not to stand still as well.
        let (books, processes) = tokio::join!(
            timeout(PATIENCE, self.books.latest(SHOWN)),
            timeout(PATIENCE, self.locks.processes()),
        );
        let books = books.ok().and_then(Result::ok);
        let processes = processes.ok().and_then(Result::ok).unwrap_or_default();
        let reachable = books.is_some();
        let (orders, accounts) = books.unwrap_or_default();
        let mut keys: BTreeSet<String> = self.board.keys().into_iter().collect();
        keys.extend(orders.iter().map(|order| format!("order:{}", order.id)));
        keys.extend(accounts.iter().map(|account| format!("account:{}", account.name)));
        let locks = match reachable {
            true => timeout(ANSWERS, held(&self.locks, keys)).await.unwrap_or_default(),
            false => Vec::new(),
        };
        let is_me = |process: &&Process| process.pid == std::process::id();
        let own = said(processes.iter().find(is_me).cloned());
        let processes: BTreeSet<_> = processes.iter().map(Process::to_string).collect();
        json!({
            "instance": me.instance.clone(), "store": store, "reachable": reachable,
            "orders": orders, "accounts": accounts, "me": me,
            "process": own, "processes": processes, "locks": locks,
        })
    }
}
