use std::error::Error;

use diesel::pg::Pg;
use diesel::connection::LoadConnection;
use diesel::prelude::*;
use distlock::redis_lock;

diesel::table! {
    account (id) {
        id -> BigInt,
        balance -> BigInt,
        fence -> BigInt,
    }
}

#[redis_lock(key = "account:{id}", ttl = "10s", wait = "5s", guard = lock, blocking)]
fn close<C>(db: &mut C, id: i64) -> Result<(), Box<dyn Error + Send + Sync>>
where
    C: LoadConnection<Backend = Pg>,
{
    let fence = lock.fencing_token().cast_signed();
    db.transaction(|db| {
        let row = account::table.find(id).filter(account::fence.le(fence));
        let written = diesel::update(row)
            .set((account::balance.eq(0), account::fence.eq(fence)))
            .execute(db)?;
        if written == 0 || !lock.is_held() {
            return Err("a newer holder wrote before, or the lease is over".into());
        }
        Ok(())
    })
}

/// A connection of diesel's own needs `libpq`, so this is compiled and not run.
#[allow(dead_code)]
fn with_any_connection<C: LoadConnection<Backend = Pg>>(db: &mut C) {
    drop(close(db, 7));
}
