use distlock::{LockError, redis_lock};

struct Mine;

//~ ERROR "Result<(), (u16, String)>" make it with `map_err = |error| …`; or, for a type of your own, write `impl From<distlock::LockError> for (u16, String)`
#[redis_lock(key = "a")]
async fn pair() -> Result<(), (u16, String)> {
    Ok(())
}

//~ ERROR "Result<(), Mine>" write `impl From<distlock::LockError> for Mine`
#[redis_lock(key = "a")]
async fn own() -> Result<(), Mine> {
    Err(Mine)
}

fn main() {
    drop((pair(), own(), None::<LockError>));
}
