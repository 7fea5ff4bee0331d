//! `key!` takes values of its own, like `key("…", …)` in the attribute.

use distlock::{LockKey, key};

struct Account(u64);

impl Account {
    fn number(&self) -> u64 {
        self.0
    }
}

fn keys(account: &Account, shop: &str) -> [LockKey; 6] {
    let width = 5;
    [
        key!("account:{}", account.0),
        key!("account:{}:{}", account.number(), shop),
        key!("account:{1}:{0}:{shop}", account.0, "x",),
        key!("account:{number:0width$}", number = account.0),
        key!("account:{}:{account.0}:{rest}", shop, rest = account.0 % 7, crate = ::distlock),
        key!("account:{}", *account.0.to_string(), crate = ::distlock,),
    ]
}

async fn awaited() -> LockKey {
    key!("account:{}", std::future::ready(7).await)
}

fn main() {
    let [one, two, ..] = keys(&Account(7), "a:b");
    assert_eq!((one.as_str(), two.as_str()), ("account:7", "account:7:a%3Ab"));
    drop(awaited());
}
