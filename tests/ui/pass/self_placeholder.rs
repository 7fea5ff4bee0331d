use std::fmt;

use distlock::{LockError, redis_lock};

struct Account(u64);

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Account {
    #[redis_lock(key = "account:{self}")]
    async fn by_reference(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "account:{self:>8}")]
    async fn by_value(self) -> Result<Self, LockError> {
        Ok(self)
    }
}

fn main() {
    drop(Account(1).by_reference());
    drop(Account(1).by_value());
}
