//! Which key an annotated function locks, as it is stored.
//!
//! A refused call shows it: another caller holds the expected key, and no other key is held.

use std::fmt;
use std::sync::Arc;

use distlock::{LockError, LockKey, LockManager, key, redis_lock, with_manager};

const REGION: &str = "eu:{1}";
static SHARD: u8 = 3;

/// Runs the call twice: while `expected` is held, when it must be refused, and then again.
async fn assert_locks<F, T, C>(expected: &str, call: C)
where
    F: Future<Output = Result<T, LockError>>,
    C: Fn() -> F,
{
    let manager = LockManager::in_memory();
    with_manager(manager.clone(), async {
        let holder = manager.lock(expected).acquire().await.expect("nobody holds it");
        match call().await {
            Err(error) if error.is_busy() => assert_eq!(error.key(), Some(expected)),
            Err(error) => panic!("{expected}: {error}"),
            Ok(_) => panic!("another key than {expected} was locked"),
        }
        holder.release().await.expect("it was held");
        call().await.map(drop).expect("free now");
        // And the call has freed it.
        manager.lock(expected).acquire().await.map(drop).expect("free again");
    })
    .await;
}

#[redis_lock(key = "nightly")]
async fn constant() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{a}-{b}")]
async fn dashed(a: &str, b: &str) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{a}: {b} :{a}-{a}")]
async fn repeated(a: &str, b: &str) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{REGION}:{SHARD}:{N}:{id}")]
async fn constants<const N: usize>(id: &str) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{{cart}}:{user}:{{}}")]
async fn tagged(user: &str) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{n:05}:{n:x}:{n:#010b}:{name:->6}-{name:.2}")]
async fn formats(n: u64, name: &str) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{n:width$}:{width:0width$}")]
async fn widths(n: u64, width: usize) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{id}/{first}+{name}")]
async fn patterns(
    Wrapper(id): Wrapper<u64>,
    (first, _): (char, u8),
    Order { name, .. }: Order,
) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{type}:{id}")]
async fn generic<T: fmt::Display>(r#type: T, id: impl fmt::Display) -> Result<(), LockError> {
    Ok(())
}

#[derive(Clone)]
struct Wrapper<T>(T);

#[derive(Clone)]
struct Order {
    name: String,
    pair: (u8, (char, u8)),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.pair.0)
    }
}

impl Order {
    #[redis_lock(key = "{self.name}.{self.pair.1.0:>3}.{other.name}")]
    async fn fields(&self, other: Self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "[{self}]-{n}")]
    async fn whole(self: Arc<Self>, n: u8) -> Result<(), LockError> {
        Ok(())
    }
}

fn order(name: &str) -> Order {
    Order { name: name.to_owned(), pair: (1, ('-', 2)) }
}

#[tokio::test]
async fn keys_are_stored_as_written() {
    assert_locks("nightly", constant).await;
    assert_locks("x%2Dy-z", || dashed("x-y", "z")).await;
    assert_locks("x-y-z", || dashed("x", "y-z")).await;
    assert_locks("a-: b :a%2D-a-", || repeated("a-", "b")).await;
    assert_locks("50%25: b%3A%7Bc%7D :50%25-50%25", || repeated("50%", "b:{c}")).await;
}

#[tokio::test]
async fn constants_are_taken_as_they_print() {
    assert_locks("eu:{1}:3:8:a%3Ab", || constants::<8>("a:b")).await;
    assert_locks("{cart}:ann%0A:{}", || tagged("ann\n")).await;
}

#[tokio::test]
async fn values_are_formatted_and_then_encoded() {
    assert_locks("00255:ff:0b11111111:%2D%2D%2Dä%2Db-ä-", || formats(255, "ä-b")).await;
    assert_locks("   7:0004", || widths(7, 4)).await;
}

#[tokio::test]
async fn every_way_to_name_a_value() {
    assert_locks("7/%2B+n", || patterns(Wrapper(7), ('+', 0), order("n"))).await;
    assert_locks("a%3A:7", || generic("a:", 7)).await;
    assert_locks("a%2Eb.  -.c.d", || {
        let order_ = order("a.b");
        async move { order_.fields(order("c.d")).await }
    })
    .await;
    assert_locks("[n%3A1]-2", || Arc::new(order("n")).whole(2)).await;
}

#[tokio::test]
async fn key_macro_and_attribute_make_the_same_key() {
    let (a, b) = ("x-y", "z:{");
    let made: LockKey = key!("{a}-{b}");
    assert_eq!(made.as_str(), "x%2Dy-z%3A%7B");
    assert_eq!(made.template(), Some("{a}-{b}"));
    assert_locks(made.as_str(), || dashed(a, b)).await;
    assert_eq!(key!("{REGION}:{a}").as_str(), "eu:{1}:x-y");
}

#[redis_lock(key = "{a}%{b}")]
async fn percent(a: &str, b: &str) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key("{}%25{}", a, b))]
async fn percent_of_values(a: &str, b: &str) -> Result<(), LockError> {
    Ok(())
}

/// A value may end with what looks like the separator's encoding.
/// Fault: FC6.
#[tokio::test]
async fn a_percent_sign_between_values_ends_the_first() {
    assert_locks("50%%7", || percent("50", "7")).await;
    assert_locks("%%%25%25", || percent("", "%%")).await;
    assert_locks("%25%%%25", || percent("%", "%")).await;
    assert_locks("%25%%2525", || percent_of_values("%", "25")).await;
    let texts = ["", "%", "2", "25", "5", "%2", "%25", "%%", "5%", "%25%"];
    let mut seen = std::collections::HashMap::new();
    for a in texts {
        for b in texts {
            let keys = [key!("{a}%{b}"), key!("{a}%2{b}"), key!("{}%25{}", a, b), key!("{a}%%{b}")];
            for (template, key) in keys.iter().enumerate() {
                if let Some(other) = seen.insert((template, key.as_str().to_owned()), (a, b)) {
                    panic!("{other:?} and {:?} make {}", (a, b), key.as_str());
                }
            }
        }
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_stored_is_an_error_not_a_panic() {
    struct Failing;

    impl fmt::Display for Failing {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }

    #[redis_lock(key = "{value}")]
    async fn locked<T: fmt::Display>(value: T) -> Result<(), LockError> {
        Ok(())
    }

    with_manager(LockManager::in_memory(), async {
        for (error, words) in [
            (locked(Failing).await, "Display"),
            (locked("").await, "empty"),
            (locked("x".repeat(5000)).await, "4096 bytes"),
        ] {
            let error = error.expect_err(words);
            assert!(matches!(error, LockError::InvalidKey { .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    })
    .await;
}

/// Fault: H8.
#[tokio::test]
async fn an_error_shows_the_template_and_never_the_values() {
    #[redis_lock(key = "user:{mail}")]
    async fn locked(mail: &str) -> Result<(), LockError> {
        Ok(())
    }

    let manager = LockManager::in_memory();
    let _holder = manager.lock("user:ann@example.org").acquire().await.expect("free");
    let error = with_manager(manager, locked("ann@example.org")).await.expect_err("it is held");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.contains("user:{mail}") && text.contains("locked"), "{text}");
        assert!(!text.contains("ann@"), "{text}");
    }
}
