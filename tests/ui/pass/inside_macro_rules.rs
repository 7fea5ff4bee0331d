use distlock::{LockError, redis_lock};

macro_rules! locked {
    ($name:ident, $key:literal, $ttl:expr, $wait:literal, $argument:ident: $type:ty, $body:block) => {
        #[redis_lock(key = $key, ttl = $ttl, wait = $wait, renew = true)]
        async fn $name($argument: $type) -> Result<u64, LockError> $body
    };
}

locked!(all_from_outside, "a:{id}", "5s", "1s", id: u64, { Ok(id) });
locked!(expression, "a:{id}", std::time::Duration::from_secs(1), "1s", id: u64, { Ok(id) });
locked!(dotted, "a:{order.0}", "5s", "1s", order: (u64,), { Ok(order.0) });

macro_rules! all_from_inside {
    ($name:ident) => {
        #[redis_lock(key = "a:{id}:{order.0}")]
        async fn $name(id: u64, order: (u64,)) -> Result<u64, LockError> {
            Ok(id + order.0)
        }
    };
}

all_from_inside!(inside);

macro_rules! item {
    ($item:item) => {
        #[redis_lock(key = "a:{id}")]
        $item
    };
}

item! {
    async fn whole(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

macro_rules! methods {
    ($($visibility:vis $name:ident),*) => {$(
        #[redis_lock(key = "a:{self.id}", manager = self.locks)]
        $visibility async fn $name(&self) -> Result<u64, LockError> {
            Ok(self.id)
        }
    )*};
}

struct Service {
    id: u64,
    locks: distlock::LockManager,
}

impl Service {
    methods!(first, pub second);
}

fn main() {
    drop((all_from_outside(1), expression(1), dotted((1,)), inside(1, (2,)), whole(1)));
    let _ = |service: Service| async move {
        drop((service.first().await, service.second().await));
    };
}
