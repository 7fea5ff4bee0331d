use actix_web::{App, HttpResponse, ResponseError, web};
use distlock::{LockError, redis_lock};

type Said = HttpResponse;

#[derive(Debug)]
enum ShopError {
    Lock(LockError),
}

impl std::fmt::Display for ShopError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Lock(error) = self;
        error.fmt(f)
    }
}

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl ResponseError for ShopError {
    fn error_response(&self) -> HttpResponse {
        let Self::Lock(error) = self;
        error.error_response()
    }
}

#[redis_lock(key = "{id}")]
async fn response(id: web::Path<u64>) -> Said {
    HttpResponse::Ok().body(id.to_string())
}

#[redis_lock(key = "{id}")]
async fn of_actix(id: web::Path<u64>) -> Result<String, actix_web::Error> {
    Ok(id.to_string())
}

#[redis_lock(key = "{id}")]
async fn of_ours(id: web::Path<u64>) -> Result<HttpResponse, LockError> {
    Ok(HttpResponse::Ok().body(id.to_string()))
}

#[redis_lock(key = "{id}")]
async fn of_the_shop(id: web::Path<u64>) -> Result<String, ShopError> {
    Ok(id.to_string())
}

fn main() {
    let app = App::new()
        .route("/1/{id}", web::post().to(response))
        .route("/2/{id}", web::post().to(of_actix))
        .route("/3/{id}", web::post().to(of_ours))
        .route("/4/{id}", web::post().to(of_the_shop));
    drop(app);
}
