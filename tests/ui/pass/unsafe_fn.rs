use distlock::{LockError, redis_lock};

unsafe fn read() -> u8 {
    1
}

/// # Safety
///
/// None.
#[redis_lock(key = "{id}")]
pub async unsafe fn free(id: u64) -> Result<u8, LockError> {
    let value = unsafe { read() };
    Ok(value)
}

fn main() {
    drop(unsafe { free(1) });
}
