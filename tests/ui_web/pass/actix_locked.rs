use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{App, Error, FromRequest, HttpRequest, error, web};
use distlock::{LockKey, Locked, key};

struct Order(u64);

impl FromRequest for Order {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let id = request.match_info().query("id").parse();
        ready(id.map(Self).map_err(error::ErrorNotFound))
    }
}

impl From<Order> for LockKey {
    fn from(Order(id): Order) -> Self {
        key!("order:{id}")
    }
}

async fn token(lock: Locked<Order>) -> String {
    lock.fencing_token().to_string()
}

async fn released(lock: distlock::actix::Locked<Order>) -> actix_web::Result<&'static str> {
    lock.into_guard().release().await?;
    Ok("done")
}

async fn perhaps(lock: Result<Locked<Order>, Error>) -> String {
    lock.map_or_else(|error| error.to_string(), |lock| lock.fencing_token().to_string())
}

fn main() {
    let app = App::new()
        .route("/1/{id}", web::post().to(token))
        .route("/2/{id}", web::post().to(released))
        .route("/3/{id}", web::post().to(perhaps));
    drop(app);
}
