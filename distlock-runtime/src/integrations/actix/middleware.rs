//! A lock around services.

use std::future::{Future, Ready, ready};
use std::marker::PhantomData;
use std::mem;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::Rc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Path, ResourceDef, Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::error::InternalError;
use actix_web::web;
use actix_web::{Error, HttpMessage, HttpResponse};

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

type Rule = rule::Rule<ServiceRequest, HttpResponse>;

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
/// Every request to what it wraps is locked. Around a resource that is every method, so that a `GET`
/// may wait for the lock before it is answered with 405: wrap the route, as here. To lock some requests only,
/// see also [`key_fn`](Self::key_fn). The body is read after the lock is taken, and has to come within
/// [`body_timeout`](Self::body_timeout). Where no route matches, which a scope or the app sees as
/// well, there is nothing to lock: a 404 stays one. A `default_service` is no route: lock it with
/// `key_fn`.
///
/// If the lock cannot be taken the handler does not run, and the response is that of the
/// [`LockError`](crate::LockError), or what [`on_fail`](Self::on_fail) says; the error is in the
/// response's extensions. If the lease is lost while it runs, the handler is dropped at its next await.
/// Inside it, `#[redis_lock]` with the same key is a nested call.
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
    rule: Rule,
    key: PhantomData<K>,
}

impl LockMiddleware<Unkeyed> {
    /// A middleware with the manager's defaults, which needs a [`key`](Self::key),
    /// [`keys`](Self::keys) or a [`key_fn`](Self::key_fn).
    #[track_caller]
    pub fn new(manager: LockManager) -> Self {
        Self { rule: Rule::new(manager, Location::caller()), key: PhantomData }
    }
}

impl<Key> LockMiddleware<Key> {
    /// Returns the same middleware with this rule, which has a key.
    fn keyed(rule: Rule) -> LockMiddleware {
        LockMiddleware { rule, key: PhantomData }
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
    /// Around a scope or the app, parameters of the resource that the path leads to count as well. A
    /// path that matches, without a parameter of that name or with two of it, answers with 500, and the
    /// log names the parameter.
    ///
    /// # Panics
    ///
    /// If the template is malformed or leaves a type out.
    #[track_caller]
    pub fn key(self, key: impl Into<RouteKey>) -> LockMiddleware {
        self.keys([key])
    }

    /// Several locks at once, as in [`key`](Self::key): sorted, each once, all or nothing, one `wait`
    /// for all.
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

    /// What to answer instead of the response of a [`LockError`], `Lost` included: an `HttpResponse`,
    /// its builder, or an `Error`. The error is in the extensions of that response as well.
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
    type Transform = LockService<S>;
    type InitError = ();
    type Future = Ready<Result<LockService<S>, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(LockService { inner: Rc::new(service), rule: Rc::new(self.rule.clone()) }))
    }
}

/// What [`LockMiddleware`] makes of a service: the type that `wrap` puts around it. It has no methods of
/// its own.
#[derive(Debug)]
pub struct LockService<S> {
    inner: Rc<S>,
    rule: Rc<Rule>,
}

impl<S, B> Service<ServiceRequest> for LockService<S>
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

async fn run<S, B>(
    inner: Rc<S>,
    rule: Rc<Rule>,
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
        // A response rather than an error: middleware around this one sees it as any other.
        Err(error) => {
            let response = refuse(&rule, error);
            return Ok(request.into_response(response).map_into_right_body());
        }
    };
    request.extensions_mut().insert(FencingToken(guard.fencing_token()));
    let arrival = arriving(&mut request, &rule);
    // Dropped before the guard: no other request may have the lock while its destructors run.
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
    // The request went along with the handler, so that only an error is left to be returned.
    let failed = |response| Err(InternalError::from_response("lock", response).into());
    match hold_and_release(&mut guard, handler).await {
        Ok(Some(response)) => response.map(ServiceResponse::map_into_left_body),
        Ok(None) => failed(Problem::body_too_late(&rule.name()).into()),
        Err(error) => failed(refuse(&rule, error)),
    }
}

fn refuse(rule: &Rule, error: LockError) -> HttpResponse {
    let (answer, error) = rule.answer(error);
    let mut response = match answer {
        Answer::Problem(problem) => problem.into(),
        Answer::Own(response) => response,
    };
    response.extensions_mut().insert(error);
    response
}

/// The keys of a request, `None` if it is not to be locked, or the response that says why there are
/// none.
async fn keys(
    rule: &Rule,
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

/// `None` where there is nothing to lock, because the path leads nowhere.
async fn parameters(
    templates: &[Template],
    request: &mut ServiceRequest,
) -> Result<Option<Parameters>, HttpResponse> {
    if !templates.iter().any(Template::has_parameters) {
        return Ok(request.match_pattern().map(|_| Vec::new()));
    }
    let is_there = |name: &str| request.match_info().get(name).is_some();
    if templates.iter().all(|template| template.finds(is_there)) {
        return decoded(request).await.map(Some);
    }
    // Around a scope or the app only the beginning of the path is matched so far.
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

/// The pattern of a whole path. Its parts were good when the app was made; put together they may
/// have a name twice, or too many, which `ResourceDef` does not bear.
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

async fn decoded(request: &mut ServiceRequest) -> Result<Parameters, HttpResponse> {
    let values = request.extract::<web::Path<Vec<String>>>().await;
    let values = values.map_err(HttpResponse::from_error)?.into_inner();
    // Both are in the order of the path.
    let names = request.match_info().iter().map(|(name, _)| name.to_owned());
    Ok(names.zip(values).collect())
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
