use distlock::{LockKey, key};

const REGION: &str = "eu";

struct Order {
    id: u64,
}

impl Order {
    fn key(&self) -> LockKey {
        key!("{REGION}:order:{self.id:05}")
    }
}

fn main() {
    let (a, b) = ("x-y", 5);
    assert_eq!(key!("{a}-{b}").as_str(), "x%2Dy-5");
    assert_eq!(key!("plain",).as_str(), "plain");
    assert_eq!(Order { id: 7 }.key().as_str(), "eu:order:00007");
    let r#type = 1;
    assert_eq!(key!("{type}").template(), Some("{type}"));
}
