use distlock::{LockError, LockManager, redis_lock};

struct Reports {
    locks: LockManager,
    prefix: String,
}

impl Reports {
    #[redis_lock(
        keys = ["report:{id}", "index"],
        mode = read,
        ttl = "5s",
        wait = "1s",
        max_hold = "1m",
        min_hold = "1s",
        on_lost = continue,
        release = background,
        reentrant = true,
        manager = self.locks,
        prefix = &self.prefix,
        guard = lock,
        name = "read",
    )]
    async fn read(&self, id: u64) -> Result<u64, LockError> {
        Ok(id + lock.fencing_token())
    }

    #[redis_lock(
        keys = ["report:{id}", "index"],
        mode = write,
        ttl = "5s",
        wait = none,
        renew = false,
        min_hold = "1s",
        release = background,
        reentrant = true,
        manager = self.locks,
        prefix = none,
        when = id > 0,
        map_err = |error: LockError| error.to_string(),
    )]
    async fn write(&self, id: u64) -> Result<u64, String> {
        Ok(id)
    }

    #[redis_lock(key = "report:{id}", mode = read, manager = self.locks, on_fail = skip)]
    async fn look(&self, id: u64) -> Option<u64> {
        Some(id)
    }

    #[redis_lock(key = "report:{id}", mode = read, manager = self.locks, blocking)]
    fn read_here(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    #[redis_lock(key = "report:{id}", mode = write, manager = self.locks, blocking)]
    fn write_here(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    #[redis_lock(key = "pool", permits = 3, manager = self.locks, blocking, when = id > 0)]
    fn one_of_three_here(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    #[redis_lock(
        key = "pool",
        permits = 3,
        renew = false,
        prefix = &self.prefix,
        manager = self.locks,
        on_fail = skip,
        name = "pool",
        crate = ::distlock,
    )]
    async fn one_of_three(&self) -> Option<u64> {
        Some(3)
    }
}

fn main() {
    let reports = Reports { locks: LockManager::in_memory(), prefix: "app".to_owned() };
    drop((reports.read(1), reports.write(1), reports.look(1), reports.one_of_three()));
    assert_eq!(reports.read_here(1).ok(), Some(1));
    assert_eq!(reports.write_here(2).ok(), Some(2));
    assert_eq!(reports.one_of_three_here(0).ok(), Some(0));
}
