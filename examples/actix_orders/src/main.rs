//! The shop, served by actix-web.
//!
//! ```sh
//! cargo run -p actix_orders
//! ```
//!
//! and then open <http://127.0.0.1:3000>. See the package `orders` for what it does, and for how to
//! run several instances of it on one Redis server.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::net::{Ipv4Addr, TcpListener};
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
use distlock::{LockError, LockMiddleware, redis_lock};
use orders::{Arguments, NewOrder, Shop, ShopError, Transfer, Turn};

type Shared = Data<Shop>;

async fn place(shop: Shared, new: Json<NewOrder>) -> Result<impl Responder, Failure> {
    Ok(HttpResponse::Created().json(shop.place(new.into_inner()).await?))
}

/// At most one request of all instances is here for an order.
#[redis_lock(key = "order:{order_id}", wait = shop.wait, manager = shop.locks)]
#[post("/orders/{order_id}/pay", wrap = "from_fn(announce)")]
async fn pay(
    shop: Shared,
    order_id: Path<u64>,
    turn: ReqData<Turn>,
) -> Result<impl Responder, Failure> {
    turn.has();
    Ok(Json(shop.pay(*order_id, &turn).await?))
}

/// The middleware of its resource has taken the same lock.
async fn cancel(
    shop: Shared,
    order_id: Path<u64>,
    turn: ReqData<Turn>,
) -> Result<impl Responder, Failure> {
    turn.has();
    Ok(Json(shop.cancel(*order_id).await?))
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

#[get("/api/audit")]
async fn audit(shop: Shared) -> Result<impl Responder, Failure> {
    Ok(Json(shop.audit().await?))
}

fn routes(config: &mut ServiceConfig, shop: &Shop) {
    let one_at_a_time =
        LockMiddleware::new(shop.locks.clone()).key("order:{order_id}").wait(shop.wait);
    config
        .service(page)
        .service(board)
        .service(audit)
        .service(pay)
        .service(
            web::resource("/orders/{order_id}/cancel")
                .wrap(one_at_a_time)
                // The one that is wrapped around last is the first to see a request.
                .wrap(from_fn(announce))
                .route(web::post().to(cancel)),
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
    let who = request.headers().get("x-customer").and_then(|who| who.to_str().ok());
    let turn = shop.board.begin(who, request.path());
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

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port))?;
    let addr = listener.local_addr()?;
    let shop: Arc<Shop> = Shop::open(&format!("actix:{}", addr.port()), arguments).await?;
    println!("The shop is open at http://{addr}");
    let served = shop.clone();
    let app = move || {
        let routed = served.clone();
        App::new()
            .app_data(Data::from(served.clone()))
            .configure(move |config| routes(config, &routed))
    };
    HttpServer::new(app).workers(2).shutdown_timeout(5).listen(listener)?.run().await?;
    shop.locks.close(Duration::from_secs(5)).await;
    Ok(())
}
