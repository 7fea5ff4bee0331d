//! The shop, served by axum.
//!
//! ```sh
//! cargo run -p axum_orders
//! ```
//!
//! and then open <http://127.0.0.1:3000>. See the package `orders` for what it does, and for how to
//! run several instances of it on one Redis server.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use distlock::{LockError, LockLayer, redis_lock, route_key};
use orders::{Arguments, Audit, NewOrder, Order, Shop, ShopError, Transfer, Turn};
use serde_json::Value;
use tokio::net::TcpListener;

type Shared = State<Arc<Shop>>;

async fn place(
    State(shop): Shared,
    Json(new): Json<NewOrder>,
) -> Result<(StatusCode, Json<Order>), Failure> {
    Ok((StatusCode::CREATED, Json(shop.place(new).await?)))
}

/// How long calls at work have, once the service is asked to end.
const GRACE: Duration = Duration::from_secs(10);

/// At most one request of all instances is here for an order. `order_id` is a number by now: `/orders/7`
/// and `/orders/07` have the same lock.
#[redis_lock(key = "order:{order_id}", name = "pay", wait = turn.wait(), manager = shop.locks)]
async fn pay(
    State(shop): Shared,
    Path(order_id): Path<u64>,
    Extension(turn): Extension<Turn>,
) -> Result<Json<Order>, Failure> {
    Ok(Json(shop.pay(order_id, &turn).await?))
}

/// The layer of its route has taken the same lock.
async fn cancel(
    State(shop): Shared,
    Path(order_id): Path<u64>,
    Extension(turn): Extension<Turn>,
) -> Result<Json<Order>, Failure> {
    Ok(Json(shop.cancel(order_id, &turn).await?))
}

/// The shop locks both accounts.
async fn transfer(
    State(shop): Shared,
    Extension(turn): Extension<Turn>,
    Json(transfer): Json<Transfer>,
) -> Result<StatusCode, Failure> {
    shop.transfer(transfer, &turn).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn board(State(shop): Shared) -> Json<Value> {
    Json(shop.show().await)
}

async fn audit(State(shop): Shared) -> Result<Json<Audit>, Failure> {
    Ok(Json(shop.audit().await?))
}

async fn metrics(State(shop): Shared) -> String {
    shop.metrics()
}

fn router(shop: Arc<Shop>) -> Router {
    let one_at_a_time = LockLayer::new(shop.locks.clone())
        .key(route_key!("order:{order_id:u64}"))
        .name("cancel")
        .wait(shop.wait);
    Router::new()
        .route("/orders/{order_id}/cancel", post(cancel).route_layer(one_at_a_time))
        .route("/orders/{order_id}/pay", post(pay))
        .route("/orders", post(place))
        .route("/transfers", post(transfer))
        .route_layer(from_fn_with_state(shop.clone(), announce))
        .route("/", get(Html(orders::PAGE)))
        .route("/api/board", get(board))
        .route("/api/audit", get(audit))
        .route("/metrics", get(metrics))
        .with_state(shop)
}

/// Tells the board of a request, before it asks for any lock and until it is answered.
async fn announce(State(shop): Shared, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let turn = shop.begin(request.uri().path(), |name| headers.get(name)?.to_str().ok());
    request.extensions_mut().insert(turn.clone());
    let response = next.run(request).await;
    turn.end(response.status().as_u16());
    response
}

struct Failure(ShopError);

impl From<ShopError> for Failure {
    fn from(error: ShopError) -> Self {
        Self(error)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self.0 {
            ShopError::Lock(error) => error.into_response(),
            error => {
                let status = StatusCode::from_u16(error.status());
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let kind = [(header::CONTENT_TYPE, "application/problem+json")];
                (status, kind, error.problem()).into_response()
            }
        }
    }
}

async fn serve(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::from_std(orders::listen(arguments.port)?)?;
    let addr = listener.local_addr()?;
    let shop = Shop::open(&format!("axum:{}", addr.port()), arguments).await?;
    println!("The shop is open at http://{addr}");
    let server = axum::serve(listener, router(shop.clone()));
    let server = server.with_graceful_shutdown(orders::asked_to_end());
    // A client that never sends the rest of its request is not waited for.
    let overdue = async {
        orders::asked_to_end().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = server => served?,
        () = overdue => {}
    }
    shop.locks.close(Duration::from_secs(5)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    orders::run(serve).await
}
