use std::error::Error;

use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use distlock::redis_lock;

diesel::table! {
    account (id) {
        id -> BigInt,
        balance -> BigInt,
        fence -> BigInt,
    }
}

#[redis_lock(key = "account:{id}", ttl = "10s", wait = "5s", guard = lock)]
async fn pay_in(
    db: &mut AsyncPgConnection,
    id: i64,
    amount: i64,
) -> Result<i64, Box<dyn Error + Send + Sync>> {
    let fence = lock.fencing_token().cast_signed();
    // Committed when the closure returns `Ok`, which is before the lock is freed.
    db.transaction(async |db| {
        let row = account::table.find(id);
        let balance: i64 = row.select(account::balance).first(db).await?;
        let balance = balance + amount;
        let written = diesel::update(row.filter(account::fence.le(fence)))
            .set((account::balance.eq(balance), account::fence.eq(fence)))
            .execute(db)
            .await?;
        if written == 0 {
            return Err("a newer holder wrote before".into());
        }
        Ok(balance)
    })
    .await
}

#[tokio::test]
async fn both_payments_are_made_and_one_with_an_old_token_is_not() {
    let server = distlock_testkit::PostgresServer::start();
    server.sql(
        "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
    );
    server.sql("INSERT INTO account VALUES (7, 100)");
    let mut one = AsyncPgConnection::establish(&server.url()).await.expect("a connection");
    let mut other = AsyncPgConnection::establish(&server.url()).await.expect("a connection");
    distlock::with_manager(distlock::LockManager::in_memory(), async {
        let both = tokio::join!(pay_in(&mut one, 7, 10), pay_in(&mut other, 7, 20));
        assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
        assert_eq!(server.sql("SELECT balance FROM account"), "130");
        server.sql("UPDATE account SET fence = 9223372036854775807");
        let refused = pay_in(&mut one, 7, 30).await.expect_err("its token is old");
        assert!(refused.to_string().contains("newer holder"), "{refused}");
        assert_eq!(server.sql("SELECT balance FROM account"), "130");
    })
    .await;
}
