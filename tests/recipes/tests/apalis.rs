use apalis::prelude::*;
use distlock::redis_lock;

#[derive(Debug, Clone)]
struct Bill {
    customer: u64,
}

#[redis_lock(key = "bill:{task.customer}", ttl = "30s", wait = "1m")]
async fn bill(task: Bill) -> Result<(), BoxDynError> {
    println!("customer {} is billed", task.customer);
    Ok(())
}

async fn work(bills: MemoryStorage<Bill>) -> Result<(), WorkerError> {
    WorkerBuilder::new("bills").backend(bills).concurrency(8).build(bill).run().await
}

#[tokio::test]
async fn the_bills_of_one_customer_are_sent_one_at_a_time() {
    let locks = distlock::testing::Locks::new();
    distlock::init(locks.manager()).expect("the first manager");
    let mut bills = MemoryStorage::new();
    for _ in 0..20 {
        bills.push(Bill { customer: 7 }).await.expect("a place in the queue");
    }
    let worker = tokio::spawn(work(bills));
    let are_sent = async || locks.history("bill:7").names().len() == 20;
    distlock_testkit::wait_for("all are billed", are_sent).await;
    locks.assert_never_together("bill:7");
    worker.abort();
}
