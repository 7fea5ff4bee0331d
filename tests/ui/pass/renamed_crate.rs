//~ ALONE it names the root of the crate
mod locks {
    pub use renamed::*;
}

#[renamed::redis_lock(key = "a:{id}", crate = ::renamed)]
async fn of_a_crate(id: u8) -> Result<(), renamed::LockError> {
    Ok(())
}

#[renamed::redis_lock(key = "a:{id}", ttl = "5s", crate = crate::locks)]
async fn of_a_module(id: u8) -> Result<(), renamed::LockError> {
    Ok(())
}

fn main() {
    let id = 1;
    let key = renamed::key!("a:{id}", crate = crate::locks);
    assert_eq!(key.as_str(), "a:1");
    drop((of_a_crate(1), of_a_module(1)));
}
