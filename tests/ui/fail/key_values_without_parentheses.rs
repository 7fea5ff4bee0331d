use distlock::{LockError, redis_lock};

struct Config {
    name: String,
}

impl Config {
    //~ ERROR "self.name" write `key("cfg:{}", self.name)`
    #[redis_lock(key = "cfg:{}", self.name)]
    async fn field(&self) -> Result<(), LockError> {
        Ok(())
    }

    //~ ERROR "id, self.name.len()" write `key("cfg:{}:{}", id, self.name.len())`
    //~ ERROR ""5"" `5` has no unit
    #[redis_lock(key = "cfg:{}:{}", id, self.name.len(), ttl = "5")]
    async fn several(&self, id: u64) -> Result<(), LockError> {
        drop(id);
        Ok(())
    }

    //~ ERROR "who = self.name" write `key("cfg:{who}", who = self.name)`
    #[redis_lock(key = "cfg:{who}", who = self.name)]
    async fn named(&self) -> Result<(), LockError> {
        Ok(())
    }

    //~ ERROR ""cfg:{}"" `{}` names nothing: write the argument's name
    #[redis_lock(key = "cfg:{}", wait = "1s")]
    async fn none(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {
    drop(Config { name: String::new() });
}
