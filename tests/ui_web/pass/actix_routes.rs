use actix_web::{App, Responder, get, post, route, web};
use distlock::{LockManager, redis_lock};

#[redis_lock(key = "{id}")]
#[get("/1/{id}")]
async fn above(id: web::Path<u64>) -> impl Responder {
    id.to_string()
}

#[post("/2/{id}")]
#[redis_lock(key = "{id}", manager = locks)]
async fn below(id: web::Path<u64>, locks: web::Data<LockManager>) -> actix_web::Result<String> {
    Ok(id.to_string())
}

#[redis_lock(key = "{id}")]
#[route("/3/{id}", method = "GET", method = "POST")]
async fn several(id: web::Path<u64>) -> actix_web::Result<String> {
    Ok(id.to_string())
}

fn main() {
    drop(App::new().service(above).service(below).service(several));
}
