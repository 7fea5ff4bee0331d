//! What an annotated function does: its options, and what it returns.

use std::error::Error;
use std::num::ParseIntError;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, redis_lock};

use crate::support::{alone, is_free};

#[derive(Debug)]
enum Failure {
    Lock(LockError),
    Number(ParseIntError),
    Mine,
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<ParseIntError> for Failure {
    fn from(error: ParseIntError) -> Self {
        Self::Number(error)
    }
}

type Answer<T> = Result<T, Failure>;

#[redis_lock(key = "k:{text}")]
async fn returns(text: &str) -> Answer<u64> {
    if text == "mine" {
        return Err(Failure::Mine);
    }
    tokio::task::yield_now().await;
    let number: u64 = text.parse()?;
    Ok(number)
}

#[tokio::test]
async fn values_and_errors_come_through_and_the_lock_is_freed() {
    alone(async |manager| {
        assert!(matches!(returns("7").await, Ok(7)));
        assert!(matches!(returns("x").await, Err(Failure::Number(error)) if error.to_string().contains("digit")));
        assert!(matches!(returns("mine").await, Err(Failure::Mine)));
        for key in ["k:7", "k:x", "k:mine"] {
            assert!(is_free(&manager, key).await, "{key}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_is_not_taken_is_the_functions_error_and_the_body_does_not_run() {
    #[redis_lock(key = "k")]
    async fn locked(ran: &Mutex<bool>) -> Result<(), Box<dyn Error + Send + Sync>> {
        *ran.lock().expect("not poisoned") = true;
        Ok(())
    }

    alone(async |manager| {
        let _holder = manager.lock("k").acquire().await.expect("free");
        let ran = Mutex::new(false);
        let error = locked(&ran).await.expect_err("it is held");
        assert!(error.downcast_ref::<LockError>().is_some_and(LockError::is_busy));
        assert!(!*ran.lock().expect("not poisoned"));
    })
    .await;
}

#[tokio::test]
async fn no_manager_is_the_functions_error() {
    // The process-wide manager would be made from the environment.
    if std::env::var_os("DISTLOCK_URL").is_none() {
        assert!(matches!(returns("7").await, Err(Failure::Lock(LockError::NotConfigured))));
    }
}

struct Service {
    locks: Arc<LockManager>,
    wait: Duration,
    seen: u64,
}

impl Service {
    #[redis_lock(key = "k:{id}", ttl = "5s", wait = self.wait, manager = self.locks)]
    async fn waits(&mut self, id: u64) -> Result<u64, LockError> {
        self.seen += id;
        Ok(self.seen)
    }
}

#[tokio::test]
async fn waits_as_long_as_it_says_on_the_manager_it_names() {
    let locks = Arc::new(LockManager::in_memory());
    let holder = locks.lock("k:1").acquire().await.expect("free");
    let mut service = Service { locks, wait: Duration::from_millis(100), seen: 0 };

    let start = Instant::now();
    assert!(service.waits(1).await.expect_err("it is held").is_busy());
    assert!(start.elapsed() >= Duration::from_millis(100));

    service.wait = Duration::from_secs(10);
    let (freed, counted) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            holder.release().await
        },
        service.waits(1),
    );
    freed.expect("it was held");
    assert_eq!(counted.expect("free now"), 1);
}

#[tokio::test]
async fn a_fixed_lease_ends_and_a_renewed_one_does_not() {
    #[redis_lock(key = "fixed", ttl = "100ms", renew = false)]
    async fn fixed() -> Result<(), LockError> {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(())
    }

    #[redis_lock(key = "renewed", ttl = "100ms")]
    async fn renewed() -> Result<(), LockError> {
        tokio::time::sleep(Duration::from_millis(400)).await;
        Ok(())
    }

    alone(async |_| {
        assert!(fixed().await.expect_err("its lease is over").is_lost());
        renewed().await.expect("renewed while it runs");
    })
    .await;
}
