use std::fmt::Display;

use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}:{name}")]
async fn bounded<'a, T, const N: usize>(id: T, name: &'a str, rest: [T; N]) -> Result<(&'a str, Vec<T>), LockError>
where
    T: Display + Clone + 'a,
{
    let mut all = rest.to_vec();
    all.push(id);
    Ok((name, all))
}

#[redis_lock(key = "{id}")]
async fn impl_argument(id: impl Display, rest: impl Iterator<Item = u8>) -> Result<u8, LockError> {
    Ok(rest.sum())
}

#[redis_lock(key = "{id}")]
async fn unsized_argument<T: Display + ?Sized>(id: &T) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{name}")]
async fn elided(name: &str, _other: &mut [u8]) -> Result<usize, LockError> {
    Ok(name.len())
}

struct Cache<'a, T>(&'a T);

impl<'a, T: Display> Cache<'a, T> {
    #[redis_lock(key = "{self.0}")]
    async fn load(&self) -> Result<&'a T, LockError> {
        Ok(self.0)
    }
}

fn main() {
    drop(bounded(1, "a", [2, 3]));
    drop(impl_argument(1, [1, 2].into_iter()));
    drop(unsized_argument("a"));
    drop(elided("a", &mut []));
    drop(Cache(&1).load());
}
