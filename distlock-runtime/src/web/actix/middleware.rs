//! A lock around services.

use std::future::{Future, Ready, ready};
use std::mem;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::Rc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Path, ResourceDef, Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::web;
use actix_web::{Error, HttpResponse, ResponseError};

use crate::key::LockKey;
use crate::manager::LockManager;
use crate::request::{LockRequest, hold_and_release};
use crate::web::rule::{Rule, Source, options};
use crate::web::template::Template;

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
///     LockMiddleware::new(manager).key("order:{order_id}").wait(Duration::from_secs(2));
/// let app = App::new().service(
///     web::resource("/orders/{order_id}/pay").wrap(one_at_a_time).route(web::post().to(pay)),
/// );
/// ```
///
/// Every request to what it wraps is locked, whatever the method; to lock some requests only, see
/// [`key_fn`](Self::key_fn). Its body is read after the lock is taken.
///
/// If the lock cannot be taken the handler does not run, and the response is that of the
/// [`LockError`](crate::LockError). If the lease is lost while it runs, the handler is dropped at its
/// next await. Inside it, `#[redis_lock]` with the same key is a nested call.
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
pub struct LockMiddleware {
    rule: Rule<ServiceRequest>,
}

impl LockMiddleware {
    /// A middleware with the manager's defaults, which needs a [`key`](Self::key) or a
    /// [`key_fn`](Self::key_fn).
    #[track_caller]
    pub fn new(manager: LockManager) -> Self {
        Self { rule: Rule::new(manager, Location::caller()) }
    }

    /// What to lock: a template whose placeholders are path parameters, `order:{order_id}`. Their
    /// values are percent-decoded and then encoded as in the attribute, so that the same text makes
    /// the same key in both. `{{` and `}}` are literal braces.
    ///
    /// Around a scope or the app, parameters of the resource that the path leads to count as well.
    ///
    /// A parameter is a text: `/orders/7` and `/orders/07` are two locks, even if the handler takes
    /// both for the number 7.
    ///
    /// A template that cannot be used is logged at error level at once, and answers every request
    /// with 500; [`checked`](Self::checked) returns it as an error instead. A path without a
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
    /// # use distlock::actix::LockMiddleware;
    /// use actix_web::dev::ServiceRequest;
    ///
    /// let changes_only =
    ///     LockMiddleware::new(LockManager::in_memory()).key_fn(|request: &ServiceRequest| {
    ///         (!request.method().is_safe()).then(|| LockKey::from(request.path()))
    ///     });
    /// ```
    pub fn key_fn<F>(mut self, key: F) -> Self
    where
        F: Fn(&ServiceRequest) -> Option<LockKey> + Send + Sync + 'static,
    {
        self.rule.function(key);
        self
    }

    options!();
}

impl<S, B> Transform<S, ServiceRequest> for LockMiddleware
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

/// What [`LockMiddleware`] makes of a service.
#[derive(Debug)]
pub struct LockService<S> {
    inner: Rc<S>,
    rule: Rc<Rule<ServiceRequest>>,
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
    rule: Rc<Rule<ServiceRequest>>,
    mut request: ServiceRequest,
) -> Result<ServiceResponse<EitherBody<B>>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
{
    let lock = match lock(&rule, &mut request).await {
        Ok(Some(lock)) => lock,
        Ok(None) => return inner.call(request).await.map(ServiceResponse::map_into_left_body),
        Err(response) => return Ok(request.into_response(response).map_into_right_body()),
    };
    let mut guard = match lock.acquire().await {
        Ok(guard) => guard,
        // A response rather than an error: middleware around this one sees it as any other.
        Err(error) => {
            let response = error.error_response();
            return Ok(request.into_response(response).map_into_right_body());
        }
    };
    let handler = pin!(async move { inner.call(request).await });
    // The request went along with the handler, so that only an error is left to be returned.
    let response = hold_and_release(&mut guard, handler).await?;
    response.map(ServiceResponse::map_into_left_body)
}

/// The lock of a request, or the response that says why there is none.
async fn lock(
    rule: &Rule<ServiceRequest>,
    request: &mut ServiceRequest,
) -> Result<Option<LockRequest>, HttpResponse> {
    let key = match rule.source().map_err(HttpResponse::from_error)? {
        Source::Function(key) => match key(request) {
            Some(key) => key,
            None => return Ok(None),
        },
        Source::Template(template) => {
            let parameters = parameters(template, request).await?;
            let parameters: Vec<(&str, &str)> =
                parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            template.fill(&parameters).map_err(HttpResponse::from_error)?
        }
    };
    Ok(Some(rule.lock(key)))
}

/// The names and values of the path's parameters, decoded as for handlers.
type Parameters = Vec<(String, String)>;

async fn parameters(
    template: &Template,
    request: &mut ServiceRequest,
) -> Result<Parameters, HttpResponse> {
    if !template.has_parameters() {
        return Ok(Vec::new());
    }
    let matched = |name: &str| request.match_info().get(name).is_some();
    if template.missing(matched).is_none() {
        return decoded(request).await;
    }
    // Around a scope or the app only the beginning of the path is matched so far.
    let mut path = Path::new(request.match_info().get_ref().clone());
    let whole = request.match_pattern().and_then(resource);
    if !whole.is_some_and(|resource| resource.capture_match_info(&mut path)) {
        return decoded(request).await;
    }
    let beginning = mem::replace(request.match_info_mut(), path);
    let parameters = decoded(request).await;
    *request.match_info_mut() = beginning;
    parameters
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
