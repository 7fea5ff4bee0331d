//! [`Locked`] as an extractor of actix-web.

use std::future::Future;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{Error, FromRequest, HttpRequest};

use crate::error::LockError;
use crate::integrations::http::locked::{Locked, LockedOptions};
use crate::key::LockKey;
use crate::manager::LockManager;

/// The manager is the one that the `App`, scope or resource was given with
/// `app_data(web::Data::new(manager))` or `app_data(manager)`. Without one the answer is a 500, and the
/// log says so: no other manager is taken in its place, whose locks would exclude nothing. For the
/// process-wide manager, give it that: `app_data(web::Data::new(distlock::manager()?))`.
///
/// Arguments are extracted side by side: whatever else a handler asks for may be read before or
/// after the lock is taken.
///
/// `Option<Locked<K>>` is actix-web's own: `None` on *any* failure, a store that is gone among them, so
/// it means "not locked" and not "held by others". `Result<Locked<K>, actix_web::Error>` tells them
/// apart: `error.as_error::<LockError>().is_some_and(LockError::is_busy)`.
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
