use distlock::{LockError, key, redis_lock};

#[redis_lock(key = "nightly:video")]
async fn another_word(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

// The text is meant as it is.
#[redis_lock(key("report:#id"))]
async fn said_to_be_meant(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = key("nightly:report"))]
async fn after_equals(report: u64) -> Result<u64, LockError> {
    Ok(report)
}

#[redis_lock(keys = [key("a:$id"), key("id"), "b:{id}"])]
async fn several(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key("price:${id}"))]
async fn in_dollars(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = "#id:%s:<id>")]
async fn without_arguments() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{{id}}:{id}:id")]
async fn beside_the_argument(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = "ticket #{id}, by admin@example.org, 50%")]
async fn with_signs(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

struct Jobs;

impl Jobs {
    #[redis_lock(key = "self:jobs:1")]
    async fn method(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {
    let id = 1;
    drop((another_word(id), said_to_be_meant(id), after_equals(id), several(id), in_dollars(id)));
    drop((without_arguments(), beside_the_argument(id), with_signs(id), Jobs.method()));
    drop(key!("order:#id"));
}
