use distlock::{LockError, redis_lock};

const WIDTH: usize = 6;

#[redis_lock(key = "{n:05}:{n:x}:{n:#X}:{n:o}:{n:#b}:{n:e}:{text:.2}:{name:->10}:{name:^8.3}:{n:+}:{c:?>4}")]
async fn formats(n: u64, text: &str, name: &str, c: char) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{n:width$}:{text:.digits$}:{n:>WIDTH$}:{n:0width$x}")]
async fn counts(n: u64, text: &str, width: usize, digits: usize) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{width:width$}-{n:>width$}")]
async fn count_and_value(n: u64, width: usize) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((formats(1, "1.0", "a", 'c'), counts(1, "1.0", 2, 3), count_and_value(1, 2)));
}
