use std::rc::Rc;

use actix_web::{App, HttpResponse, Responder, web};
use distlock::{LockManager, redis_lock};

#[redis_lock(key = "order:{id}")]
async fn plain(id: web::Path<u64>) -> impl Responder {
    // Not `Send`, over an await.
    let text = Rc::new(id.to_string());
    std::future::ready(()).await;
    HttpResponse::Ok().body(text.as_str().to_owned())
}

#[redis_lock(key = "order:{id}", wait = "1s", manager = locks, when = *id > 7)]
async fn with_when(locks: web::Data<LockManager>, id: web::Path<u64>) -> impl actix_web::Responder {
    id.to_string()
}

#[redis_lock(key = "order:{id}", guard = lock)]
async fn with_guard(id: web::Path<u64>) -> impl Responder + 'static {
    lock.fencing_token().to_string()
}

#[redis_lock(key = "order:{id}", on_fail = |error| error.to_string())]
async fn with_on_fail(id: web::Path<u64>) -> impl Responder {
    id.to_string()
}

#[redis_lock(key = "order:{id}")]
async fn in_a_result(id: web::Path<u64>) -> actix_web::Result<impl Responder> {
    Ok(id.to_string())
}

fn main() {
    let app = App::new()
        .route("/1/{id}", web::post().to(plain))
        .route("/2/{id}", web::post().to(with_when))
        .route("/3/{id}", web::post().to(with_guard))
        .route("/4/{id}", web::post().to(with_on_fail))
        .route("/5/{id}", web::post().to(in_a_result));
    drop(app);
}
