use distlock::{LockError, redis_lock};

type Jobs<T> = Result<T, std::fmt::Error>;

#[redis_lock(key = "a", on_fail = skip)]
async fn nothing() {}

#[redis_lock(key = "a", on_fail = skip)]
async fn option<T: Default>() -> Option<T> {
    Some(T::default())
}

#[redis_lock(key = "a", on_fail = skip)]
async fn result() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", on_fail = skip)]
async fn without_from() -> Jobs<()> {
    Err(std::fmt::Error)
}

#[redis_lock(key = "a", on_fail = skip)]
async fn option_result<E>() -> Result<Option<u8>, E> {
    Ok(Some(1))
}

#[redis_lock(key = "a", on_fail = skip)]
async fn hidden() -> Result<Option<impl Sized>, LockError> {
    Ok(Some(1))
}

fn main() {
    drop((nothing(), option::<u8>(), result(), without_from(), hidden()));
    drop(option_result::<LockError>());
}
