use distlock::{LockError, LockKey, redis_lock};

type Answer<T = ()> = Result<T, LockError>;

trait HasKey {
    fn lock_key(&self) -> LockKey;
}

#[redis_lock(key = value.lock_key())]
async fn of_a_trait<T: HasKey>(value: &T) -> Answer {
    Ok(())
}

#[redis_lock(keys = values.iter().map(HasKey::lock_key))]
async fn several<T: HasKey>(values: &[T]) -> Answer {
    Ok(())
}

#[redis_lock(key = key)]
async fn anything<K: Into<LockKey>>(key: K) -> Answer {
    Ok(())
}

#[redis_lock(keys = keys)]
async fn any_list<K, I>(keys: I) -> Answer
where
    I: IntoIterator<Item = K>,
    K: Into<LockKey>,
{
    Ok(())
}

#[redis_lock(key = "{amount:>width$.digits$}:{width}")]
async fn counted(amount: &str, width: usize, digits: usize) -> Answer<usize> {
    Ok(digits)
}

#[redis_lock(key = r#"a"{x}"\{{}}"#)]
async fn raw(x: u8) -> Answer<u8> {
    Ok(x)
}

#[redis_lock(key = "{x}{{{y}}}\u{e4}\
    end")]
async fn escaped(x: u8, y: u8) -> Answer<u8> {
    Ok(x + y)
}

struct Order;

impl HasKey for Order {
    fn lock_key(&self) -> LockKey {
        "order".into()
    }
}

fn main() {
    drop((of_a_trait(&Order), several(&[Order]), anything("a"), any_list(["a"])));
    drop((counted("1.0", 5, 2), raw(1), escaped(1, 2)));
}
