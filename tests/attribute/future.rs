//! The future of an annotated function beside the plain one's: when it drops what, its size, `Send`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{LockError, LockManager, redis_lock};

/// Notes when it is dropped, and whether another caller could have had the lock then.
struct Witness {
    name: &'static str,
    manager: LockManager,
    log: Arc<Mutex<Vec<String>>>,
}

impl Witness {
    fn another(&self, name: &'static str) -> Self {
        Self { name, manager: self.manager.clone(), log: self.log.clone() }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let manager = self.manager.clone();
        // A runtime of its own: this drop runs inside another.
        let free = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(manager.lock("k").try_acquire()).expect("it answers").is_some()
        });
        let state = if free.join().expect("no panic") { "free" } else { "locked" };
        self.log.lock().expect("not poisoned").push(format!("{}: {state}", self.name));
    }
}

#[redis_lock(key = "k", ttl = "150ms", renew = false, manager = argument.manager)]
async fn witnessed(argument: Witness, sleep: Duration) -> Result<(), LockError> {
    let _local = argument.another("local");
    tokio::time::sleep(sleep).await;
    Ok(())
}

/// A witness and its log.
fn witness() -> (Witness, Arc<Mutex<Vec<String>>>) {
    let log = Arc::default();
    (Witness { name: "argument", manager: LockManager::in_memory(), log: Arc::clone(&log) }, log)
}

fn read(log: &Mutex<Vec<String>>) -> Vec<String> {
    log.lock().expect("not poisoned").clone()
}

const LOCALS_THEN_ARGUMENTS: [&str; 2] = ["local: locked", "argument: locked"];

#[tokio::test]
async fn a_call_that_returns_drops_body_and_arguments_under_the_lock() {
    let (argument, log) = witness();
    let manager = argument.manager.clone();
    witnessed(argument, Duration::ZERO).await.expect("free");
    assert_eq!(read(&log), LOCALS_THEN_ARGUMENTS);
    manager.lock("k").acquire().await.map(drop).expect("freed before the call returned");
}

#[tokio::test]
async fn a_call_that_is_dropped_drops_body_and_arguments_under_the_lock() {
    let (argument, log) = witness();
    let manager = argument.manager.clone();
    let call = witnessed(argument, Duration::from_secs(10));
    tokio::time::timeout(Duration::from_millis(50), call).await.expect_err("it sleeps for longer");
    assert_eq!(read(&log), LOCALS_THEN_ARGUMENTS);
    // Freed in the background, and well before the lease ends.
    let freed = manager.lock("k").wait(Duration::from_millis(80)).acquire().await;
    freed.map(drop).expect("freed when it was dropped");
}

#[tokio::test]
async fn a_call_that_loses_its_lease_drops_the_body_first() {
    let (argument, log) = witness();
    let lost = witnessed(argument, Duration::from_secs(10)).await;
    assert!(lost.expect_err("its lease is over").is_lost());
    let order: Vec<String> = read(&log)
        .iter()
        .map(|line| line.split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(order, ["local", "argument"]);
}

#[tokio::test]
async fn a_call_that_panics_frees_the_lock() {
    #[redis_lock(key = "k", manager = manager)]
    async fn panics(manager: LockManager) -> Result<(), LockError> {
        tokio::task::yield_now().await;
        panic!("{}", std::any::type_name_of_val(&manager))
    }

    let manager = LockManager::in_memory();
    tokio::spawn(panics(manager.clone())).await.expect_err("it panics");
    let freed = manager.lock("k").wait(Duration::from_secs(5)).acquire().await;
    freed.map(drop).expect("freed by the panic");
}

/// `Send` but not `Sync`, like a request of axum.
struct Request([u8; 4096], Cell<u8>);

async fn plain(id: u64, request: Request) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id + u64::from(request.0[0] + request.1.get()))
}

#[redis_lock(key = "order:{id}", ttl = "5s", wait = "2s")]
async fn locked(id: u64, request: Request) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id + u64::from(request.0[0] + request.1.get()))
}

#[test]
fn the_future_is_little_larger_than_the_plain_one() {
    let request = || Request([0; 4096], Cell::new(0));
    let (plain, locked) = (size_of_val(&plain(1, request())), size_of_val(&locked(1, request())));
    assert!(locked <= plain + 1024, "plain {plain} bytes, locked {locked} bytes");
}

#[test]
fn the_future_is_send_where_the_plain_one_is() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&locked(1, Request([0; 4096], Cell::new(0))));
}

/// A value that is not `Send` is no part of a future that holds none across an await.
#[tokio::test]
async fn the_future_is_send_where_its_value_is_not() {
    #[redis_lock(key = "k", manager = manager)]
    async fn locked(manager: &LockManager) -> Result<Rc<u8>, LockError> {
        tokio::task::yield_now().await;
        Ok(Rc::new(1))
    }

    #[redis_lock(key = "k", manager = manager)]
    async fn generic<T: Default>(manager: &LockManager) -> Result<T, LockError> {
        tokio::task::yield_now().await;
        Ok(T::default())
    }

    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let manager = LockManager::in_memory();
    for _ in 0..2 {
        // Freed by the time it returns.
        assert_eq!(*is_send(locked(&manager)).await.expect("free"), 1);
        assert_eq!(is_send(generic::<Rc<u8>>(&manager)).await.expect("free"), Rc::new(0));
    }
}

#[tokio::test]
async fn a_body_need_not_be_send() {
    #[redis_lock(key = "k:{id}", manager = manager)]
    async fn local(id: Rc<str>, manager: &LockManager) -> Result<usize, LockError> {
        tokio::task::yield_now().await;
        Ok(id.len())
    }

    let manager = LockManager::in_memory();
    assert_eq!(local("abc".into(), &manager).await.expect("free"), 3);
}

#[redis_lock(
    keys = ["order:{id}", key("{}", id)], max_hold = "5s", min_hold = "1ms", on_lost = continue,
    reentrant = true, name = "n", when = id > 0,
    map_err = |error| error,
)]
async fn with_options(id: u64, request: Request) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id + u64::from(request.0[0] + request.1.get()))
}

#[redis_lock(key = "{id}", on_fail = |_| Ok(id))]
async fn with_copied_argument(id: u64, request: Request) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id + u64::from(request.0[0] + request.1.get()))
}

#[redis_lock(key = "{id}", guard = lock)]
async fn with_guard(id: u64, request: Request) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id + lock.fencing_token() + u64::from(request.0[0] + request.1.get()))
}

#[test]
fn options_cost_little_and_keep_it_send() {
    fn measure<T: Send>(future: T) -> usize {
        size_of_val(&future)
    }
    let request = || Request([0; 4096], Cell::new(0));
    let plain = measure(plain(1, request()));
    for locked in [measure(with_options(1, request())), measure(with_copied_argument(1, request()))]
    {
        assert!(locked <= plain + 1024, "plain {plain} bytes, locked {locked} bytes");
    }
    // The body borrows the guard and can only be made after it.
    let guarded = measure(with_guard(1, request()));
    assert!(guarded <= plain + 3 * 4096, "plain {plain} bytes, guarded {guarded} bytes");
}

/// Methods of traits, plain and locked.
#[allow(async_fn_in_trait)]
trait Native {
    async fn plain(&self, id: u64, request: Request) -> Result<u64, LockError>;
    async fn locked(&self, id: u64, request: Request) -> Result<u64, LockError>;
    async fn plain_default(&self, id: u64, request: Request) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(id + u64::from(request.0[0] + request.1.get()))
    }
    #[redis_lock(key = "order:{id}", ttl = "5s", wait = "2s")]
    async fn locked_default(&self, id: u64, request: Request) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(id + u64::from(request.0[0] + request.1.get()))
    }
}

struct Shop(u64);

impl Native for Shop {
    async fn plain(&self, id: u64, request: Request) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(id + self.0 + u64::from(request.0[0] + request.1.get()))
    }

    #[redis_lock(key = "{self.0}:order:{id}", ttl = "5s", wait = "2s")]
    async fn locked(&self, id: u64, request: Request) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(id + self.0 + u64::from(request.0[0] + request.1.get()))
    }
}

#[async_trait::async_trait]
trait Boxed {
    async fn plain(&self, id: u64, request: Request) -> Result<u64, LockError>;
    async fn locked(&self, id: u64, request: Request) -> Result<u64, LockError>;
}

#[async_trait::async_trait]
impl Boxed for Shop {
    async fn plain(&self, id: u64, request: Request) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(id + self.0 + u64::from(request.0[0] + request.1.get()))
    }

    #[redis_lock(key = "{self.0}:order:{id}", ttl = "5s", wait = "2s")]
    async fn locked(&self, id: u64, request: Request) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(id + self.0 + u64::from(request.0[0] + request.1.get()))
    }
}

#[test]
fn methods_of_traits_cost_as_little() {
    let request = || Request([0; 4096], Cell::new(0));
    let shop = Shop(1);
    let sizes = [
        (
            "native",
            size_of_val(&Native::plain(&shop, 1, request())),
            size_of_val(&Native::locked(&shop, 1, request())),
        ),
        (
            "default",
            size_of_val(&shop.plain_default(1, request())),
            size_of_val(&shop.locked_default(1, request())),
        ),
        (
            "async_trait",
            size_of_val(&*Boxed::plain(&shop, 1, request())),
            size_of_val(&*Boxed::locked(&shop, 1, request())),
        ),
    ];
    for (kind, plain, locked) in sizes {
        assert!(locked <= plain + 1024, "{kind}: plain {plain} bytes, locked {locked} bytes");
    }
}
