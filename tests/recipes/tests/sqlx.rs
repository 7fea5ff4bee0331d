use std::error::Error;

use distlock::redis_lock;
use sqlx::PgPool;

// CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)

#[redis_lock(key = "account:{account}", ttl = "10s", wait = "5s", guard = lock)]
async fn pay_in(
    db: &PgPool,
    account: i64,
    amount: i64,
) -> Result<i64, Box<dyn Error + Send + Sync>> {
    let mut transaction = db.begin().await?;
    let balance: i64 = sqlx::query_scalar("SELECT balance FROM account WHERE id = $1")
        .bind(account)
        .fetch_one(&mut *transaction)
        .await?;
    let balance = balance + amount; // … or what takes longer, and asks other services
    let write = "UPDATE account SET balance = $2, fence = $3 WHERE id = $1 AND fence <= $3";
    let written = sqlx::query(write)
        .bind(account)
        .bind(balance)
        .bind(lock.fencing_token().cast_signed())
        .execute(&mut *transaction)
        .await?;
    if written.rows_affected() == 0 {
        return Err("a newer holder wrote before".into()); // what is not committed is rolled back
    }
    transaction.commit().await?; // before the lock is freed
    Ok(balance)
}

#[tokio::test]
async fn both_payments_are_made_and_one_with_an_old_token_is_not() {
    let server = distlock_testkit::PostgresServer::start();
    server.sql(
        "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
    );
    server.sql("INSERT INTO account VALUES (7, 100)");
    let db = PgPool::connect(&server.url()).await.expect("a pool");
    distlock::with_manager(distlock::LockManager::in_memory(), async {
        let both = tokio::join!(pay_in(&db, 7, 10), pay_in(&db, 7, 20));
        assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
        assert_eq!(server.sql("SELECT balance FROM account"), "130");
        server.sql("UPDATE account SET fence = 9223372036854775807");
        let refused = pay_in(&db, 7, 30).await.expect_err("its token is old");
        assert!(refused.to_string().contains("newer holder"), "{refused}");
        assert_eq!(server.sql("SELECT balance FROM account"), "130");
    })
    .await;
}
