use distlock::{LockError, LockKey, key, redis_lock};

//~ ERROR "{id}" consider restricting type parameter `T` with trait `Display`
#[redis_lock(key = "a:{id}:b")]
async fn unbounded<T>(id: T) -> Result<T, LockError> {
    Ok(id)
}

//~ ERROR "{id}" consider further restricting type parameter `T` with trait `Display`
#[redis_lock(key = "a:{id}")]
async fn bounded<T: Send>(id: &T) -> Result<(), LockError> {
    drop(id);
    Ok(())
}

//~ ERROR "{id:x}" with trait `LowerHex`
#[redis_lock(key = "a:{id:x}")]
async fn hexadecimal<T>(id: T) -> Result<T, LockError> {
    Ok(id)
}

//~ ERROR "{id}" consider restricting opaque type `impl Send` with trait `Display`
#[redis_lock(key = "a:{id}")]
async fn opaque(id: impl Send) -> Result<(), LockError> {
    drop(id);
    Ok(())
}

//~ ERROR "id" consider restricting type parameter `T` with trait `Display`
#[redis_lock(key("a:{}", id))]
async fn value<T>(id: T) -> Result<T, LockError> {
    Ok(id)
}

// A macro sees no signature.
//~ ERROR "{id}" a type parameter needs the bound `std::fmt::Display`
fn by_hand<T>(id: T) -> LockKey {
    key!("a:{id}")
}

struct Stock<ID>(ID);

impl<ID> Stock<ID> {
    //~ ERROR "{id}" consider restricting type parameter `ID` with trait `Display`
    #[redis_lock(key = "a:{id}")]
    async fn of_the_block(&self, id: ID) -> Result<ID, LockError> {
        Ok(id)
    }
}

fn main() {
    drop((unbounded(1), bounded(&1), hexadecimal(1), opaque(1), value(1), by_hand(1), Stock(1).of_the_block(2)));
}
