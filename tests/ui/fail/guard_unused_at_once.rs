//~ ALONE rustc looks for unused values only where nothing else is wrong

use distlock::{LockError, LockManager};

async fn locked(locks: LockManager) -> Result<(), LockError> {
    //~ WARN "locks.lock("a").acquire().await?" bind it to a name, `let _guard = …`; with `let _ = …` it is freed at once, too
    locks.lock("a").acquire().await?;
    Ok(())
}

fn main() {
    drop(locked(LockManager::in_memory()));
}
