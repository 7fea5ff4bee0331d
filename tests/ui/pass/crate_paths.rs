//~ ALONE it names the root of the crate
//! `crate = …` takes any path that means this crate where the function stands.

use distlock as dl;
use distlock::redis_lock;

type Answer = Result<(), dl::LockError>;

pub mod reexports {
    pub use distlock;

    pub mod deep {
        pub use distlock as locks;
    }
}

#[redis_lock(key = "a:{id}", crate = dl)]
async fn name_of_an_import(id: u8) -> Answer {
    let dl = id;
    dl.checked_sub(1).map(drop).ok_or(dl::LockError::Closed)
}

#[redis_lock(key = "a:{id}", crate = distlock)]
async fn name_of_the_crate(id: u8) -> Answer {
    Ok(())
}

#[redis_lock(key = "a:{id}", crate = self::reexports::deep::locks)]
async fn from_here(id: u8) -> Answer {
    Ok(())
}

#[redis_lock(key = "a:{id}", crate = reexports::distlock)]
async fn through_a_module(id: u8) -> Answer {
    Ok(())
}

mod inner {
    use super::Answer;
    use super::reexports::deep::*;

    pub mod innermost {
        use distlock::redis_lock;

        #[redis_lock(key = "{id}", on_fail = skip, crate = super::locks)]
        pub async fn skipping(id: u8) {}

        #[redis_lock(key = "{id}", wait = "1s", guard = lock, crate = super::super::reexports::distlock)]
        pub async fn guarded(id: u8) -> super::Answer {
            lock.extend(std::time::Duration::from_secs(1)).await
        }
    }

    pub struct Shop {
        pub tenant: String,
    }

    impl Shop {
        #[locks::redis_lock(key = "{self.tenant}", when = id > 0, crate = locks)]
        pub async fn sell(&self, id: u8) -> Answer {
            Ok(())
        }

        #[locks::redis_lock(keys = ["{self.tenant}", "b"], prefix = "p", crate = self::locks)]
        pub fn buy(&self) -> impl Future<Output = Answer> + use<> {
            async { Ok(()) }
        }
    }

    pub trait Store {
        #[locks::redis_lock(key = "{id}", map_err = |e| e, on_lost = continue, crate = super::dl)]
        #[allow(async_fn_in_trait)]
        async fn save(&self, id: u8) -> Answer {
            Ok(())
        }
    }

    #[async_trait::async_trait]
    pub trait Boxed {
        #[locks::redis_lock(key = "{id}", crate = crate::inner::locks)]
        async fn save(&self, id: u8) -> Answer {
            Ok(())
        }
    }

    impl Store for Shop {}
    impl Boxed for Shop {}
}

fn of_a_function() -> dl::LockKey {
    use distlock as here;

    #[redis_lock(key = "{id}", on_fail = skip, crate = here)]
    async fn job(id: u8) {}

    drop(job(1));
    let id = 1;
    here::key!("{id}", crate = here)
}

fn main() {
    let shop = inner::Shop { tenant: String::new() };
    drop((name_of_an_import(1), name_of_the_crate(1), from_here(1), through_a_module(1)));
    drop((inner::innermost::skipping(1), inner::innermost::guarded(1), of_a_function()));
    drop((shop.sell(1), shop.buy(), inner::Store::save(&shop, 1)));
    drop(inner::Boxed::save(&shop, 1));
}
