use distlock::redis_lock;

trait IntoResponse {}
trait Responder {}
impl IntoResponse for () {}
impl Responder for () {}

//~ ERROR "impl IntoResponse" enable the feature `axum` of distlock
#[redis_lock(key = "a")]
async fn axum() -> impl IntoResponse {}

//~ ERROR "impl Responder + 'static" enable the feature `actix` of distlock
#[redis_lock(key = "a")]
async fn actix() -> impl Responder + 'static {}

fn main() {
    drop((axum(), actix()));
}
