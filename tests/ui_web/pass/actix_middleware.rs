use std::time::Duration;

use actix_web::dev::ServiceRequest;
use actix_web::{App, HttpResponse, HttpServer, error, web};
use distlock::{LockError, LockKey, LockManager, LockMiddleware, OnLost, route_key};

fn main() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let every_option = LockMiddleware::new(locks.clone())
        .key(route_key!("order:{order_id:u64}"))
        .ttl(Duration::from_secs(5))
        .wait(Duration::from_secs(2))
        .renew(true)
        .max_hold(Duration::from_secs(60))
        .min_hold(Duration::ZERO)
        .on_lost(OnLost::Cancel)
        .body_timeout(Duration::from_secs(3))
        .busy_status(409)
        .retry_after(Duration::from_secs(2))
        .prefix("shop")
        .max_waiters(100)
        .on_fail(|error: &LockError| HttpResponse::Conflict().body(error.code()))
        .name("orders")
        .checked()?;
    let by_function = distlock::actix::LockMiddleware::new(locks)
        .key_fn(|request: &ServiceRequest| Some(LockKey::from(request.path())));
    let refusing = LockMiddleware::new(LockManager::in_memory()).key_fn(
        |request: &ServiceRequest| -> Result<Option<LockKey>, actix_web::Error> {
            let tenant = request.headers().get("tenant").map(|tenant| tenant.to_str());
            tenant.transpose().map(|tenant| tenant.map(LockKey::from)).map_err(error::ErrorBadRequest)
        },
    );
    let several =
        LockMiddleware::new(LockManager::in_memory()).keys(["a:{a:str}", "b:{b:uuid}"]);
    drop((refusing, several));
    // The factory is shared by the workers' threads.
    drop(HttpServer::new(move || {
        App::new()
            .wrap(by_function.clone())
            .service(
                web::scope("/orders")
                    .wrap(every_option.clone())
                    .route("/{order_id}/pay", web::post().to(async || "paid")),
            )
            .service(
                web::resource("/{order_id}")
                    .wrap(every_option.clone())
                    .route(web::post().to(async || "paid").wrap(every_option.clone())),
            )
    }));
    Ok(())
}
