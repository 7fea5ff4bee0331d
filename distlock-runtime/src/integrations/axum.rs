//! Integration with axum 0.8, with the feature `axum`: failed locks as responses, a lock around routes, a lock as an
//! argument of a handler.
//!
//! | for | use |
//! |---|---|
//! | one handler | `#[redis_lock]` on it; it may return `Result<T, E>` with `E: From<LockError>` (also `StatusCode`), a `Response` or `impl IntoResponse` |
//! | routes | [`LockLayer`] for `Router::route_layer` |
//! | an argument | [`Locked<K>`](Locked): the lock from there to the end of the handler, or longer |
//!
//! # Errors
//!
//! [`LockError`](crate::LockError) is a response: `application/problem+json` with the status of
//! [`http_status`](crate::LockError::http_status) and, where trying again may help, `Retry-After` of
//! [`http_retry_after`](crate::LockError::http_retry_after). A lock held elsewhere is 423 (or the
//! manager's `busy_status`). The response does not name the key. Details that the client must not see are
//! logged at error level when the response is made, once a second at most for each lock.
//!
//! The member `code` of the document names the failure, and does not change between versions:
//!
//! | code | status | |
//! |---|---|---|
//! | `lock-busy` | 423, or `busy_status` | others hold the lock |
//! | `lock-store-unavailable` | 503 | the store cannot be reached, does not answer, or refuses |
//! | `lock-closed` | 503 | the manager was closed: the service ends |
//! | `lock-invalid-key` | 400 | the request's values make no valid key |
//! | `lock-body-timeout` | 408 | the request's body did not arrive within `body_timeout` |
//! | `lock-lost` | 500 | the lease was lost while the handler ran |
//! | `lock-would-deadlock` | 500 | the handler waits for a lock that it holds |
//! | `lock-misconfigured` | 500 | the log names the mistake in the set-up |
//!
//! The error itself is in the extensions of the response: `response.extensions().get::<LockError>()`.
//!
//! # When the lock ends
//!
//! The attribute and [`LockLayer`] hold the lock until the handler's future is done, and free it
//! before the response is sent, so a client that has the response can ask again at once. **A body that
//! streams is sent after that, without the lock.** To hold the lock while a body streams, take a
//! [`Locked`] and move it into the stream. The lock then ends with the body, or when the client is gone.
//!
//! When a client disconnects, hyper drops the handler's future at its next await, and the lock is freed. Work that
//! must be finished nevertheless belongs into a spawned task that takes the lock itself.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, mem};

use ::axum::BoxError;
use ::axum::body::{Body, Bytes, HttpBody};
use ::axum::extract::{
    FromRef, FromRequestParts, MatchedPath, OptionalFromRequestParts, OriginalUri, RawPathParams,
};
use ::axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::axum::http::request::Parts;
use ::axum::http::{HeaderValue, Request, StatusCode};
use ::axum::response::{IntoResponse, Response};
use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;
use http_body::{Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use super::http::arrival::{BodyArrival, TooLate, in_time};
use super::http::problem::{CONTENT_TYPE as PROBLEM_JSON, Problem};
use super::http::rule::{Refusal, Rule, Source, setters};
use super::http::template::PathTemplate;
pub use super::http::{
    Defaults, FencingToken, HasKey, KeyOrResponse, Keyed, Locked, LockedOptions, MaybeKey,
    RouteKey, Unkeyed,
};
use crate::error::LockError;
use crate::global;
use crate::manager::LockManager;
use crate::request::hold_and_release;
use crate::return_type::FromLockError;

/// `application/problem+json` with the status of [`LockError::http_status`] and `Retry-After` of
/// [`LockError::http_retry_after`]. It does not contain the key. The error itself is in the response's extensions, for
/// outer layers.
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let mut response = Problem::answer(&self, None).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, retry_after, body } = self;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// The status is [`LockError::http_status`]. The rest of a response to `LockError` is lost in this conversion.
impl From<LockError> for StatusCode {
    fn from(error: LockError) -> Self {
        Self::from_u16(error.http_status()).unwrap_or(Self::INTERNAL_SERVER_ERROR)
    }
}

/// The status, and the text about the error in a response.
impl From<LockError> for (StatusCode, String) {
    fn from(error: LockError) -> Self {
        let detail = error.for_clients().to_owned();
        (error.into(), detail)
    }
}

impl FromLockError for Response {
    fn from_lock_error(error: LockError) -> Self {
        error.into_response()
    }
}

type RouteRule = Rule<Parts, Response>;

/// Runs the handlers of routes under a lock: for `Router::route_layer` and
/// `MethodRouter::route_layer`.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use std::time::Duration;
///
/// use axum::Router;
/// use axum::extract::Path;
/// use axum::routing::post;
/// use distlock::LockManager;
/// use distlock::axum::LockLayer;
///
/// async fn pay(Path(order_id): Path<u64>) -> String {
///     format!("order {order_id} is paid")
/// }
///
/// let manager = LockManager::in_memory();
/// let one_at_a_time = LockLayer::new(manager)
///     .key("order:{order_id:u64}")
///     .wait(Duration::from_secs(2));
/// let app: Router = Router::new()
///     .route("/orders/{order_id}/pay", post(pay))
///     .route_layer(one_at_a_time);
/// ```
///
/// Every route under it is locked, whatever its method. To lock only some requests, give the layer to a
/// `MethodRouter` (`post(pay).route_layer(…)`), or see [`key_fn`](Self::key_fn). The request's path is matched before
/// the lock is taken. Its body is read afterwards, and has to arrive within [`body_timeout`](Self::body_timeout).
///
/// A request that matches no route, which `Router::layer` sees as well, has no parameters and takes no lock: a 404
/// stays one. (A key without placeholders is locked even then: give it to `route_layer`.) Routes behind `nest_service`
/// and `fallback_service` do not count as matched: **around these, a key with a parameter that only their own routes
/// have locks nothing.** Use `nest`, or add the layer to the inner routes.
///
/// If the lock cannot be taken the handler does not run, and the response is that of the
/// [`LockError`](crate::LockError), or the one of [`on_fail`](Self::on_fail). The error is in the
/// response's extensions. If the lease is lost while the handler runs, it is dropped at its next await.
/// Inside the handler, `#[redis_lock]` with the same key is a nested call.
///
/// The handler finds its lock's [`FencingToken`](crate::axum::FencingToken) in the request's
/// extensions:
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use axum::Extension;
/// use distlock::axum::FencingToken;
///
/// async fn pay(Extension(FencingToken(token)): Extension<FencingToken>) -> String {
///     format!("UPDATE account SET …, fence = {token} WHERE … AND fence <= {token}")
/// }
/// ```
///
/// The layer is for routes of axum. A gRPC client does not understand its answers, which have an HTTP status. For tonic
/// use the attribute and the feature `tonic`: a method that returns `Result<_, tonic::Status>` works as it is.
///
/// # When the lock ends
///
/// When the handler's future is done, before its response is sent. A body that streams is sent
/// without the lock; see the [module](crate::axum#when-the-lock-ends).
///
/// # Cancel safety
///
/// When the client disconnects, the handler is dropped and then the lock is freed.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing before it is given to `route_layer`"]
pub struct LockLayer<K = Keyed> {
    rule: RouteRule,
    key: PhantomData<K>,
}

impl LockLayer<Unkeyed> {
    /// Makes a layer with the manager's defaults, which needs a [`key`](Self::key), [`keys`](Self::keys) or
    /// a [`key_fn`](Self::key_fn).
    #[track_caller]
    pub fn new(manager: LockManager) -> Self {
        Self { rule: RouteRule::new(manager, Location::caller()), key: PhantomData }
    }
}

impl<Key> LockLayer<Key> {
    /// Marks a layer whose rule has a key.
    fn keyed(rule: RouteRule) -> LockLayer {
        LockLayer { rule, key: PhantomData }
    }

    /// Sets the key: a template whose placeholders are path parameters with their type, as in
    /// `order:{order_id:u64}`. `{{` and `}}` are literal braces.
    ///
    /// The types are `u64`, `i64`, `uuid` and `str`. A value is percent-decoded, parsed as its type and printed again.
    /// So `/orders/7`, `/orders/07` and `/orders/+7`, which are the same order to a handler that takes a number, are
    /// the same lock. Then the value is encoded as in the attribute, so that the same values make the same key in both.
    /// A value that is not of its type is answered with 400, and the handler does not run. `str` takes the text as it
    /// is, for handlers that do the same.
    ///
    /// `route_key!("…")` checks a template while the program is compiled.
    ///
    /// A matched route without a parameter of that name, or with two of them, answers with 500, and the log names the
    /// parameter.
    ///
    /// # Panics
    ///
    /// If the template is malformed or leaves a type out.
    #[track_caller]
    pub fn key(self, key: impl Into<RouteKey>) -> LockLayer {
        self.keys([key])
    }

    /// Sets several keys, each as in [`key`](Self::key). Their locks are sorted, taken once each, all or none, with one
    /// `wait` for all.
    ///
    /// ```
    /// # extern crate distlock_runtime as distlock;
    /// # use distlock::{LockManager, axum::LockLayer};
    /// LockLayer::new(LockManager::in_memory()).keys(["account:{from:u64}", "account:{to:u64}"]);
    /// ```
    ///
    /// # Panics
    ///
    /// If a template is malformed or leaves a type out.
    #[track_caller]
    pub fn keys<K: Into<RouteKey>>(mut self, keys: impl IntoIterator<Item = K>) -> LockLayer {
        self.rule.templates(keys.into_iter().map(Into::into), Location::caller());
        Self::keyed(self.rule)
    }

    /// Sets a function that makes the key from all of the request but its body. It returns a `LockKey`, an `Option` of
    /// one (with `None` the request is not locked), or a `Result` of either, whose error is the response.
    ///
    /// Make the key with `key!`, which encodes the client's text, and begin it with a text of your own. A client's text
    /// that becomes a `LockKey` unchanged can name any other lock: `Idempotency-Key: order:7` would block the payment
    /// of an order. For a part of the path use [`key`](Self::key) with a type: `/orders/7`, `/orders/07` and
    /// `/orders/%37` are one order and three texts.
    ///
    /// ```
    /// # extern crate distlock_runtime as distlock;
    /// # use distlock::{LockKey, LockManager};
    /// # use distlock::axum::LockLayer;
    /// # macro_rules! key { ($($t:tt)*) => { LockKey::from(format!($($t)*)) } }
    /// use axum::http::StatusCode;
    /// use axum::http::request::Parts;
    ///
    /// // One change of the catalogue at a time; reading it takes no lock.
    /// let changes_only = LockLayer::new(LockManager::in_memory())
    ///     .key_fn(|request: &Parts| (!request.method.is_safe()).then(|| key!("catalogue")));
    ///
    /// let idempotent = LockLayer::new(LockManager::in_memory()).key_fn(|request: &Parts| {
    ///     let key = request.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    ///     key.map(|key| key!("idempotency:{key}"))
    ///         .ok_or((StatusCode::BAD_REQUEST, "no Idempotency-Key"))
    /// });
    /// ```
    pub fn key_fn<F, K>(mut self, key: F) -> LockLayer
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: KeyOrResponse<Response>,
    {
        self.rule.function(move |parts| key(parts).key_or_response());
        Self::keyed(self.rule)
    }

    /// Sets the answer that replaces the response of a [`LockError`], `Lost` included. The error is in the
    /// extensions of this response as well.
    ///
    /// ```
    /// # extern crate distlock_runtime as distlock;
    /// # use distlock::LockManager;
    /// # use distlock::axum::LockLayer;
    /// use axum::http::StatusCode;
    /// use axum::response::{IntoResponse, Response};
    ///
    /// let layer = LockLayer::new(LockManager::in_memory()).key("report").on_fail(|error| {
    ///     match error.is_busy() {
    ///         true => (StatusCode::ACCEPTED, "it is being made").into_response(),
    ///         false => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    ///     }
    /// });
    /// ```
    pub fn on_fail<F, R>(mut self, answer: F) -> Self
    where
        F: Fn(&LockError) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        self.rule.on_fail(move |error| answer(error).into_response());
        self
    }

    setters!();
}

impl<K: MaybeKey, R: IntoResponse> KeyOrResponse<Response> for Result<K, R> {
    fn key_or_response(self) -> Result<Option<LockKey>, Box<Response>> {
        self.map(K::into_key).map_err(|refusal| Box::new(refusal.into_response()))
    }
}

impl<S, Key: HasKey> Layer<S> for LockLayer<Key> {
    type Service = LockService<S>;

    fn layer(&self, inner: S) -> LockService<S> {
        LockService { inner, rule: Arc::new(self.rule.clone()) }
    }
}

/// The service that a [`LockLayer`] puts around a route. It has no methods of its own.
#[derive(Debug, Clone)]
pub struct LockService<S> {
    inner: S,
    rule: Arc<RouteRule>,
}

/// The response of a [`LockService`].
pub type ResponseFuture<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

impl<S, B> Service<Request<B>> for LockService<S>
where
    S: Service<Request<Body>, Response: IntoResponse, Error: Send, Future: Send>
        + Clone
        + Send
        + 'static,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready handles this request, and its clone the next one.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let rule = self.rule.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let body = Body::new(body);
            let keys = match keys(&rule, &mut parts).await {
                Ok(Some(keys)) => keys,
                Ok(None) => {
                    let request = Request::from_parts(parts, body);
                    return inner.call(request).await.map(S::Response::into_response);
                }
                Err(response) => return Ok(response),
            };
            let mut guard = match rule.lock(keys).acquire().await {
                Ok(guard) => guard,
                Err(error) => return Ok(refuse(&rule, error)),
            };
            parts.extensions.insert(FencingToken(guard.fencing_token()));
            let (body, arrival) = arriving(body, &rule);
            let request = Request::from_parts(parts, body);
            // Declared after the guard, so dropped before it: no other request may have the lock while the
            // destructors of the handler run.
            let handler = pin!(async {
                // A response of another type than axum's need not be `Send`.
                let handler = async { inner.call(request).await.map(S::Response::into_response) };
                match &arrival {
                    None => Some(handler.await),
                    Some(arrival) => {
                        let handler = pin!(handler);
                        in_time(arrival, rule.manager(), handler).await
                    }
                }
            });
            match hold_and_release(&mut guard, handler).await {
                Ok(Some(response)) => response,
                Ok(None) => Ok(Problem::body_too_late(&rule.name()).into_response()),
                Err(error) => Ok(refuse(&rule, error)),
            }
        })
    }
}

/// Makes the response to a failed lock.
fn refuse(rule: &RouteRule, error: LockError) -> Response {
    let (answer, error) = rule.answer(error);
    let mut response = match answer {
        Refusal::Problem(problem) => problem.into_response(),
        Refusal::Own(response) => response,
    };
    response.extensions_mut().insert(error);
    response
}

/// Returns the keys of a request, or `None` if it takes no lock. An error is the response.
async fn keys(rule: &RouteRule, parts: &mut Parts) -> Result<Option<OneOrMany<LockKey>>, Response> {
    match rule.source().map_err(|error| refuse(rule, error))? {
        Source::Function(key) => {
            key(parts).map(|key| key.map(OneOrMany::One)).map_err(|answer| *answer)
        }
        Source::Templates(templates) => filled(rule, templates, parts).await,
    }
}

/// Fills in the templates from the path of a request.
async fn filled(
    rule: &RouteRule,
    templates: &[PathTemplate],
    parts: &mut Parts,
) -> Result<Option<OneOrMany<LockKey>>, Response> {
    let path = if !templates.iter().any(PathTemplate::has_parameters) {
        None
    } else {
        match RawPathParams::from_request_parts(parts, &()).await {
            Ok(path) => Some(path),
            Err(rejection) => {
                let response = rejection.into_response();
                // A path that is not valid UTF-8 is the client's mistake.
                if !response.status().is_server_error() {
                    return Err(response);
                }
                None
            }
        }
    };
    let parameters: Vec<(&str, &str)> = path.iter().flatten().collect();
    let is_there = |name: &str| parameters.iter().any(|(has, _)| *has == name);
    if !templates.iter().all(|template| template.finds(is_there)) {
        // `Router::layer` also wraps the service that answers 404. A nested service has no `MatchedPath` either, so a
        // missing match alone is no reason to skip the lock. Outside of a router there is no `OriginalUri`.
        let matched = parts.extensions.get::<MatchedPath>().is_some();
        if !matched && parts.extensions.get::<OriginalUri>().is_some() {
            return Ok(None);
        }
    }
    let keys = templates.iter().map(|template| template.fill(&parameters));
    keys.collect::<Result<OneOrMany<_>, _>>().map(Some).map_err(|error| refuse(rule, error))
}

/// Wraps the body for the handler. Returns the state of its arrival as well, or `None` if the body is complete.
fn arriving<R, A>(body: Body, rule: &Rule<R, A>) -> (Body, Option<Arc<BodyArrival>>) {
    if body.is_end_stream() {
        return (body, None);
    }
    let arrival = BodyArrival::new(rule.manager(), rule.body_timeout);
    let body = ArrivingBody { inner: body, arrival: arrival.clone() };
    (Body::new(body), Some(arrival))
}

/// A body that notes when it is waited for.
struct ArrivingBody {
    inner: Body,
    arrival: Arc<BodyArrival>,
}

impl HttpBody for ArrivingBody {
    type Data = Bytes;
    type Error = ::axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ::axum::Error>>> {
        if self.arrival.is_late() {
            return Poll::Ready(Some(Err(::axum::Error::new(TooLate))));
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Pending => match self.arrival.awaited(cx.waker()) {
                Ok(()) => Poll::Pending,
                Err(late) => Poll::Ready(Some(Err(::axum::Error::new(late)))),
            },
            Poll::Ready(frame) => {
                if !matches!(frame, Some(Ok(_))) || self.inner.is_end_stream() {
                    self.arrival.over();
                } else {
                    self.arrival.piece();
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for ArrivingBody {
    fn drop(&mut self) {
        self.arrival.over();
    }
}

/// The manager is the one of the router's state: `LockManager: FromRef<S>`, as with everything that a
/// handler takes from a state. With the state `()` it is the process-wide one. A state without a
/// manager does not compile.
///
/// Arguments are extracted from left to right. Put this one after those that may reject the request, so that a rejected
/// request takes no lock. The request's body, which is extracted last, is read under the lock.
///
/// ```ignore
/// use axum::extract::{FromRef, FromRequestParts, Path};
/// use distlock::{LockKey, LockManager, Locked, key};
///
/// #[derive(Clone, FromRef)]
/// struct App {
///     locks: LockManager,
/// }
///
/// /// The order of the path.
/// #[derive(FromRequestParts)]
/// struct OrderId(#[from_request(via(Path))] u64);
///
/// impl From<OrderId> for LockKey {
///     fn from(OrderId(id): OrderId) -> Self {
///         key!("order:{id}")
///     }
/// }
///
/// async fn pay(Path(order_id): Path<u64>, lock: Locked<OrderId>) -> String {
///     format!("order {order_id} is paid, fencing token {}", lock.fencing_token())
/// }
/// ```
impl<S, K, O> FromRequestParts<S> for Locked<K, O>
where
    S: HasLockManager + Send + Sync,
    K: FromRequestParts<S> + Into<LockKey>,
    O: LockedOptions,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let key = K::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let manager = state.lock_manager();
        Self::take(manager, key.into()).await.map_err(LockedRejection::Lock)
    }
}

/// `Option<Locked<K>>` is `None` if others hold the lock (for all of `wait`, if there is one), for handlers that answer
/// this themselves. Any other failure is answered as without the `Option`: if the store cannot be used, the handler
/// does not run.
impl<S, K, O> OptionalFromRequestParts<S> for Locked<K, O>
where
    S: HasLockManager + Send + Sync,
    K: FromRequestParts<S> + Into<LockKey>,
    O: LockedOptions,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        let key = K::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let manager = state.lock_manager();
        match Self::take(manager, key.into()).await {
            Ok(locked) => Ok(Some(locked)),
            Err(error) if error.is_busy() => Ok(None),
            Err(error) => Err(LockedRejection::Lock(error)),
        }
    }
}

/// The rejection of the extractor [`Locked`]. As a response it is that of its cause.
///
/// `R` is the rejection of the key's extractor: for [`Locked<OrderId>`](Locked) it is
/// `<OrderId as FromRequestParts<S>>::Rejection`. A handler that answers either failure itself takes
/// `Result<Locked<OrderId>, LockedRejection<…>>`.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedRejection<R> {
    /// The key could not be extracted. Usually this is the client's mistake.
    Key(R),
    /// The lock was not taken, because others hold it or the store cannot be used.
    Lock(LockError),
}

impl<R: IntoResponse> IntoResponse for LockedRejection<R> {
    fn into_response(self) -> Response {
        match self {
            Self::Key(rejection) => rejection.into_response(),
            Self::Lock(error) => error.into_response(),
        }
    }
}

impl<R: fmt::Display> fmt::Display for LockedRejection<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(rejection) => rejection.fmt(f),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

impl<R: std::error::Error + 'static> std::error::Error for LockedRejection<R> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Key(rejection) => rejection.source(),
            Self::Lock(error) => error.source(),
        }
    }
}

/// A router's state with a `LockManager`: a state with `LockManager: FromRef<S>`, an `Arc` of such a state, or `()`,
/// which stands for the process-wide manager.
#[diagnostic::on_unimplemented(
    message = "the router's state `{Self}` has no `LockManager` for `Locked`",
    label = "`LockManager: FromRef<{Self}>` is missing",
    note = "derive `FromRef` for the state, with a field of type `LockManager`, or write `impl FromRef<{Self}> for LockManager`",
    note = "with the state `()` it is the process-wide manager"
)]
pub trait HasLockManager {
    /// Returns the manager.
    ///
    /// # Errors
    ///
    /// Those of [`manager`](crate::manager), if the state is `()`.
    fn lock_manager(&self) -> Result<LockManager, LockError>;
}

#[diagnostic::do_not_recommend]
impl<S> HasLockManager for S
where
    LockManager: FromRef<S>,
{
    fn lock_manager(&self) -> Result<LockManager, LockError> {
        Ok(LockManager::from_ref(self))
    }
}

/// A program cannot implement `FromRef<Arc<App>>` for a manager itself, because of the orphan rule.
#[diagnostic::do_not_recommend]
impl<S> HasLockManager for Arc<S>
where
    LockManager: FromRef<S>,
{
    fn lock_manager(&self) -> Result<LockManager, LockError> {
        Ok(LockManager::from_ref(self))
    }
}

impl HasLockManager for () {
    fn lock_manager(&self) -> Result<LockManager, LockError> {
        global::manager()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_with_a_text_says_what_a_response_would() {
        let (status, text) = <(StatusCode, String)>::from(LockError::Closed);
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "The service is shutting down.")
        );
        assert!(Problem::answer(&LockError::Closed, None).body.contains(&text));
    }
}
