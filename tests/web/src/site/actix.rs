//! The site as served by actix-web.

use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use actix_web::body::MessageBody;
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{Data, Path, ReqData, ServiceConfig};
use actix_web::{
    App, Error, FromRequest, HttpRequest, HttpResponse, HttpServer, Responder, ResponseError,
    error, web,
};
use distlock::actix::{FencingToken, LockMiddleware, Locked};
use distlock::{LockError, LockKey, LockManager, LockMode, redis_lock, route_key};
use futures_util::StreamExt;

use super::{
    AnyError, BODY_TIMEOUT, BRIEF, Item, OneOfTwo, Patient, Reading, TTL, Work, key_of_path,
};

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
    let layer = |manager: &LockManager| LockMiddleware::new(manager.clone()).key("item:{item:str}");
    let by_path = LockMiddleware::new(work.patient.clone()).key_fn(|request: &ServiceRequest| {
        (request.method() != "GET").then(|| key_of_path(request.path()))?
    });
    let order = LockMiddleware::new(work.hasty.clone()).key(route_key!("order:{id:u64}"));
    let job = LockMiddleware::new(work.hasty.clone()).key("job:{id:uuid}");
    let own = layer(&work.hasty).busy_status(409).retry_after(TTL).name("own");
    let later =
        |error: &LockError| HttpResponse::Accepted().body(format!("later: {}", error.code()));
    let reading = layer(&work.hasty).mode(LockMode::Read);
    let both = layer(&work.hasty).mode(LockMode::Read).permits(2).name("both");
    let two = LockMiddleware::new(work.hasty.clone()).keys(["item:{item:str}", "item:{other:str}"]);
    let keyed = LockMiddleware::new(work.hasty.clone()).key_fn(|request: &ServiceRequest| {
        let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok());
        key.map(LockKey::from).ok_or_else(|| error::ErrorBadRequest("no Idempotency-Key"))
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
            web::resource("/layer/{item}/body")
                .route(web::post().to(body).wrap(layer(&work.hasty))),
        )
        .service(
            web::scope("/lost").wrap(layer(&work.hasty)).route("/{item}", web::post().to(bare_add)),
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
                    .wrap(LockMiddleware::new(work.hasty.clone()).key("{item:str}-{part:str}"))
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
                .route("/{item}/stream", web::post().to(locked_stream))
                .route("/{item}/patient", web::post().to(locked_patiently))
                .route("/{item}/perhaps", web::post().to(perhaps_locked)),
        )
        .route("/unmanaged/{item}", web::post().to(unmanaged))
        .route("/typed/{id}/hold", web::post().to(hold).wrap(order))
        .route("/typed/{id}/attribute", web::post().to(attribute_typed))
        .route("/uuid/{id}/hold", web::post().to(hold).wrap(job))
        .service(
            web::scope("/late")
                .wrap(layer(&work.hasty).body_timeout(BODY_TIMEOUT))
                .route("/{item}/body", web::post().to(body))
                .route("/{item}/work", web::post().to(body_and_work))
                .route("/{item}/unread", web::post().to(hold))
                .route("/{item}/spawned", web::post().to(spawned))
                .route("/{item}/pieces", web::post().to(pieces)),
        )
        .service(
            web::scope("/own")
                .wrap(from_fn(tell_error))
                .route("/keyed", web::post().to(hold).wrap(keyed))
                .route("/{item}/hold", web::post().to(hold).wrap(own))
                .route("/{item}/attribute", web::post().to(attribute_brief))
                .route("/{item}/fail", web::post().to(hold).wrap(layer(&work.hasty).on_fail(later)))
                .route(
                    "/{item}/prefix",
                    web::post().to(hold).wrap(layer(&work.hasty).prefix("other")),
                )
                .route("/{item}/token", web::post().to(token).wrap(layer(&work.hasty)))
                .route("/{item}/with/{other}", web::post().to(hold).wrap(two))
                .route("/{item}/any", web::post().to(any_error))
                .route(
                    "/{item}/outage",
                    web::post().to(hold).wrap(layer(&work.hasty).name("outage")),
                ),
        )
        .service(
            web::scope("/shared")
                .app_data(work.hasty.clone())
                .route("/{item}/layer", web::post().to(hold).wrap(reading))
                .route("/{item}/locked", web::post().to(reading_hold))
                .route("/{item}/attribute", web::post().to(attribute_reading))
                .route("/{item}/permit", web::post().to(hold).wrap(layer(&work.hasty).permits(2)))
                .route("/{item}/locked_permit", web::post().to(permitted_hold))
                .route("/{item}/both", web::post().to(hold).wrap(both)),
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
            web::resource("/keyless")
                .wrap(LockMiddleware::new(work.patient.clone()).keys([""; 0]))
                .route(web::post().to(bare_add)),
        )
        .route("/bare/{item}/add", web::post().to(bare_add));
}

async fn body(body: web::Bytes) -> String {
    format!("{} bytes", body.len())
}

async fn body_and_work(work: Shared, body: web::Bytes) -> String {
    assert!(!body.is_empty());
    work.hold().await
}

/// Reads the body in another task.
async fn spawned(work: Shared, body: web::Payload) -> String {
    let of_reader = work.clone();
    actix_web::rt::spawn(async move {
        if body.to_bytes().await.is_err() {
            of_reader.unread.fetch_add(1, SeqCst);
        }
    });
    work.hold().await
}

/// Works on each piece of the body before it asks for the next.
async fn pieces(work: Shared, mut body: web::Payload) -> String {
    while let Some(piece) = body.next().await {
        assert!(piece.is_ok(), "{piece:?}");
        work.hold().await;
    }
    "all of it".to_owned()
}

async fn token(token: ReqData<FencingToken>) -> String {
    token.to_string()
}

async fn locked_patiently(work: Shared, _lock: Locked<Item, Patient>) -> String {
    work.add().await
}

async fn perhaps_locked(lock: Option<Locked<Item>>) -> &'static str {
    if lock.is_some() { "locked" } else { "not locked" }
}

async fn unmanaged(lock: Locked<Item>) -> String {
    lock.fencing_token().to_string()
}

/// What a middleware outside of the lock's sees.
async fn tell_error(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let mut response = next.call(request).await?;
    let error = response.response().extensions().get::<LockError>().map(LockError::code);
    if let Some(code) = error {
        let name = HeaderName::from_static("x-lock-error");
        response.headers_mut().insert(name, HeaderValue::from_static(code));
    }
    Ok(response)
}

impl std::fmt::Display for AnyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for AnyError {
    fn error_response(&self) -> HttpResponse {
        match self.0.downcast_ref::<LockError>() {
            Some(error) => error.error_response(),
            None => HttpResponse::InternalServerError().finish(),
        }
    }
}

#[redis_lock(key = "item:{path.0}", manager = work.hasty)]
async fn any_error(work: Shared, path: ItemPath) -> Result<String, AnyError> {
    Ok(work.add().await)
}

#[redis_lock(key = "order:{id}", manager = work.hasty)]
async fn attribute_typed(work: Shared, id: Path<u64>) -> impl Responder {
    work.add().await
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

async fn reading_hold(work: Shared, _lock: Locked<Item, Reading>) -> String {
    work.hold().await
}

async fn permitted_hold(work: Shared, _lock: Locked<Item, OneOfTwo>) -> String {
    work.hold().await
}

#[redis_lock(key = "item:{path.0}", mode = read, manager = work.hasty)]
async fn attribute_reading(work: Shared, path: ItemPath) -> impl Responder {
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
