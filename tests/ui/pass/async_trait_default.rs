use async_trait::async_trait;
use distlock::redis_lock;

#[async_trait]
trait Jobs: Sync {
    fn name(&self) -> String;

    #[redis_lock(key("job:{}", self.name()), on_fail = skip)]
    async fn run(&self) {
        drop(self.name());
    }

    #[redis_lock(key = "count:{n}", map_err = |error| format!("{}: {error}", self.name()))]
    async fn count(&self, n: u64) -> Result<u64, String> {
        Ok(n)
    }
}

struct Nightly;

impl Jobs for Nightly {
    fn name(&self) -> String {
        "nightly".to_owned()
    }
}

fn main() {
    drop((Nightly.run(), Nightly.count(1)));
}
