use distlock::redis_lock;

trait Shape {}
impl Shape for u8 {}

//~ ERROR "impl Shape" the trait bound `Result<u8, LockError>: Shape` is not satisfied
#[redis_lock(key = "a")]
//~ ERROR "{ 1_u8 }" the trait bound `Result<u8, LockError>: Shape` is not satisfied
async fn shape() -> impl Shape {
    1_u8
}

fn main() {
    drop(shape());
}
