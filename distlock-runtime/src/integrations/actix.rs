//! Integration with actix-web 4, with the feature `actix`: failed locks as responses, a lock around services, a lock as
//! an argument of a handler. Handlers need not be `Send`.
//!
//! | for | use |
//! |---|---|
//! | one handler | `#[redis_lock]` on it; it may return `Result<T, E>` with `E: From<LockError>` (also `actix_web::Error`), an `HttpResponse` or `impl Responder` |
//! | services | [`LockMiddleware`] for `wrap` |
//! | an argument | [`Locked<K>`](Locked): the lock from there to the end of the handler, or longer |
//!
//! # Errors
//!
//! [`LockError`](crate::LockError) is a `ResponseError`: `application/problem+json` with the status of
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
//! The attribute and [`LockMiddleware`] hold the lock until the handler's future is done, and free it
//! before the response is sent, so a client that has the response can ask again at once. **A body that
//! streams is sent after that, without the lock.** To hold the lock while a body streams, take a
//! [`Locked`] and move it into the stream. The lock then ends with the body, or when the client is gone.
//!
//! When a client disconnects, actix-web by default lets the handler run to its end, and the lock
//! ends with the handler. With `HttpServer::h1_allow_half_closed(false)` the handler is dropped at its next
//! await, and then the lock is freed.

use std::future::{Future, Ready, ready};
use std::marker::PhantomData;
use std::mem;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{
    Path, Payload, ResourceDef, Service, ServiceRequest, ServiceResponse, Transform,
};
use actix_web::error::{InternalError, PayloadError};
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::web::{self, Bytes, Data};
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError};
use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;
use futures_core::Stream;

use super::http::arrival::{BodyArrival, TooLate, in_time};
use super::http::problem::{CONTENT_TYPE as PROBLEM_JSON, Problem};
use super::http::rule::{Refusal, Rule, Source, setters};
use super::http::template::PathTemplate;
pub use super::http::{
    Defaults, FencingToken, HasKey, KeyOrResponse, Keyed, Locked, LockedOptions, MaybeKey,
    RouteKey, Unkeyed,
};
use crate::error::LockError;
use crate::key_encoding::Float;
use crate::manager::LockManager;
use crate::request::hold_and_release;
use crate::return_type::FromLockError;

/// `application/problem+json` with the status of [`LockError::http_status`] and `Retry-After` of
/// [`LockError::http_retry_after`]. It does not contain the key. The error itself is in the response's extensions, for
/// outer middleware.
impl ResponseError for LockError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::from(Problem::answer(self, None));
        response.extensions_mut().insert(self.clone());
        response
    }
}

impl From<Problem> for HttpResponse {
    fn from(problem: Problem) -> Self {
        let Problem { status, retry_after, body } = problem;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Self::build(status);
        response.insert_header((CONTENT_TYPE, PROBLEM_JSON));
        if let Some(seconds) = retry_after {
            response.insert_header((RETRY_AFTER, seconds));
        }
        response.body(body)
    }
}

impl FromLockError for HttpResponse {
    fn from_lock_error(error: LockError) -> Self {
        Self::from_error(error)
    }
}

/// `web::Path` prints as the value in it, so a path parameter that is a float cannot be part of a key either.
impl<T: Float> Float for web::Path<T> {}

type ServiceRule = Rule<ServiceRequest, HttpResponse>;

/// Runs handlers under a lock: for `wrap` of a resource, a route, a scope or the app.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use std::time::Duration;
///
/// use actix_web::{App, web};
/// use distlock::LockManager;
/// use distlock::actix::LockMiddleware;
///
/// async fn pay(order_id: web::Path<u64>) -> String {
///     format!("order {order_id} is paid")
/// }
///
/// let manager = LockManager::in_memory();
/// let one_at_a_time =
///     LockMiddleware::new(manager).key("order:{order_id:u64}").wait(Duration::from_secs(2));
/// let app = App::new().service(
///     web::resource("/orders/{order_id}/pay").route(web::post().to(pay).wrap(one_at_a_time)),
/// );
/// ```
///
/// Every request to the wrapped service is locked. Around a resource this means every method, so that a `GET` may wait
/// for the lock before it is answered with 405: wrap the route, as here. To lock only some requests, see also
/// [`key_fn`](Self::key_fn). The body is read after the lock is taken, and has to arrive within
/// [`body_timeout`](Self::body_timeout). A request that matches no route, which a scope or the app sees as well, takes
/// no lock: a 404 stays one. A `default_service` is no route: lock it with `key_fn`.
///
/// If the lock cannot be taken the handler does not run, and the response is that of the
/// [`LockError`](crate::LockError), or the one of [`on_fail`](Self::on_fail). The error is in the
/// response's extensions. If the lease is lost while the handler runs, it is dropped at its next await.
/// Inside the handler, `#[redis_lock]` with the same key is a nested call.
///
/// The handler finds its lock's [`FencingToken`](crate::actix::FencingToken) in the request's
/// extensions:
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use actix_web::web::ReqData;
/// use distlock::actix::FencingToken;
///
/// async fn pay(token: ReqData<FencingToken>) -> String {
///     format!("UPDATE account SET …, fence = {token} WHERE … AND fence <= {token}", token = *token)
/// }
/// ```
///
/// # When the lock ends
///
/// When the handler's future is done, before its response is sent. A body that streams is sent
/// without the lock; see the [module](crate::actix#when-the-lock-ends).
///
/// # Cancel safety
///
/// When the server drops the handler, the lock is freed after that.
#[derive(Debug, Clone)]
#[must_use = "a middleware does nothing before it is given to `wrap`"]
pub struct LockMiddleware<K = Keyed> {
    rule: ServiceRule,
    key: PhantomData<K>,
}

impl LockMiddleware<Unkeyed> {
    /// Makes a middleware with the manager's defaults, which needs a [`key`](Self::key),
    /// [`keys`](Self::keys) or a [`key_fn`](Self::key_fn).
    #[track_caller]
    pub fn new(manager: LockManager) -> Self {
        Self { rule: ServiceRule::new(manager, Location::caller()), key: PhantomData }
    }
}

impl<Key> LockMiddleware<Key> {
    /// Marks a middleware whose rule has a key.
    fn keyed(rule: ServiceRule) -> LockMiddleware {
        LockMiddleware { rule, key: PhantomData }
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
    /// Around a scope or the app, the parameters of the matched resource count as well. A path that matches, without a
    /// parameter of that name or with two of them, answers with 500, and the log names the parameter.
    ///
    /// # Panics
    ///
    /// If the template is malformed or leaves a type out.
    #[track_caller]
    pub fn key(self, key: impl Into<RouteKey>) -> LockMiddleware {
        self.keys([key])
    }

    /// Sets several keys, each as in [`key`](Self::key). Their locks are sorted, taken once each, all or none, with one
    /// `wait` for all.
    ///
    /// ```
    /// # extern crate distlock_runtime as distlock;
    /// # use distlock::{LockManager, actix::LockMiddleware};
    /// LockMiddleware::new(LockManager::in_memory()).keys(["account:{from:u64}", "account:{to:u64}"]);
    /// ```
    ///
    /// # Panics
    ///
    /// If a template is malformed or leaves a type out.
    #[track_caller]
    pub fn keys<K: Into<RouteKey>>(mut self, keys: impl IntoIterator<Item = K>) -> LockMiddleware {
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
    /// # use distlock::actix::LockMiddleware;
    /// # macro_rules! key { ($($t:tt)*) => { LockKey::from(format!($($t)*)) } }
    /// use actix_web::dev::ServiceRequest;
    /// use actix_web::error::ErrorBadRequest;
    ///
    /// // One change of the catalogue at a time; reading it takes no lock.
    /// let changes_only =
    ///     LockMiddleware::new(LockManager::in_memory()).key_fn(|request: &ServiceRequest| {
    ///         (!request.method().is_safe()).then(|| key!("catalogue"))
    ///     });
    ///
    /// let idempotent =
    ///     LockMiddleware::new(LockManager::in_memory()).key_fn(|request: &ServiceRequest| {
    ///         let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok());
    ///         key.map(|key| key!("idempotency:{key}"))
    ///             .ok_or_else(|| ErrorBadRequest("no Idempotency-Key"))
    ///     });
    /// ```
    pub fn key_fn<F, K>(mut self, key: F) -> LockMiddleware
    where
        F: Fn(&ServiceRequest) -> K + Send + Sync + 'static,
        K: KeyOrResponse<HttpResponse>,
    {
        self.rule.function(move |request| key(request).key_or_response());
        Self::keyed(self.rule)
    }

    /// Sets the answer that replaces the response of a [`LockError`], `Lost` included: an `HttpResponse`, its builder,
    /// or an `Error`. The error is in the extensions of this response as well.
    ///
    /// ```
    /// # extern crate distlock_runtime as distlock;
    /// # use distlock::LockManager;
    /// # use distlock::actix::LockMiddleware;
    /// use actix_web::HttpResponse;
    ///
    /// let layer = LockMiddleware::new(LockManager::in_memory()).key("report").on_fail(|error| {
    ///     match error.is_busy() {
    ///         true => HttpResponse::Accepted().body("it is being made"),
    ///         false => HttpResponse::ServiceUnavailable().finish(),
    ///     }
    /// });
    /// ```
    pub fn on_fail<F, R>(mut self, answer: F) -> Self
    where
        F: Fn(&LockError) -> R + Send + Sync + 'static,
        R: Into<HttpResponse>,
    {
        self.rule.on_fail(move |error| answer(error).into());
        self
    }

    setters!();
}

impl<K: MaybeKey, R: Into<HttpResponse>> KeyOrResponse<HttpResponse> for Result<K, R> {
    fn key_or_response(self) -> Result<Option<LockKey>, Box<HttpResponse>> {
        self.map(K::into_key).map_err(|refusal| Box::new(refusal.into()))
    }
}

impl<S, B, Key: HasKey> Transform<S, ServiceRequest> for LockMiddleware<Key>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = LockMiddlewareService<S>;
    type InitError = ();
    type Future = Ready<Result<LockMiddlewareService<S>, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(LockMiddlewareService {
            inner: Rc::new(service),
            rule: Rc::new(self.rule.clone()),
        }))
    }
}

/// The service that a [`LockMiddleware`] puts around another one. It has no methods of its own.
#[derive(Debug)]
pub struct LockMiddlewareService<S> {
    inner: Rc<S>,
    rule: Rc<ServiceRule>,
}

impl<S, B> Service<ServiceRequest> for LockMiddlewareService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    actix_web::dev::forward_ready!(inner);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (inner, rule) = (self.inner.clone(), self.rule.clone());
        Box::pin(run(inner, rule, request))
    }
}

/// Handles one request.
async fn run<S, B>(
    inner: Rc<S>,
    rule: Rc<ServiceRule>,
    mut request: ServiceRequest,
) -> Result<ServiceResponse<EitherBody<B>>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
{
    let keys = match keys(&rule, &mut request).await {
        Ok(Some(keys)) => keys,
        Ok(None) => return inner.call(request).await.map(ServiceResponse::map_into_left_body),
        Err(response) => return Ok(request.into_response(response).map_into_right_body()),
    };
    let mut guard = match rule.lock(keys).acquire().await {
        Ok(guard) => guard,
        // A response rather than an error, so that outer middleware sees it as any other response.
        Err(error) => {
            let response = refuse(&rule, error);
            return Ok(request.into_response(response).map_into_right_body());
        }
    };
    request.extensions_mut().insert(FencingToken(guard.fencing_token()));
    let arrival = arriving(&mut request, &rule);
    // Declared after the guard, so dropped before it: no other request may have the lock while the destructors of the
    // handler run.
    let handler = pin!(async {
        let handler = inner.call(request);
        match &arrival {
            None => Some(handler.await),
            Some(arrival) => {
                let handler = pin!(handler);
                in_time(arrival, rule.manager(), handler).await
            }
        }
    });
    // A response needs the request, which the handler has consumed. An error needs none.
    let failed = |response| Err(InternalError::from_response("lock", response).into());
    match hold_and_release(&mut guard, handler).await {
        Ok(Some(response)) => response.map(ServiceResponse::map_into_left_body),
        Ok(None) => failed(Problem::body_too_late(&rule.name()).into()),
        Err(error) => failed(refuse(&rule, error)),
    }
}

/// Makes the response to a failed lock.
fn refuse(rule: &ServiceRule, error: LockError) -> HttpResponse {
    let (answer, error) = rule.answer(error);
    let mut response = match answer {
        Refusal::Problem(problem) => problem.into(),
        Refusal::Own(response) => response,
    };
    response.extensions_mut().insert(error);
    response
}

/// Returns the keys of a request, or `None` if it takes no lock. An error is the response.
async fn keys(
    rule: &ServiceRule,
    request: &mut ServiceRequest,
) -> Result<Option<OneOrMany<LockKey>>, HttpResponse> {
    let templates = match rule.source().map_err(|error| refuse(rule, error))? {
        Source::Function(key) => {
            return key(request).map(|key| key.map(OneOrMany::One)).map_err(|answer| *answer);
        }
        Source::Templates(templates) => templates,
    };
    let Some(parameters) = parameters(templates, request).await? else {
        return Ok(None);
    };
    let parameters: Vec<(&str, &str)> =
        parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let keys = templates.iter().map(|template| template.fill(&parameters));
    keys.collect::<Result<OneOrMany<_>, _>>().map(Some).map_err(|error| refuse(rule, error))
}

/// The names and values of the path's parameters, decoded as for handlers.
type Parameters = Vec<(String, String)>;

/// Returns the path's parameters, or `None` if the path matches no route.
async fn parameters(
    templates: &[PathTemplate],
    request: &mut ServiceRequest,
) -> Result<Option<Parameters>, HttpResponse> {
    if !templates.iter().any(PathTemplate::has_parameters) {
        return Ok(request.match_pattern().map(|_| Vec::new()));
    }
    let is_there = |name: &str| request.match_info().get(name).is_some();
    if templates.iter().all(|template| template.finds(is_there)) {
        return decoded(request).await.map(Some);
    }
    // Around a scope or the app, only the beginning of the path is matched so far.
    let Some(pattern) = request.match_pattern() else {
        return Ok(None);
    };
    let mut path = Path::new(request.match_info().get_ref().clone());
    if !resource(pattern).is_some_and(|resource| resource.capture_match_info(&mut path)) {
        return decoded(request).await.map(Some);
    }
    let beginning = mem::replace(request.match_info_mut(), path);
    let parameters = decoded(request).await;
    *request.match_info_mut() = beginning;
    parameters.map(Some)
}

/// Parses the pattern of a whole path. Its parts were valid when the app was made. Together they may have a name twice,
/// or too many names, and `ResourceDef` panics at that.
fn resource(pattern: String) -> Option<ResourceDef> {
    const MOST: usize = 16;
    let mut names: Vec<&str> = Vec::new();
    let mut depth = 0;
    for (at, c) in pattern.char_indices() {
        match c {
            '{' => {
                if depth == 0 {
                    let rest = &pattern[at + 1..];
                    names.push(rest.split([':', '}']).next().unwrap_or(rest));
                }
                depth += 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    (count <= MOST && names.len() == count).then(|| ResourceDef::new(pattern))
}

/// Decodes the path's parameters.
async fn decoded(request: &mut ServiceRequest) -> Result<Parameters, HttpResponse> {
    let values = request.extract::<web::Path<Vec<String>>>().await;
    let values = values.map_err(HttpResponse::from_error)?.into_inner();
    // Both are in the order of the path.
    let names = request.match_info().iter().map(|(name, _)| name.to_owned());
    Ok(names.zip(values).collect())
}

/// Wraps the request's body for the handler. Returns the state of its arrival, or `None` without a body.
fn arriving<R, A>(request: &mut ServiceRequest, rule: &Rule<R, A>) -> Option<Arc<BodyArrival>> {
    let inner = match request.take_payload() {
        Payload::None => return None,
        inner => inner,
    };
    let arrival = BodyArrival::new(rule.manager(), rule.body_timeout);
    let payload = Box::pin(ArrivingPayload { inner, arrival: arrival.clone() });
    request.set_payload(Payload::Stream { payload });
    Some(arrival)
}

/// A body that notes when it is waited for.
struct ArrivingPayload {
    inner: Payload,
    arrival: Arc<BodyArrival>,
}

impl Stream for ArrivingPayload {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let late = |late| {
            let error = std::io::Error::new(std::io::ErrorKind::TimedOut, late);
            Poll::Ready(Some(Err(PayloadError::Io(error))))
        };
        if self.arrival.is_late() {
            return late(TooLate);
        }
        match Pin::new(&mut self.inner).poll_next(cx) {
            Poll::Pending => match self.arrival.awaited(cx.waker()) {
                Ok(()) => Poll::Pending,
                Err(error) => late(error),
            },
            Poll::Ready(piece) => {
                if !matches!(piece, Some(Ok(_))) {
                    self.arrival.over();
                } else {
                    self.arrival.piece();
                }
                Poll::Ready(piece)
            }
        }
    }
}

impl Drop for ArrivingPayload {
    fn drop(&mut self) {
        self.arrival.over();
    }
}

/// The manager is the one that the `App`, scope or resource was given with
/// `app_data(web::Data::new(manager))` or `app_data(manager)`. Without one the answer is a 500, and the log names the
/// mistake. No other manager replaces it, because the locks of another manager might exclude nothing. For the
/// process-wide manager, use `app_data(web::Data::new(distlock::manager()?))`.
///
/// Arguments are extracted concurrently: the other arguments of a handler may be read before or after the lock is
/// taken.
///
/// `Option<Locked<K>>` is actix-web's own, and `None` on *any* failure, for example of the store. So it means "not
/// locked" and not "held by others". `Result<Locked<K>, actix_web::Error>` tells them apart:
/// `error.as_error::<LockError>().is_some_and(LockError::is_busy)`.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use std::future::{Ready, ready};
///
/// use actix_web::dev::Payload;
/// use actix_web::{App, Error, FromRequest, HttpRequest, error, web};
/// use distlock::actix::Locked;
/// use distlock::{LockKey, LockManager};
/// # macro_rules! key { ($($t:tt)*) => { LockKey::from(format!($($t)*)) } }
///
/// /// The order of the path.
/// struct OrderId(u64);
///
/// impl FromRequest for OrderId {
///     type Error = Error;
///     type Future = Ready<Result<Self, Error>>;
///
///     fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
///         let id = web::Path::<u64>::from_request(request, payload).into_inner();
///         ready(id.map(|id| Self(id.into_inner())).map_err(error::ErrorNotFound))
///     }
/// }
///
/// impl From<OrderId> for LockKey {
///     fn from(OrderId(id): OrderId) -> Self {
///         key!("order:{id}")
///     }
/// }
///
/// async fn pay(order_id: web::Path<u64>, lock: Locked<OrderId>) -> String {
///     format!("order {order_id} is paid, fencing token {}", lock.fencing_token())
/// }
///
/// let app = App::new()
///     .app_data(web::Data::new(LockManager::in_memory()))
///     .route("/orders/{order_id}", web::post().to(pay));
/// ```
impl<K, O> FromRequest for Locked<K, O>
where
    K: FromRequest + Into<LockKey> + 'static,
    O: LockedOptions + 'static,
{
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let key = K::from_request(request, payload);
        let of_app = request
            .app_data::<Data<LockManager>>()
            .map(|manager| manager.get_ref())
            .or_else(|| request.app_data::<LockManager>());
        let manager = of_app.cloned().ok_or_else(|| {
            LockError::invalid_option(
                "Locked: the app has no lock manager; add `.app_data(web::Data::new(manager))` to the \
                 App, scope or resource (for the process-wide one \
                 `web::Data::new(distlock::manager()?)`)",
            )
        });
        Box::pin(async move {
            let key = key.await.map_err(Into::into)?;
            Ok(Self::take(manager, key.into()).await?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_cannot_be_put_together_do_no_harm() {
        assert!(resource("/a/{id}/b/{other:[0-9]{2,4}}".to_owned()).is_some());
        assert!(resource("/a/{id}/b/{id:[0-9]{2}}".to_owned()).is_none());
        let many: String = (0..17).map(|n| format!("/{{p{n}}}")).collect();
        assert!(resource(many).is_none());
    }
}
