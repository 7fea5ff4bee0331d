//! The site as served by actix-web.

use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::dev::{Payload, ServiceRequest};
use actix_web::web::{Data, Path, ServiceConfig};
use actix_web::{
    App, Error, FromRequest, HttpRequest, HttpResponse, HttpServer, Responder, error, web,
};
use distlock::actix::{LockMiddleware, Locked};
use distlock::{LockError, LockManager, redis_lock};

use super::{BRIEF, Item, Work, key_of_path};

type Shared = Data<Work>;
type ItemPath = Path<(String,)>;

impl FromRequest for Item {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let path = Path::<(String,)>::from_request(request, payload).into_inner();
        ready(path.map(|path| Self(path.into_inner().0)).map_err(error::ErrorNotFound))
    }
}

/// Serves the site until the process ends; returns where. Handlers of clients that disconnect run to
/// their end, which is actix-web's default.
pub async fn serve(work: Arc<Work>) -> SocketAddr {
    serve_with(work, true)
}

/// The same, dropping handlers of clients that disconnect.
pub async fn serve_attentively(work: Arc<Work>) -> SocketAddr {
    serve_with(work, false)
}

fn serve_with(work: Arc<Work>, half_closed: bool) -> SocketAddr {
    let app = move || {
        let work = Data::from(work.clone());
        App::new().configure(|config| site(config, &work)).app_data(work)
    };
    let server = HttpServer::new(app)
        .h1_allow_half_closed(half_closed)
        .workers(2)
        .disable_signals()
        .bind((Ipv4Addr::LOCALHOST, 0))
        .expect("a free port");
    let addr = server.addrs()[0];
    tokio::spawn(server.run());
    addr
}

fn site(config: &mut ServiceConfig, work: &Work) {
    let layer = |manager: &LockManager| LockMiddleware::new(manager.clone()).key("item:{item}");
    let by_path = LockMiddleware::new(work.patient.clone()).key_fn(|request: &ServiceRequest| {
        (request.method() != "GET").then(|| key_of_path(request.path()))?
    });
    config
        // Around the resource, around the route, and around a scope whose own path has no parameter.
        .service(
            web::resource("/layer/{item}/add")
                .wrap(layer(&work.patient))
                .route(web::post().to(add)),
        )
        .service(
            web::resource("/layer/{item}/hold")
                .route(web::post().to(hold).wrap(layer(&work.hasty))),
        )
        .service(
            web::resource("/layer/{item}/brief")
                .wrap(layer(&work.hasty).wait(BRIEF))
                .route(web::post().to(add)),
        )
        .service(
            web::resource("/layer/{item}/panic")
                .wrap(layer(&work.patient))
                .route(web::post().to(panic)),
        )
        .service(
            // Half of the key is the scope's, half is the resource's.
            web::scope("/outer/{item}").service(
                web::resource("/inner/{part}")
                    .wrap(LockMiddleware::new(work.hasty.clone()).key("{item}-{part}"))
                    .route(web::post().to(hold)),
            ),
        )
        .service(
            web::resource("/layer/{item}/nested")
                .wrap(layer(&work.patient))
                .route(web::post().to(attribute_add)),
        )
        .service(
            web::scope("/layer")
                .wrap(layer(&work.hasty))
                .route("/{item}/stream", web::post().to(stream)),
        )
        .service(
            web::scope("/fn")
                .wrap(by_path)
                .route("/{item}/add", web::route().to(add))
                .route("/{item}/hold", web::route().to(hold)),
        )
        .service(
            web::resource("/locked/{item}/add")
                .app_data(Data::new(work.patient.clone()))
                .route(web::post().to(locked_add)),
        )
        .service(
            web::scope("/locked")
                .app_data(work.hasty.clone())
                .route("/{item}/brief", web::post().to(locked_add))
                .route("/{item}/hold", web::post().to(locked_hold))
                .route("/{item}/stream", web::post().to(locked_stream)),
        )
        .service(
            web::scope("/attribute")
                .route("/{item}/add", web::post().to(attribute_add))
                .route("/{item}/hold", web::post().to(attribute_hold))
                .route("/{item}/brief", web::post().to(attribute_brief))
                .route("/{item}/own", web::post().to(attribute_own)),
        )
        .service(
            web::resource("/missing/{thing}")
                .wrap(layer(&work.patient))
                .route(web::post().to(bare_add)),
        )
        .service(
            web::resource("/missing").wrap(layer(&work.patient)).route(web::post().to(bare_add)),
        )
        .service(
            web::resource("/broken/{item}")
                .wrap(LockMiddleware::new(work.patient.clone()).key("item:{item"))
                .route(web::post().to(bare_add)),
        )
        .service(
            web::resource("/keyless")
                .wrap(LockMiddleware::new(work.patient.clone()))
                .route(web::post().to(bare_add)),
        )
        .route("/bare/{item}/add", web::post().to(bare_add));
}

async fn bare_add(work: Shared) -> String {
    work.add().await
}

async fn add(work: Shared, path: ItemPath) -> String {
    format!("{}: {}", path.0, work.add().await)
}

/// Not `Send`: it keeps something of its thread over an await.
async fn hold(work: Shared) -> String {
    let here = Rc::new(());
    let held = work.hold().await;
    drop(here);
    held
}

async fn panic(work: Shared) -> String {
    work.panic()
}

async fn stream(work: Shared) -> HttpResponse {
    HttpResponse::Ok().streaming(bytes(work.into_inner(), ()))
}

async fn locked_add(work: Shared, lock: Locked<Item>) -> String {
    format!("{}, token {}", work.add().await, lock.fencing_token())
}

async fn locked_hold(work: Shared, _lock: Locked<Item>) -> String {
    work.hold().await
}

async fn locked_stream(work: Shared, lock: Locked<Item>) -> HttpResponse {
    HttpResponse::Ok().streaming(bytes(work.into_inner(), lock))
}

fn bytes<L: 'static>(
    work: Arc<Work>,
    lock: L,
) -> impl futures_util::Stream<Item = Result<web::Bytes, std::io::Error>> + 'static {
    use futures_util::StreamExt;
    work.stream(lock).map(|piece| piece.map(|piece| web::Bytes::from_static(piece.as_bytes())))
}

#[redis_lock(key = "item:{path.0}", manager = work.patient)]
async fn attribute_add(work: Shared, path: ItemPath) -> impl Responder {
    work.add().await
}

#[redis_lock(key = "item:{path.0}", manager = work.hasty)]
async fn attribute_hold(work: Shared, path: ItemPath) -> HttpResponse {
    let here = Rc::new(());
    let held = work.hold().await;
    drop(here);
    HttpResponse::Ok().body(held)
}

#[redis_lock(key = "item:{path.0}", manager = work.hasty)]
async fn attribute_brief(work: Shared, path: ItemPath) -> Result<String, LockError> {
    Ok(work.add().await)
}

#[redis_lock(key = "item:{path.0}", manager = work.hasty)]
async fn attribute_own(work: Shared, path: ItemPath) -> Result<String, Error> {
    Ok(work.add().await)
}
