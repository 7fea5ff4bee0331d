//! What each option of the attribute does, on the in-memory store where a store's kind does not
//! matter.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::{LockError, LockKey, LockManager, redis_lock};
use distlock_testkit::ms;
use tokio::time::sleep;

use crate::support::{alone, is_free};

async fn hold(manager: &LockManager, key: &str) -> distlock::LockGuard {
    manager.lock(key).acquire().await.expect("free")
}

mod keys {
    use super::*;

    struct Order {
        id: u64,
        shop: String,
    }

    #[redis_lock(key("order:{}-{shop}:{}", order.id, order.id + 1, shop = order.shop))]
    async fn call(order: &Order, manager: &LockManager) -> Result<bool, LockError> {
        Ok(is_free(manager, "order:7-a%3Ab:8").await)
    }

    #[redis_lock(key("{}/{id:03}", order.shop.to_uppercase().trim()))]
    async fn call_with_names(
        order: &Order,
        id: u8,
        manager: &LockManager,
    ) -> Result<bool, LockError> {
        Ok(is_free(manager, "A%3AB/009").await)
    }

    #[redis_lock(key("{0}:{order.id:04}:{0}", order.shop))]
    async fn call_with_fields(order: &Order, manager: &LockManager) -> Result<bool, LockError> {
        Ok(is_free(manager, "a%3Ab:0007:a%3Ab").await)
    }

    #[redis_lock(key = format!("order:{}", order.shop))]
    async fn expression(order: &Order, manager: &LockManager) -> Result<bool, LockError> {
        Ok(is_free(manager, "order:a:b").await)
    }

    #[redis_lock(key = key)]
    async fn made_before(key: LockKey, manager: &LockManager) -> Result<bool, LockError> {
        Ok(is_free(manager, "made:1").await)
    }

    #[tokio::test]
    async fn a_key_is_a_call_or_an_expression() {
        alone(async |manager| {
            let order = Order { id: 7, shop: "a:b".to_owned() };
            assert!(!call(&order, &manager).await.expect("free"));
            assert!(!call_with_names(&order, 9, &manager).await.expect("free"));
            assert!(!call_with_fields(&order, &manager).await.expect("free"));
            assert!(!expression(&order, &manager).await.expect("free"));
            assert!(!made_before("made:1".into(), &manager).await.expect("free"));
            assert!(is_free(&manager, "order:7-a%3Ab:8").await);
        })
        .await;
    }

    #[redis_lock(keys = ["account:{from}", key("account:{}", to), LockKey::from("ledger")])]
    async fn transfer(from: u64, to: u64, manager: &LockManager) -> Result<[bool; 3], LockError> {
        Ok([
            is_free(manager, "account:1").await,
            is_free(manager, "account:2").await,
            is_free(manager, "ledger").await,
        ])
    }

    #[redis_lock(keys = accounts.iter().map(|id| format!("account:{id}")))]
    async fn close(accounts: &[u64], manager: &LockManager) -> Result<usize, LockError> {
        let mut held = 0;
        for id in accounts {
            held += usize::from(!is_free(manager, &format!("account:{id}")).await);
        }
        Ok(held)
    }

    #[tokio::test]
    async fn several_keys_are_taken_all_or_none() {
        alone(async |manager| {
            assert_eq!(transfer(2, 1, &manager).await.expect("free"), [false; 3]);
            // The same account twice is one lock.
            assert_eq!(transfer(1, 1, &manager).await.expect("free"), [false, true, false]);
            assert_eq!(close(&[3, 1, 2, 3], &manager).await.expect("free"), 4);

            let held = hold(&manager, "account:2").await;
            assert!(transfer(2, 1, &manager).await.expect_err("one is held").is_busy());
            for free in ["account:1", "ledger"] {
                assert!(is_free(&manager, free).await, "{free}");
            }
            held.release().await.expect("it was held");

            let error = close(&[], &manager).await.expect_err("there is none");
            assert!(matches!(error, LockError::InvalidOption { .. }), "{error}");
        })
        .await;
    }
}

mod holding {
    use super::*;

    #[redis_lock(key = "k", ttl = "1s", max_hold = "2s")]
    async fn limited() -> Result<(), LockError> {
        sleep(Duration::from_secs(10)).await;
        Ok(())
    }

    #[tokio::test]
    async fn max_hold_ends_the_renewal() {
        alone(async |_| {
            let start = Instant::now();
            assert!(limited().await.expect_err("held for too long").is_lost());
            let held = start.elapsed();
            assert!(held >= ms(1500) && held < ms(8000), "{held:?}");
        })
        .await;
    }

    #[redis_lock(key = "k", min_hold = least)]
    async fn short(least: Duration) -> Result<(), LockError> {
        Ok(())
    }

    #[tokio::test]
    async fn min_hold_keeps_the_lock_of_a_short_job() {
        alone(async |manager| {
            short(ms(2000)).await.expect("free");
            assert!(!is_free(&manager, "k").await);
            assert!(short(ms(2000)).await.expect_err("ran a moment ago").is_busy());
            sleep(ms(3000)).await;
            assert!(is_free(&manager, "k").await);
        })
        .await;
    }

    #[redis_lock(key = "k", ttl = "60ms", renew = false, on_lost = continue)]
    async fn goes_on() -> Result<u8, LockError> {
        sleep(ms(150)).await;
        Ok(5)
    }

    #[redis_lock(key = "k", ttl = "60ms", renew = false, on_lost = cancel)]
    async fn is_stopped() -> Result<u8, LockError> {
        sleep(ms(150)).await;
        Ok(5)
    }

    #[tokio::test]
    async fn on_lost_decides_about_the_body() {
        alone(async |_| {
            assert_eq!(goes_on().await.expect("it may finish"), 5);
            assert!(is_stopped().await.expect_err("its lease is over").is_lost());
        })
        .await;
    }

    #[redis_lock(key = "k:{id}")]
    async fn outer(id: u8, joins: bool) -> Result<u8, LockError> {
        if joins { joining(id).await } else { plain(id).await }
    }

    #[redis_lock(key = "k:{id}", reentrant = true)]
    async fn joining(id: u8) -> Result<u8, LockError> {
        Ok(id)
    }

    #[redis_lock(key = "k:{id}", reentrant = false, wait = "10s")]
    async fn plain(id: u8) -> Result<u8, LockError> {
        Ok(id)
    }

    #[tokio::test]
    async fn reentrant_joins_the_lock_of_the_caller() {
        alone(async |_| {
            assert_eq!(outer(1, true).await.expect("it joins"), 1);
            let error = outer(1, false).await.expect_err("it would wait for itself");
            assert!(matches!(error, LockError::WouldDeadlock { .. }), "{error}");
            assert_eq!(joining(1).await.expect("alone it takes the lock"), 1);
        })
        .await;
    }

    #[redis_lock(key = "k", prefix = prefix.to_lowercase())]
    async fn elsewhere(prefix: &str, manager: &LockManager) -> Result<u64, LockError> {
        inner(manager).await
    }

    #[redis_lock(key = "k", prefix = none, guard = lock)]
    async fn inner(manager: &LockManager) -> Result<u64, LockError> {
        assert!(!is_free(manager, "k").await);
        Ok(lock.fencing_token())
    }

    #[tokio::test]
    async fn prefix_is_the_namespace() {
        alone(async |manager| {
            let _held = hold(&manager, "k").await;
            let first = elsewhere("SHOP", &manager).await.expect("another lock");
            assert!(inner(&manager).await.expect("another lock") > first);
            // The manager's own, by its name.
            assert!(elsewhere("distlock", &manager).await.expect_err("held").is_busy());
            let error = elsewhere("{a}", &manager).await.expect_err("a tag");
            assert!(matches!(error, LockError::InvalidOption { .. }), "{error}");
        })
        .await;
    }

    #[redis_lock(key = "k:{id}", name = "payments")]
    async fn named(id: u8) -> Result<u8, LockError> {
        Ok(id)
    }

    #[redis_lock(key = "k:{id}")]
    async fn unnamed(id: u8) -> Result<u8, LockError> {
        Ok(id)
    }

    #[tokio::test]
    async fn name_is_what_errors_say() {
        alone(async |manager| {
            let _held = hold(&manager, "k:1").await;
            let error = named(1).await.expect_err("held").to_string();
            assert!(error.contains("\"k:{id}\" of payments"), "{error}");
            let error = unnamed(1).await.expect_err("held").to_string();
            assert!(error.contains("holding::unnamed"), "{error}");
        })
        .await;
    }
}

mod prefixes_on_redis {
    use distlock_testkit::RedisServer;

    use super::*;

    #[redis_lock(key = "k", prefix = "shop", guard = lock, manager = manager)]
    async fn of_shop(manager: &LockManager) -> Result<u64, LockError> {
        Ok(lock.fencing_token())
    }

    async fn of_another(manager: &LockManager) -> u64 {
        hold(manager, "k").await.fencing_token()
    }

    #[tokio::test]
    async fn a_prefix_means_the_same_to_managers_and_requests() {
        let server = RedisServer::start();
        let default = LockManager::connect(&server.url()).await.expect("connects");
        let shop = LockManager::builder().url(server.url()).prefix("shop").connections(3);
        let shop = shop.connect().await.expect("connects");

        // One counter for all.
        let mut last = 0;
        for _ in 0..20 {
            let token = of_shop(&default).await.expect("free");
            assert!(token > last, "{token} after {last}");
            let guard = hold(&shop, "k").await;
            assert!(guard.fencing_token() > token);
            assert!(of_shop(&default).await.expect_err("held").is_busy());
            assert!(of_shop(&shop).await.expect_err("held").is_busy());
            last = guard.fencing_token();
            guard.release().await.expect("it was held");
        }
        assert!(of_another(&default).await > 0);

        // Also when all data is lost under the connection.
        let client = redis::Client::open(server.url()).expect("a URL");
        let mut eye = client.get_connection().expect("connects");
        redis::cmd("FLUSHALL").query::<()>(&mut eye).expect("FLUSHALL");
        let token = of_shop(&default).await.expect("free");
        assert!(token > last, "{token} after {last}");
        let counters: Vec<String> = redis::cmd("KEYS").arg("*fence").query(&mut eye).expect("KEYS");
        assert_eq!(counters, ["shop:fence"]);
    }
}

mod conditions {
    use super::*;

    #[redis_lock(key = "k:{id}", when = id > 10 && !dry_run)]
    async fn sometimes(
        id: u8,
        dry_run: bool,
        payload: String,
        manager: &LockManager,
    ) -> Result<(bool, usize), LockError> {
        Ok((is_free(manager, &format!("k:{id}")).await, payload.len()))
    }

    #[tokio::test]
    async fn when_decides_whether_there_is_a_lock() {
        alone(async |manager| {
            let run = |id, dry_run| sometimes(id, dry_run, "abc".to_owned(), &manager);
            assert_eq!(run(11, false).await.expect("free"), (false, 3));
            assert_eq!(run(11, true).await.expect("no lock"), (true, 3));
            assert_eq!(run(1, false).await.expect("no lock"), (true, 3));
            let _held = hold(&manager, "k:1").await;
            assert_eq!(run(1, false).await.expect("no lock is asked for"), (false, 3));
        })
        .await;
    }

    #[redis_lock(key = "k", when = locked)]
    async fn needs_a_manager(locked: bool) -> Result<(), LockError> {
        Ok(())
    }

    #[tokio::test]
    async fn without_a_lock_no_manager_is_needed() {
        if std::env::var_os("DISTLOCK_URL").is_none() {
            needs_a_manager(false).await.expect("nothing is locked");
            let error = needs_a_manager(true).await.expect_err("there is no manager");
            assert!(matches!(error, LockError::NotConfigured), "{error}");
        }
    }

    #[redis_lock(key = "k:{id}", guard = lock)]
    async fn guarded(id: u64, text: String) -> Result<(String, u64), LockError> {
        sleep(ms(1)).await;
        assert!(lock.is_held());
        Ok((format!("{}{text}", lock.key()), lock.fencing_token()))
    }

    #[tokio::test]
    async fn guard_is_the_lock_in_the_body() {
        alone(async |manager| {
            let (text, first) = guarded(1, "!".to_owned()).await.expect("free");
            assert_eq!(text, "k:1!");
            let (_, second) = guarded(1, String::new()).await.expect("free");
            assert!(second > first);
            assert!(is_free(&manager, "k:1").await);
        })
        .await;
    }

    #[redis_lock(key = "k", guard = lock, ttl = "60ms", renew = false)]
    async fn loses_it() -> Result<(), LockError> {
        lock.lost().await;
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_body_with_a_guard_is_stopped_too() {
        alone(async |_| assert!(loses_it().await.expect_err("over").is_lost())).await;
    }
}

mod failing {
    use super::*;

    static RUNS: AtomicUsize = AtomicUsize::new(0);

    #[redis_lock(key = "job", on_fail = skip)]
    async fn nothing() {
        RUNS.fetch_add(1, Ordering::Relaxed);
    }

    #[redis_lock(key = "job", on_fail = skip)]
    async fn option() -> Option<u8> {
        Some(1)
    }

    #[redis_lock(key = "job", on_fail = skip)]
    async fn unit_result() -> Result<(), LockError> {
        Err(LockError::NotConfigured)
    }

    #[redis_lock(key = "job", on_fail = skip)]
    async fn option_result() -> Result<Option<u8>, Box<dyn std::error::Error>> {
        Ok(Some(1))
    }

    #[tokio::test]
    async fn skip_returns_nothing_where_the_lock_is_held() {
        alone(async |manager| {
            nothing().await;
            assert_eq!(option().await, Some(1));
            unit_result().await.expect_err("it runs");
            assert_eq!(option_result().await.expect("free"), Some(1));

            let _held = hold(&manager, "job").await;
            nothing().await;
            assert_eq!(RUNS.load(Ordering::Relaxed), 1);
            assert_eq!(option().await, None);
            unit_result().await.expect("skipped");
            assert_eq!(option_result().await.expect("skipped"), None);
        })
        .await;
    }

    #[derive(Debug, PartialEq)]
    struct Mine(String);

    #[tokio::test]
    async fn skip_does_not_swallow_other_errors_where_they_can_be_returned() {
        #[redis_lock(key = key, on_fail = skip)]
        async fn returned(key: &str) -> Result<Option<u8>, LockError> {
            Ok(Some(1))
        }

        #[redis_lock(key = key, on_fail = skip, map_err = |error| Mine(error.to_string()))]
        async fn mapped(key: &str) -> Result<(), Mine> {
            Ok(())
        }

        #[redis_lock(key = key, on_fail = skip)]
        async fn logged(key: &str) -> Result<(), Mine> {
            panic!("the body does not run")
        }

        alone(async |manager| {
            assert!(matches!(returned("").await, Err(LockError::InvalidKey { .. })));
            assert!(mapped("").await.expect_err("mapped").0.contains("empty"));
            logged("").await.expect("there is no place for it");
            let _held = hold(&manager, "k").await;
            assert_eq!(mapped("k").await, Ok(()));
        })
        .await;
    }

    #[redis_lock(key = "job", on_fail = |error| if error.is_busy() { -1 } else { -2 })]
    async fn closure() -> i32 {
        1
    }

    fn fallback(error: LockError) -> String {
        error.to_string()
    }

    #[redis_lock(key = "job", name = "jobs", on_fail = fallback)]
    async fn function() -> String {
        "ran".to_owned()
    }

    #[redis_lock(key = "job", on_fail = |_| Vec::new())]
    async fn hidden() -> impl IntoIterator<Item = u8> {
        vec![1, 2]
    }

    #[redis_lock(key = "k", ttl = "50ms", renew = false, on_fail = |error| error.is_lost())]
    async fn lost() -> bool {
        sleep(Duration::from_secs(10)).await;
        false
    }

    #[tokio::test]
    async fn on_fail_makes_any_return_type() {
        alone(async |manager| {
            assert_eq!(closure().await, 1);
            assert_eq!(function().await, "ran");
            assert_eq!(hidden().await.into_iter().count(), 2);
            assert!(lost().await);

            let _held = hold(&manager, "job").await;
            assert_eq!(closure().await, -1);
            assert!(function().await.contains("of jobs is held elsewhere"));
            assert_eq!(hidden().await.into_iter().count(), 0);
        })
        .await;
    }

    #[redis_lock(key = "k:{id}", map_err = |error| error.to_string())]
    async fn mapped(id: u8) -> Result<u8, String> {
        if id == 0 { Err("mine".to_owned()) } else { Ok(id) }
    }

    #[redis_lock(key = "k:{id}", map_err = Mapped::from_lock)]
    async fn mapped_by_name(id: u8) -> Result<u8, Mapped> {
        Ok(id)
    }

    #[derive(Debug)]
    struct Mapped(bool);

    impl Mapped {
        fn from_lock(error: LockError) -> Self {
            Self(error.is_busy())
        }
    }

    #[tokio::test]
    async fn map_err_makes_the_error_of_a_result() {
        alone(async |manager| {
            assert_eq!(mapped(0).await, Err("mine".to_owned()));
            assert_eq!(mapped(1).await, Ok(1));
            let _held = hold(&manager, "k:1").await;
            assert!(mapped(1).await.expect_err("held").contains("held elsewhere"));
            assert!(mapped_by_name(1).await.expect_err("held").0);
        })
        .await;
    }

    struct Order {
        id: u64,
        log: Mutex<Vec<String>>,
    }

    /// The closure sees what the body has done to its arguments.
    #[redis_lock(
        key = "k:{order.id}", ttl = "60ms", renew = false,
        on_fail = |error| format!("{tag}{:?}{}", order.log.lock().expect("no panic"), error.is_lost()),
    )]
    async fn uses_arguments(order: Order, tag: &str) -> String {
        order.log.lock().expect("no panic").push("ran".to_owned());
        sleep(Duration::from_secs(10)).await;
        "done".to_owned()
    }

    struct Shop {
        refused: Cell<u8>,
        count: u8,
    }

    impl Shop {
        #[redis_lock(key = "shop", map_err = |_| self.refuse())]
        async fn sell(&self) -> Result<u8, u8> {
            Ok(0)
        }

        fn refuse(&self) -> u8 {
            self.refused.set(self.refused.get() + 1);
            self.refused.get()
        }

        #[redis_lock(key = "shop", on_fail = |_| { self.count += 10; self.count })]
        async fn count(&mut self) -> u8 {
            self.count += 1;
            self.count
        }
    }

    #[tokio::test]
    async fn closures_see_the_arguments() {
        alone(async |manager| {
            let order = || Order { id: 1, log: Mutex::default() };
            assert_eq!(uses_arguments(order(), "#").await, "#[\"ran\"]true");
            let mut shop = Shop { refused: Cell::new(0), count: 0 };
            assert_eq!(shop.sell().await, Ok(0));
            assert_eq!(shop.count().await, 1);
            let _held = hold(&manager, "k:1").await;
            let _other = hold(&manager, "shop").await;
            assert_eq!(uses_arguments(order(), "#").await, "#[]false");
            assert_eq!(shop.sell().await, Err(1));
            assert_eq!(shop.count().await, 11);
        })
        .await;
    }
}

mod functions {
    use super::*;

    type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

    struct Service {
        tenant: &'static str,
        locks: LockManager,
    }

    impl Service {
        #[redis_lock(key = "{self.tenant}:{id}", manager = self.locks)]
        fn returns_impl(&self, id: u64) -> impl Future<Output = Result<bool, LockError>> + Send {
            async move { Ok(is_free(&self.locks, &format!("a:{id}")).await) }
        }

        #[redis_lock(key = "{self.tenant}:{id}", manager = &self.locks)]
        fn returns_box(
            &self,
            id: u64,
        ) -> Pin<Box<dyn Future<Output = Result<bool, LockError>> + Send + '_>> {
            if id == 0 {
                return Box::pin(std::future::ready(Err(LockError::NotConfigured)));
            }
            Box::pin(async move { Ok(is_free(&self.locks, &format!("a:{id}")).await) })
        }

        #[redis_lock(key = "{self.tenant}:{name}", manager = self.locks)]
        fn owns_all(
            &self,
            name: &str,
        ) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
            let (locks, key) = (self.locks.clone(), format!("{}:{name}", self.tenant));
            async move { Ok(is_free(&locks, &key).await) }
        }
    }

    #[redis_lock(key = "k:{id}", on_fail = |_| id, when = id > 0)]
    fn alias_is_seen_by_its_output(id: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
        Box::pin(async move { id + 1 })
    }

    #[tokio::test]
    async fn a_returned_future_runs_under_the_lock() {
        alone(async |manager| {
            let service = Service { tenant: "a", locks: manager.clone() };
            assert!(!service.returns_impl(1).await.expect("free"));
            assert!(!service.returns_box(1).await.expect("free"));
            let error = service.returns_box(0).await.expect_err("its own");
            assert!(matches!(error, LockError::NotConfigured));
            assert!(!service.owns_all("x").await.expect("free"));
            // Nothing is locked before the future is polled.
            let later = service.returns_impl(2);
            assert!(is_free(&manager, "a:2").await);
            drop(later);
            assert_eq!(alias_is_seen_by_its_output(1).await, 2);

            let _held = hold(&manager, "a:1").await;
            assert!(service.returns_impl(1).await.expect_err("held").is_busy());
            assert!(service.returns_box(1).await.expect_err("held").is_busy());
            let _other = hold(&manager, "k:1").await;
            assert_eq!(alias_is_seen_by_its_output(1).await, 1);
        })
        .await;
        assert_eq!(alias_is_seen_by_its_output(0).await, 1);
        let _: fn(_) -> Boxed<'static, u64> = alias_is_seen_by_its_output;
    }

    #[async_trait::async_trait]
    trait Store {
        async fn save(&mut self, pair: (u64, u64), text: String) -> Result<(u64, bool), LockError>;

        #[redis_lock(key = "default:{id}", on_fail = skip)]
        async fn default(&self, id: u64) -> Option<u64> {
            Some(id)
        }

        #[redis_lock(key = "unit", on_fail = |_| ())]
        async fn unit(&self) {}
    }

    struct Memory {
        saved: u64,
        locks: LockManager,
    }

    #[async_trait::async_trait]
    impl Store for Memory {
        #[redis_lock(
            key = "{self.saved}:{a}-{b}:{text}", manager = self.locks, guard = lock,
            ttl = Duration::from_secs(self.saved + 5),
        )]
        async fn save(
            &mut self,
            (a, b): (u64, u64),
            text: String,
        ) -> Result<(u64, bool), LockError> {
            self.saved += a + b;
            let taken = lock.is_held() && lock.key() == "0:1-2:x";
            Ok((self.saved + text.len() as u64, taken))
        }
    }

    #[async_trait::async_trait(?Send)]
    trait Local {
        async fn run(&self, id: std::rc::Rc<str>) -> Result<usize, LockError>;
    }

    #[async_trait::async_trait(?Send)]
    impl Local for Memory {
        #[redis_lock(key = "local:{id}", manager = self.locks)]
        async fn run(&self, id: std::rc::Rc<str>) -> Result<usize, LockError> {
            sleep(ms(1)).await;
            if id.is_empty() {
                return Ok(100);
            }
            Ok(id.len())
        }
    }

    #[tokio::test]
    async fn methods_of_async_traits_are_locked() {
        alone(async |manager| {
            let mut memory = Memory { saved: 0, locks: manager.clone() };
            let saved = memory.save((1, 2), "x".to_owned()).await.expect("free");
            assert_eq!(saved, (4, true));
            assert_eq!(memory.default(1).await, Some(1));
            memory.unit().await;
            assert_eq!(memory.run("abc".into()).await.expect("free"), 3);
            assert_eq!(memory.run("".into()).await.expect("free"), 100);

            let _held = hold(&manager, "default:1").await;
            let _other = hold(&manager, "local:abc").await;
            assert_eq!(memory.default(1).await, None);
            assert!(memory.run("abc".into()).await.expect_err("held").is_busy());
        })
        .await;
    }
}
