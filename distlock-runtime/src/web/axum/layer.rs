//! A lock around routes.

use std::future::Future;
use std::mem;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::axum::extract::{FromRequestParts, RawPathParams};
use ::axum::http::Request;
use ::axum::http::request::Parts;
use ::axum::response::{IntoResponse, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::key::LockKey;
use crate::manager::LockManager;
use crate::request::LockRequest;
use crate::web::rule::{Rule, Source, options};

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
/// let one_at_a_time = LockLayer::new(manager).key("order:{order_id}").wait(Duration::from_secs(2));
/// let app: Router = Router::new()
///     .route("/orders/{order_id}/pay", post(pay))
///     .route_layer(one_at_a_time);
/// ```
///
/// Every route under it is locked, whatever the method; to lock some requests only, see
/// [`key_fn`](Self::key_fn). The request's path is matched before, its body is read after the lock
/// is taken.
///
/// If the lock cannot be taken the handler does not run, and the response is that of the
/// [`LockError`](crate::LockError). If the lease is lost while it runs, the handler is dropped at its
/// next await. Inside it, `#[redis_lock]` with the same key is a nested call.
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
pub struct LockLayer {
    rule: Rule<Parts>,
}

impl LockLayer {
    /// A layer with the manager's defaults, which needs a [`key`](Self::key) or a
    /// [`key_fn`](Self::key_fn).
    #[track_caller]
    pub fn new(manager: LockManager) -> Self {
        Self { rule: Rule::new(manager, Location::caller()) }
    }

    /// What to lock: a template whose placeholders are path parameters, `order:{order_id}`. Their
    /// values are percent-decoded and then encoded as in the attribute, so that the same text makes
    /// the same key in both. `{{` and `}}` are literal braces.
    ///
    /// A parameter is a text: `/orders/7` and `/orders/07` are two locks, even if the handler takes
    /// both for the number 7.
    ///
    /// A template that cannot be used is logged at error level at once, and answers every request
    /// with 500; [`checked`](Self::checked) returns it as an error instead. A route without a
    /// parameter of that name answers with 500, and the log names the parameter.
    pub fn key(mut self, template: &'static str) -> Self {
        self.rule.template(template);
        self
    }

    /// What to lock, from all of the request but its body. `None`: this request is not locked.
    ///
    /// ```
    /// # extern crate distlock_runtime as distlock;
    /// # use distlock::{LockKey, LockManager};
    /// # use distlock::axum::LockLayer;
    /// use axum::http::request::Parts;
    ///
    /// let changes_only = LockLayer::new(LockManager::in_memory()).key_fn(|request: &Parts| {
    ///     (!request.method.is_safe()).then(|| LockKey::from(request.uri.path()))
    /// });
    /// ```
    pub fn key_fn<F>(mut self, key: F) -> Self
    where
        F: Fn(&Parts) -> Option<LockKey> + Send + Sync + 'static,
    {
        self.rule.function(key);
        self
    }

    options!();
}

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    fn layer(&self, inner: S) -> LockService<S> {
        LockService { inner, rule: self.rule.clone() }
    }
}

/// What [`LockLayer`] makes of a route.
#[derive(Debug, Clone)]
pub struct LockService<S> {
    inner: S,
    rule: Rule<Parts>,
}

/// The response of a [`LockService`].
pub type ResponseFuture<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

impl<S, B> Service<Request<B>> for LockService<S>
where
    S: Service<Request<B>, Response: IntoResponse, Error: Send, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Send + 'static,
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
            let lock = match lock(&rule, &mut parts).await {
                Ok(lock) => lock,
                Err(response) => return Ok(response),
            };
            let request = Request::from_parts(parts, body);
            let handler = async move { inner.call(request).await.map(S::Response::into_response) };
            match lock {
                None => handler.await,
                Some(lock) => {
                    lock.run(handler).await.unwrap_or_else(|error| Ok(error.into_response()))
                }
            }
        })
    }
}

/// The lock of a request, or the response that says why there is none.
async fn lock(rule: &Rule<Parts>, parts: &mut Parts) -> Result<Option<LockRequest>, Response> {
    let key = match rule.source().map_err(IntoResponse::into_response)? {
        Source::Function(key) => match key(parts) {
            Some(key) => key,
            None => return Ok(None),
        },
        Source::Template(template) if !template.has_parameters() => {
            template.fill(&[]).map_err(IntoResponse::into_response)?
        }
        Source::Template(template) => {
            // Nothing is there where no route was matched.
            let matched = match RawPathParams::from_request_parts(parts, &()).await {
                Ok(matched) => Some(matched),
                Err(rejection) => {
                    let response = rejection.into_response();
                    // Not the client's mistake: let the template say what is missing.
                    if !response.status().is_server_error() {
                        return Err(response);
                    }
                    None
                }
            };
            let parameters: Vec<_> = matched.iter().flatten().collect();
            template.fill(&parameters).map_err(IntoResponse::into_response)?
        }
    };
    Ok(Some(rule.lock(key)))
}
