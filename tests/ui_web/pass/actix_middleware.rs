use std::time::Duration;

use actix_web::dev::ServiceRequest;
use actix_web::{App, HttpServer, web};
use distlock::{LockError, LockKey, LockManager, LockMiddleware, OnLost};

fn main() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let every_option = LockMiddleware::new(locks.clone())
        .key("order:{order_id}")
        .ttl(Duration::from_secs(5))
        .wait(Duration::from_secs(2))
        .renew(true)
        .max_hold(Duration::from_secs(60))
        .min_hold(Duration::ZERO)
        .on_lost(OnLost::Cancel)
        .name("orders")
        .checked()?;
    let by_function = distlock::actix::LockMiddleware::new(locks)
        .key_fn(|request: &ServiceRequest| Some(LockKey::from(request.path())));
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
