use distlock::redis_lock;

//~ ERROR ""skip"" write `skip`, without quotes
//~ ERROR ""lock"" write `lock`, without quotes
//~ ERROR ""5"" `5` has no unit
//~ ERROR "abort" write `cancel`
//~ ERROR "0" write at least `permits = 1`
//~ ERROR ""{nr}"" `locked` has no argument `nr`
#[redis_lock(key = "{nr}", on_fail = "skip", guard = "lock", min_hold = "5", on_lost = abort, permits = 0)]
//~ ERROR "fn" write `async fn`
fn locked(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {
    drop(locked(1));
}
