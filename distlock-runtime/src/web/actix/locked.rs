//! [`Locked`] as an extractor of actix-web.

use std::future::Future;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{Error, FromRequest, HttpRequest};

use crate::global;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::web::Locked;

/// The manager is the one that the `App`, scope or resource was given with
/// `app_data(web::Data::new(manager))` or `app_data(manager)`, else the process-wide one.
///
/// Arguments are extracted side by side: whatever else a handler asks for may be read before or
/// after the lock is taken.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use std::future::{Ready, ready};
///
/// use actix_web::dev::Payload;
/// use actix_web::{Error, FromRequest, HttpRequest, error, web};
/// use distlock::LockKey;
/// use distlock::actix::Locked;
///
/// /// The order of the path.
/// struct OrderId(u64);
///
/// impl FromRequest for OrderId {
///     type Error = Error;
///     type Future = Ready<Result<Self, Error>>;
///
///     fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
///         let id = request.match_info().query("order_id").parse();
///         ready(id.map(Self).map_err(error::ErrorNotFound))
///     }
/// }
///
/// impl From<OrderId> for LockKey {
///     fn from(OrderId(id): OrderId) -> Self {
///         format!("order:{id}").into()
///     }
/// }
///
/// async fn pay(order_id: web::Path<u64>, lock: Locked<OrderId>) -> String {
///     format!("order {order_id} is paid, fencing token {}", lock.fencing_token())
/// }
/// # let _ = actix_web::App::new().route("/orders/{order_id}", web::post().to(pay));
/// ```
impl<K: FromRequest + Into<LockKey> + 'static> FromRequest for Locked<K> {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let key = K::from_request(request, payload);
        let of_app = request
            .app_data::<Data<LockManager>>()
            .map(|manager| manager.get_ref())
            .or_else(|| request.app_data::<LockManager>());
        let manager = of_app.map_or_else(global::manager, |manager| Ok(manager.clone()));
        Box::pin(async move {
            let key = key.await.map_err(Into::into)?;
            Ok(Self::take(manager, key.into()).await?)
        })
    }
}
