//! The shop, served by actix-web.
//!
//! ```sh
//! cargo run -p actix_orders
//! ```
//!
//! and then open <http://127.0.0.1:3000>. See the package `orders` for what it does, and for how to
//! run several instances of it on one Redis server.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::error::Error as StdError;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Data, Json, Path, ReqData, ServiceConfig};
use actix_web::{
    App, Error, HttpMessage, HttpResponse, HttpServer, Responder, ResponseError, get, post,
};
use distlock::{LockError, LockMiddleware, redis_lock, route_key};
use orders::{Arguments, NewOrder, Shop, ShopError, Transfer, Turn};

type Shared = Data<Shop>;

async fn place(shop: Shared, new: Json<NewOrder>) -> Result<impl Responder, Failure> {
    Ok(HttpResponse::Created().json(shop.place(new.into_inner()).await?))
}

/// How many seconds calls at work have, once the service is asked to end.
const GRACE: u64 = 10;

/// At most one request of all instances is here for an order. `order_id` is a number by now: `/orders/7`
/// and `/orders/07` have the same lock.
#[redis_lock(key = "order:{order_id}", name = "pay", wait = turn.wait(), manager = shop.locks)]
#[post("/orders/{order_id}/pay", wrap = "from_fn(announce)")]
async fn pay(
    shop: Shared,
    order_id: Path<u64>,
    turn: ReqData<Turn>,
) -> Result<impl Responder, Failure> {
    Ok(Json(shop.pay(*order_id, &turn).await?))
}

/// The middleware of its route has taken the same lock.
async fn cancel(
    shop: Shared,
    order_id: Path<u64>,
    turn: ReqData<Turn>,
) -> Result<impl Responder, Failure> {
    Ok(Json(shop.cancel(*order_id, &turn).await?))
}

/// The shop locks both accounts.
async fn transfer(
    shop: Shared,
    turn: ReqData<Turn>,
    transfer: Json<Transfer>,
) -> Result<impl Responder, Failure> {
    shop.transfer(transfer.into_inner(), &turn).await?;
    Ok(HttpResponse::NoContent())
}

#[get("/")]
async fn page() -> impl Responder {
    web::Html::new(orders::PAGE)
}

#[get("/api/board")]
async fn board(shop: Shared) -> impl Responder {
    Json(shop.show().await)
}

#[get("/metrics")]
async fn metrics(shop: Shared) -> String {
    shop.metrics()
}

#[get("/api/audit")]
async fn audit(shop: Shared) -> Result<impl Responder, Failure> {
    Ok(Json(shop.audit().await?))
}

fn routes(config: &mut ServiceConfig, shop: &Shop) {
    let one_at_a_time = LockMiddleware::new(shop.locks.clone())
        .key(route_key!("order:{order_id:u64}"))
        .name("cancel")
        .wait(shop.wait);
    config
        .service(page)
        .service(board)
        .service(audit)
        .service(metrics)
        .service(pay)
        .service(
            web::resource("/orders/{order_id}/cancel")
                .wrap(from_fn(announce))
                .route(web::post().to(cancel).wrap(one_at_a_time)),
        )
        .service(web::resource("/orders").wrap(from_fn(announce)).route(web::post().to(place)))
        .service(
            web::resource("/transfers").wrap(from_fn(announce)).route(web::post().to(transfer)),
        );
}

/// Tells the board of a request, before it asks for any lock and until it is answered.
async fn announce(
    shop: Shared,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let headers = request.headers();
    let turn = shop.begin(request.path(), |name| headers.get(name)?.to_str().ok());
    request.extensions_mut().insert(turn.clone());
    let answer = next.call(request).await;
    turn.end(match &answer {
        Ok(response) => response.status().as_u16(),
        Err(error) => error.as_response_error().status_code().as_u16(),
    });
    answer
}

#[derive(Debug)]
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

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        match &self.0 {
            ShopError::Lock(error) => error.error_response(),
            error => HttpResponse::build(self.status_code())
                .content_type("application/problem+json")
                .body(error.problem()),
        }
    }
}

async fn serve(arguments: Arguments) -> Result<(), Box<dyn StdError>> {
    let listener = orders::listen(arguments.port)?;
    let addr = listener.local_addr()?;
    let shop: Arc<Shop> = Shop::open(&format!("actix:{}", addr.port()), arguments).await?;
    println!("The shop is open at http://{addr}");
    let served = Data::from(shop.clone());
    let app = move || {
        let shop = served.clone();
        App::new().app_data(shop.clone()).configure(move |config| routes(config, &shop))
    };
    HttpServer::new(app)
        .workers(2)
        .shutdown_signal(orders::asked_to_end())
        .shutdown_timeout(GRACE)
        .listen(listener)?
        .run()
        .await?;
    shop.locks.close(Duration::from_secs(5)).await;
    Ok(())
}

#[actix_web::main]
async fn main() -> ExitCode {
    orders::run(serve).await
}
