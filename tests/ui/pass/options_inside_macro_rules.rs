use distlock::redis_lock;

macro_rules! locked {
    ($name:ident, $key:literal, $argument:ident: $type:ty, $label:literal, $when:expr, $fail:expr, $guard:ident) => {
        mod $name {
            use distlock::{LockError, redis_lock};

            #[redis_lock(keys = [$key, key($key)], name = $label, when = $when, map_err = $fail)]
            pub async fn conditional($argument: $type) -> Result<u64, LockError> {
                Ok($argument)
            }

            #[redis_lock(key($key), guard = $guard, on_fail = $fail)]
            pub async fn guarded($argument: $type) -> LockError {
                let _ = $guard.is_held();
                LockError::NotConfigured
            }
        }
    };
}

locked!(first, "a:{id}", id: u64, "label", id > 5, |error| error, lock);

macro_rules! jobs {
    ($($name:ident: $least:literal),*) => {$(
        #[redis_lock(key("job:{}", stringify!($name)), min_hold = $least, on_fail = skip)]
        async fn $name() {}
    )*};
}

jobs!(nightly: "30s", weekly: "1m");

fn main() {
    drop((first::conditional(1), first::guarded(1), nightly(), weekly()));
}
