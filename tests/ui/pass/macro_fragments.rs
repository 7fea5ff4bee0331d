use distlock::{LockError, LockManager, redis_lock};

type Answer<T = ()> = Result<T, LockError>;

macro_rules! pattern {
    ($name:ident, $key:literal, $pattern:pat_param => $type:ty, $answer:ty) => {
        #[redis_lock(key = $key)]
        async fn $name($pattern: $type) -> $answer {
            Ok(())
        }
    };
}

pattern!(plain, "a:{id}", id => u64, Answer);
pattern!(tuple, "a:{id}", (id, _) => (u64, u8), Result<(), LockError>);

macro_rules! function {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty $body:block) => {
        $(#[$meta])* $vis async fn $name($($arg: $type),*) -> $answer $body
    };
}

function! {
    #[redis_lock(key = "a:{id}", ttl = "5s")]
    pub fn from_meta(id: u64, other: u8) -> Answer<u8> { Ok(other) }
}

macro_rules! method {
    ($self:ident, $name:ident, $key:literal, $body:block) => {
        #[redis_lock(key = $key)]
        async fn $name(&$self) -> Answer<u8> $body
    };
}

struct Shop {
    id: u8,
}

impl Shop {
    method!(self, locked, "{self.id}", { Ok(self.id) });
}

macro_rules! tokens {
    ($key:tt $(, $option:ident = $value:tt)*; $($function:tt)*) => {
        #[redis_lock(key = $key $(, $option = $value)*)]
        $($function)*
    };
}

tokens!("a:{id}", renew = false, wait = none, on_lost = continue; async fn from_tokens(id: u8) -> Answer<u8> { Ok(id) });

macro_rules! expressions {
    ($name:ident, $keys:expr, $wait:expr, $renew:expr, $fail:expr, $name_:expr, $prefix:expr, $manager:expr) => {
        #[redis_lock(keys = $keys, wait = $wait, renew = $renew, on_fail = $fail, name = $name_, prefix = $prefix, manager = $manager)]
        async fn $name() -> Option<u64> {
            None
        }
    };
}

expressions!(from_expressions, ["a", "b"], none, false, skip, "n", none, LockManager::in_memory());

macro_rules! future {
    ($name:ident, $future:ty) => {
        #[redis_lock(key = "a")]
        fn $name() -> $future {
            Box::pin(async { Ok(1) })
        }
    };
}

future!(boxed, std::pin::Pin<Box<dyn Future<Output = Answer<u8>> + Send>>);

macro_rules! lifetime {
    ($name:ident, $lifetime:lifetime) => {
        #[redis_lock(key = "{text}")]
        async fn $name<$lifetime>(text: &$lifetime str) -> Answer<&$lifetime str> {
            Ok(text)
        }
    };
}

lifetime!(borrowing, 'a);

fn main() {
    drop((plain(1), tuple((1, 2)), from_meta(1, 2), from_tokens(1), from_expressions(), boxed()));
    drop((borrowing("a"), Shop { id: 1 }.locked()));
}
