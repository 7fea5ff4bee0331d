//! A lock around routes.

use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use ::axum::BoxError;
use ::axum::body::{Body, Bytes, HttpBody};
use ::axum::extract::{FromRequestParts, MatchedPath, OriginalUri, RawPathParams};
use ::axum::http::Request;
use ::axum::http::request::Parts;
use ::axum::response::{IntoResponse, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::body::arriving;
use crate::error::LockError;
use crate::integrations::http::arrival::in_time;
use crate::integrations::http::problem::Problem;
use crate::integrations::http::route_key::RouteKey;
use crate::integrations::http::rule::{self, Answer, KeyOrResponse, MaybeKey, Source};
use crate::integrations::http::setters::setters;
use crate::integrations::http::template::Template;
use crate::integrations::http::{FencingToken, HasKey, Keyed, Unkeyed};
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::one_or_many::OneOrMany;
use crate::request::hold_and_release;

type Rule = rule::Rule<Parts, Response>;

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
/// Every route under it is locked, whatever the method it answers; to lock some requests only, give
/// it to a `MethodRouter` (`post(pay).route_layer(…)`), or see [`key_fn`](Self::key_fn). The
/// request's path is matched before, its body is read after the lock is taken, and has to come within
/// [`body_timeout`](Self::body_timeout). Where no route was matched, which `Router::layer` sees as
/// well, there are no parameters and nothing is locked: a 404 stays one. (A key without placeholders
/// is locked there, too: give it to `route_layer`.) What `nest_service` and `fallback_service` serve looks
/// the same from outside: **around them, a key with a parameter that only their own routes have locks
/// nothing.** Use `nest`, or give the layer to the routes in there.
///
/// If the lock cannot be taken the handler does not run, and the response is that of the
/// [`LockError`](crate::LockError), or what [`on_fail`](Self::on_fail) says; the error is in the
/// response's extensions. If the lease is lost while it runs, the handler is dropped at its next await.
/// Inside it, `#[redis_lock]` with the same key is a nested call.
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
/// It is made for routes of axum. A gRPC client does not understand its answers, which have a status of
/// HTTP. For tonic use the attribute and the feature `tonic`: a method that returns
/// `Result<_, tonic::Status>` works as it is.
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
    rule: Rule,
    key: PhantomData<K>,
}

impl LockLayer<Unkeyed> {
    /// A layer with the manager's defaults, which needs a [`key`](Self::key), [`keys`](Self::keys) or
    /// a [`key_fn`](Self::key_fn).
    #[track_caller]
    pub fn new(manager: LockManager) -> Self {
        Self { rule: Rule::new(manager, Location::caller()), key: PhantomData }
    }
}

impl<Key> LockLayer<Key> {
    /// Returns the same layer with this rule, which has a key.
    fn keyed(rule: Rule) -> LockLayer {
        LockLayer { rule, key: PhantomData }
    }

    /// What to lock: a template whose placeholders are path parameters with their type,
    /// `order:{order_id:u64}`. `{{` and `}}` are literal braces.
    ///
    /// The types are `u64`, `i64`, `uuid` and `str`. A value is percent-decoded, parsed as its type and
    /// printed again, so that `/orders/7`, `/orders/07` and `/orders/+7`, which are one order to a
    /// handler that takes a number, are one lock as well; then it is encoded as in the attribute, so
    /// that the same values make the same key in both. A value that is not of its type is answered
    /// with 400, and the handler does not run. `str` takes the text as it is: for handlers that do so,
    /// too.
    ///
    /// `route_key!("…")` checks a template while the program is compiled.
    ///
    /// A matched route without a parameter of that name, or with two of it, answers with 500, and the
    /// log names the parameter.
    ///
    /// # Panics
    ///
    /// If the template is malformed or leaves a type out.
    #[track_caller]
    pub fn key(self, key: impl Into<RouteKey>) -> LockLayer {
        self.keys([key])
    }

    /// Several locks at once, as in [`key`](Self::key): sorted, each once, all or nothing, one `wait`
    /// for all.
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

    /// What to lock, from all of the request but its body: a `LockKey`, an `Option` of one (`None`:
    /// this request is not locked), or a `Result` of either whose error is the response instead.
    ///
    /// Make the key with `key!`, which encodes what a client may have written, and begin it with a text
    /// of your own. A text that becomes a `LockKey` as it comes can name any other lock:
    /// `Idempotency-Key: order:7` would block the payment of an order. For a part of the path use
    /// [`key`](Self::key) with a type: `/orders/7`, `/orders/07` and `/orders/%37` are one order and
    /// three texts.
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

    /// What to answer instead of the response of a [`LockError`], `Lost` included. The error is in the
    /// extensions of that response as well.
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

/// What [`LockLayer`] makes of a route: the type that `route_layer` puts around it. It has no methods of
/// its own.
#[derive(Debug, Clone)]
pub struct LockService<S> {
    inner: S,
    rule: Arc<Rule>,
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
        // The one that was polled ready goes along, a fresh one stays.
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
            // Dropped before the guard: no other request may have the lock while its destructors run.
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

fn refuse(rule: &Rule, error: LockError) -> Response {
    let (answer, error) = rule.answer(error);
    let mut response = match answer {
        Answer::Problem(problem) => problem.into_response(),
        Answer::Own(response) => response,
    };
    response.extensions_mut().insert(error);
    response
}

/// The keys of a request, `None` if it is not to be locked, or the response that says why there are
/// none.
async fn keys(rule: &Rule, parts: &mut Parts) -> Result<Option<OneOrMany<LockKey>>, Response> {
    match rule.source().map_err(|error| refuse(rule, error))? {
        Source::Function(key) => {
            key(parts).map(|key| key.map(OneOrMany::One)).map_err(|answer| *answer)
        }
        Source::Templates(templates) => filled(rule, templates, parts).await,
    }
}

async fn filled(
    rule: &Rule,
    templates: &[Template],
    parts: &mut Parts,
) -> Result<Option<OneOrMany<LockKey>>, Response> {
    let path = if !templates.iter().any(Template::has_parameters) {
        None
    } else {
        match RawPathParams::from_request_parts(parts, &()).await {
            Ok(path) => Some(path),
            Err(rejection) => {
                let response = rejection.into_response();
                // A path that is no text is the client's mistake.
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
        // `Router::layer` wraps what answers 404 as well. A nested service has no `MatchedPath` either,
        // so this is no mistake only where parameters are missing. Outside of a router there is no
        // `OriginalUri`.
        let matched = parts.extensions.get::<MatchedPath>().is_some();
        if !matched && parts.extensions.get::<OriginalUri>().is_some() {
            return Ok(None);
        }
    }
    let keys = templates.iter().map(|template| template.fill(&parameters));
    keys.collect::<Result<OneOrMany<_>, _>>().map(Some).map_err(|error| refuse(rule, error))
}
