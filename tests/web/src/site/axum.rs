//! The site as served by axum.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use distlock::axum::{LockLayer, Locked};
use distlock::{LockError, LockManager, redis_lock};
use tokio::net::TcpListener;

use super::{BRIEF, Item, Work, key_of_path};

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

fn router(work: &Work) -> Router<Arc<Work>> {
    let layer = |manager: &LockManager| LockLayer::new(manager.clone()).key("item:{item}");
    let by_path = LockLayer::new(work.patient.clone())
        .key_fn(|parts: &Parts| (parts.method != "GET").then(|| key_of_path(parts.uri.path()))?);
    let layered = Router::new()
        .route("/layer/{item}/add", post(add).route_layer(layer(&work.patient)))
        .route("/layer/{item}/hold", post(hold).route_layer(layer(&work.hasty)))
        .route("/layer/{item}/stream", post(stream).route_layer(layer(&work.hasty)))
        .route("/layer/{item}/brief", post(add).route_layer(layer(&work.hasty).wait(BRIEF)))
        .route("/layer/{item}/panic", post(panic).route_layer(layer(&work.patient)))
        .route("/layer/{item}/nested", post(attribute_add).route_layer(layer(&work.patient)));
    let locked = |manager: &LockManager| Extension(manager.clone());
    let extracted = Router::new()
        .route("/locked/{item}/add", post(locked_add).layer(locked(&work.patient)))
        .route("/locked/{item}/brief", post(locked_add).layer(locked(&work.hasty)))
        .route("/locked/{item}/hold", post(locked_hold).layer(locked(&work.hasty)))
        .route("/locked/{item}/stream", post(locked_stream).layer(locked(&work.hasty)));
    let attributed = Router::new()
        .route("/attribute/{item}/add", post(attribute_add))
        .route("/attribute/{item}/hold", post(attribute_hold))
        .route("/attribute/{item}/brief", post(attribute_brief))
        .route("/attribute/{item}/status", post(attribute_status))
        .route("/attribute/{item}/own", post(attribute_own));
    let inner = Router::new()
        .route("/inner/{part}", post(hold))
        .route_layer(LockLayer::new(work.hasty.clone()).key("{item}-{part}"));
    let wrong = Router::new()
        .route("/missing/{thing}", post(bare_add).route_layer(layer(&work.patient)))
        .route("/missing", post(bare_add).route_layer(layer(&work.patient)))
        .route(
            "/broken/{item}",
            post(bare_add).route_layer(LockLayer::new(work.patient.clone()).key("item:{item")),
        )
        .route("/keyless", post(bare_add).route_layer(LockLayer::new(work.patient.clone())));
    Router::new()
        .route("/fn/{item}/add", post(add).get(add))
        .route("/fn/{item}/hold", post(hold).get(hold))
        .route_layer(by_path)
        .route("/bare/{item}/add", post(bare_add))
        .nest("/outer/{item}", inner)
        .merge(layered)
        .merge(extracted)
        .merge(attributed)
        .merge(wrong)
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
