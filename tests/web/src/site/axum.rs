//! The site as served by axum.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRef, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use distlock::axum::{FencingToken, LockLayer, Locked};
use distlock::{LockError, LockKey, LockManager, LockMode, redis_lock, route_key};
use futures_util::StreamExt;
use tokio::net::TcpListener;

use super::{
    AnyError, BODY_TIMEOUT, BRIEF, Item, OneOfTwo, Patient, Reading, TTL, Work, key_of_path,
};

/// A state with a manager, as apps have it.
#[derive(Clone, FromRef)]
struct App {
    work: Arc<Work>,
    locks: LockManager,
}

/// The site's own state is an `Arc` of this.
impl FromRef<Work> for LockManager {
    fn from_ref(work: &Work) -> Self {
        work.hasty.clone()
    }
}

type Shared = State<Arc<Work>>;
type ItemPath = Path<(String,)>;

impl<S: Send + Sync> FromRequestParts<S> for Item {
    type Rejection = PathRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PathRejection> {
        Path::from_request_parts(parts, state).await.map(|Path((item,))| Self(item))
    }
}

/// Serves the site until the process ends; returns where.
pub async fn serve(work: Arc<Work>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let app = router(&work).with_state(work);
    tokio::spawn(async move { axum::serve(listener, app).await });
    addr
}

fn router(work: &Arc<Work>) -> Router<Arc<Work>> {
    let layer = |manager: &LockManager| LockLayer::new(manager.clone()).key("item:{item:str}");
    let by_path = LockLayer::new(work.patient.clone())
        .key_fn(|parts: &Parts| (parts.method != "GET").then(|| key_of_path(parts.uri.path()))?);
    let layered = Router::new()
        .route("/layer/{item}/add", post(add).route_layer(layer(&work.patient)))
        .route("/layer/{item}/hold", post(hold).route_layer(layer(&work.hasty)))
        .route("/layer/{item}/stream", post(stream).route_layer(layer(&work.hasty)))
        .route("/layer/{item}/brief", post(add).route_layer(layer(&work.hasty).wait(BRIEF)))
        .route("/layer/{item}/body", post(body).route_layer(layer(&work.hasty)))
        .route("/layer/{item}/panic", post(panic).route_layer(layer(&work.patient)))
        .route("/layer/{item}/nested", post(attribute_add).route_layer(layer(&work.patient)));
    let patient = App { work: work.clone(), locks: work.patient.clone() };
    let extracted = Router::new()
        .route("/locked/{item}/brief", post(locked_add))
        .route("/locked/{item}/hold", post(locked_hold))
        .route("/locked/{item}/stream", post(locked_stream))
        .route("/locked/{item}/patient", post(locked_patiently))
        .route("/locked/{item}/perhaps", post(perhaps_locked))
        .merge(Router::new().route("/locked/{item}/add", post(locked_add)).with_state(patient))
        .merge(Router::new().route("/unmanaged/{item}", post(unmanaged)).with_state(()));
    let order = LockLayer::new(work.hasty.clone()).key(route_key!("order:{id:u64}"));
    let job = LockLayer::new(work.hasty.clone()).key("job:{id:uuid}");
    let typed = Router::new()
        .route("/typed/{id}/hold", post(hold).route_layer(order))
        .route("/typed/{id}/attribute", post(attribute_typed))
        .route("/uuid/{id}/hold", post(hold).route_layer(job));
    let late = Router::new()
        .route("/late/{item}/body", post(body))
        .route("/late/{item}/work", post(body_and_work))
        .route("/late/{item}/unread", post(hold))
        .route("/late/{item}/spawned", post(spawned))
        .route("/late/{item}/pieces", post(pieces))
        .route_layer(layer(&work.hasty).body_timeout(BODY_TIMEOUT));
    let own = layer(&work.hasty).busy_status(409).retry_after(TTL).name("own");
    let later = |error: &LockError| (StatusCode::ACCEPTED, format!("later: {}", error.code()));
    let two = LockLayer::new(work.hasty.clone()).keys(["item:{item:str}", "item:{other:str}"]);
    let keyed = LockLayer::new(work.hasty.clone()).key_fn(|parts: &Parts| {
        let key = parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        key.map(LockKey::from).ok_or((StatusCode::BAD_REQUEST, "no Idempotency-Key"))
    });
    let of_its_own = Router::new()
        .route("/own/{item}/hold", post(hold).route_layer(own))
        .route("/own/{item}/attribute", post(attribute_brief))
        .route("/own/{item}/fail", post(hold).route_layer(layer(&work.hasty).on_fail(later)))
        .route("/own/{item}/prefix", post(hold).route_layer(layer(&work.hasty).prefix("other")))
        .route("/own/{item}/token", post(token).route_layer(layer(&work.hasty)))
        .route("/own/{item}/with/{other}", post(hold).route_layer(two))
        .route("/own/keyed", post(hold).route_layer(keyed))
        .route("/own/{item}/any", post(any_error))
        .route("/own/{item}/outage", post(hold).route_layer(layer(&work.hasty).name("outage")))
        .layer(map_response(tell_error));
    let attributed = Router::new()
        .route("/attribute/{item}/add", post(attribute_add))
        .route("/attribute/{item}/hold", post(attribute_hold))
        .route("/attribute/{item}/brief", post(attribute_brief))
        .route("/attribute/{item}/status", post(attribute_status))
        .route("/attribute/{item}/own", post(attribute_own));
    let reading = layer(&work.hasty).mode(LockMode::Read);
    let both = layer(&work.hasty).mode(LockMode::Read).permits(2).name("both");
    let shared = Router::new()
        .route("/shared/{item}/layer", post(hold).route_layer(reading))
        .route("/shared/{item}/locked", post(reading_hold))
        .route("/shared/{item}/attribute", post(attribute_reading))
        .route("/shared/{item}/permit", post(hold).route_layer(layer(&work.hasty).permits(2)))
        .route("/shared/{item}/locked_permit", post(permitted_hold))
        .route("/shared/{item}/both", post(hold).route_layer(both));
    let inner = Router::new()
        .route("/inner/{part}", post(hold))
        .route_layer(LockLayer::new(work.hasty.clone()).key("{item:str}-{part:str}"));
    let lost: Router<Arc<Work>> = Router::new()
        .route("/{item}", post(bare_add))
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(layer(&work.hasty).name("lost"));
    let wrong = Router::new()
        .route("/missing/{thing}", post(bare_add).route_layer(layer(&work.patient)))
        .route("/missing", post(bare_add).route_layer(layer(&work.patient)))
        .route(
            "/keyless",
            post(bare_add).route_layer(LockLayer::new(work.patient.clone()).keys([""; 0])),
        );
    Router::new()
        .route("/fn/{item}/add", post(add).get(add))
        .route("/fn/{item}/hold", post(hold).get(hold))
        .route_layer(by_path)
        .route("/bare/{item}/add", post(bare_add))
        .nest("/outer/{item}", inner)
        .nest("/lost", lost)
        .merge(layered)
        .merge(extracted)
        .merge(attributed)
        .merge(typed)
        .merge(shared)
        .merge(late)
        .merge(of_its_own)
        .merge(wrong)
}

async fn body(body: Bytes) -> String {
    format!("{} bytes", body.len())
}

async fn body_and_work(State(work): Shared, body: Bytes) -> String {
    assert!(!body.is_empty());
    work.hold().await
}

/// Reads the body in another task.
async fn spawned(State(work): Shared, body: Body) -> String {
    let of_reader = work.clone();
    tokio::spawn(async move {
        if axum::body::to_bytes(body, 1000).await.is_err() {
            of_reader.unread.fetch_add(1, SeqCst);
        }
    });
    work.hold().await
}

/// Works on each piece of the body before it asks for the next.
async fn pieces(State(work): Shared, body: Body) -> String {
    let mut body = body.into_data_stream();
    while let Some(piece) = body.next().await {
        assert!(piece.is_ok(), "{piece:?}");
        work.hold().await;
    }
    "all of it".to_owned()
}

async fn token(Extension(FencingToken(token)): Extension<FencingToken>) -> String {
    token.to_string()
}

async fn locked_patiently(State(work): Shared, _lock: Locked<Item, Patient>) -> String {
    work.add().await
}

async fn perhaps_locked(lock: Option<Locked<Item>>) -> &'static str {
    if lock.is_some() { "locked" } else { "not locked" }
}

async fn unmanaged(lock: Locked<Item>) -> String {
    lock.fencing_token().to_string()
}

/// What a layer outside of the lock's sees.
async fn tell_error(mut response: Response) -> Response {
    let error = response.extensions().get::<LockError>().map(LockError::code);
    if let Some(code) = error {
        response.headers_mut().insert("x-lock-error", HeaderValue::from_static(code));
    }
    response
}

impl IntoResponse for AnyError {
    fn into_response(self) -> Response {
        match self.0.downcast::<LockError>() {
            Ok(error) => error.into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

#[redis_lock(key = "item:{item}", manager = work.hasty)]
async fn any_error(State(work): Shared, Path((item,)): ItemPath) -> Result<String, AnyError> {
    Ok(work.add().await)
}

#[redis_lock(key = "order:{id}", manager = work.hasty)]
async fn attribute_typed(State(work): Shared, Path(id): Path<u64>) -> impl IntoResponse {
    work.add().await
}

async fn bare_add(State(work): Shared) -> String {
    work.add().await
}

async fn add(State(work): Shared, Path((item,)): ItemPath) -> String {
    format!("{item}: {}", work.add().await)
}

async fn hold(State(work): Shared) -> String {
    work.hold().await
}

async fn panic(State(work): Shared) -> String {
    work.panic()
}

async fn stream(State(work): Shared) -> Response {
    Body::from_stream(work.stream(())).into_response()
}

async fn locked_add(State(work): Shared, lock: Locked<Item>) -> String {
    format!("{}, token {}", work.add().await, lock.fencing_token())
}

async fn locked_hold(State(work): Shared, _lock: Locked<Item>) -> String {
    work.hold().await
}

async fn reading_hold(State(work): Shared, _lock: Locked<Item, Reading>) -> String {
    work.hold().await
}

async fn permitted_hold(State(work): Shared, _lock: Locked<Item, OneOfTwo>) -> String {
    work.hold().await
}

#[redis_lock(key = "item:{item}", mode = read, manager = work.hasty)]
async fn attribute_reading(State(work): Shared, Path((item,)): ItemPath) -> impl IntoResponse {
    work.hold().await
}

async fn locked_stream(State(work): Shared, lock: Locked<Item>) -> Response {
    Body::from_stream(work.stream(lock)).into_response()
}

#[redis_lock(key = "item:{item}", manager = work.patient)]
async fn attribute_add(State(work): Shared, Path((item,)): ItemPath) -> impl IntoResponse {
    work.add().await
}

#[redis_lock(key = "item:{item}", manager = work.hasty)]
async fn attribute_hold(State(work): Shared, Path((item,)): ItemPath) -> Response {
    work.hold().await.into_response()
}

#[redis_lock(key = "item:{item}", manager = work.hasty)]
async fn attribute_brief(
    State(work): Shared,
    Path((item,)): ItemPath,
) -> Result<String, LockError> {
    Ok(work.add().await)
}

#[redis_lock(key = "item:{item}", manager = work.hasty)]
async fn attribute_status(
    State(work): Shared,
    Path((item,)): ItemPath,
) -> Result<String, StatusCode> {
    Ok(work.add().await)
}

#[redis_lock(key = "item:{item}", manager = work.hasty)]
async fn attribute_own(
    State(work): Shared,
    Path((item,)): ItemPath,
) -> axum::response::Result<String> {
    Ok(work.add().await)
}
