use distlock::redis_lock;

struct Raw(*const u64);

#[redis_lock(key = "{id}", guard = lock, on_fail = |_| 0)]
async unsafe fn locked(raw: Raw, id: u64) -> u64 {
    // SAFETY: the caller says so.
    unsafe { *raw.0 + id + lock.fencing_token() }
}

#[redis_lock(key = "{id}", when = id > 5)]
unsafe fn returned(id: u64) -> impl Future<Output = Result<u64, distlock::LockError>> {
    async move { Ok(id) }
}

fn main() {
    let value = 5;
    // SAFETY: it is never polled.
    drop(unsafe { (locked(Raw(&value), 1), returned(1)) });
}
