use std::rc::Rc;
use std::sync::Arc;

use distlock::{LockError, redis_lock};

type Answer = Result<(), LockError>;
type Price = f64;

struct Order {
    price: f32,
    rates: (u8, Rc<f64>),
}

//~ ERROR "{price}" `f64` cannot be part of a lock key: a float prints differently for equal amounts
#[redis_lock(key = "a:{price}")]
async fn plain(price: f64) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR "{price}" `&f32` cannot be part of a lock key
#[redis_lock(key = "a:{price}:b")]
async fn reference(price: &f32) -> Answer {
    let _: &f32 = price;
    Ok(())
}

//~ ERROR "{price}" lock a whole number of the smallest unit: `key("…{}", cents)`
#[redis_lock(key = "a:{price}:b")]
async fn alias(price: Price) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR "{price}" `Box<f64>` cannot be part of a lock key
#[redis_lock(key = "a:{price}:b")]
async fn boxed(price: Box<f64>) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR "{price}" `&Arc<f64>` cannot be part of a lock key
#[redis_lock(key = "a:{price}:b")]
async fn shared(price: &Arc<f64>) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR "{price:.2}" `f64` cannot be part of a lock key
#[redis_lock(key = "a:{price:.2}")]
async fn rounded(price: f64) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR "{price:e}" `f64` cannot be part of a lock key
#[redis_lock(key = "a:{price:e}")]
async fn with_exponent(price: f64) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR "{price}" `f64` cannot be part of a lock key
#[redis_lock(key = "a:{price}")]
async fn of_a_pattern(Order { rates: (_, _), .. }: Order, (price, _): (f64, u8)) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR ""a:{order.price}"" `f32` cannot be part of a lock key
#[redis_lock(key = "a:{order.price}")]
async fn field(order: Order) -> Answer {
    drop(order.rates.1);
    Ok(())
}

//~ ERROR ""a:{order.rates.1}"" `Rc<f64>` cannot be part of a lock key
#[redis_lock(key = "a:{order.rates.1}")]
async fn deeper_field(order: &Order) -> Answer {
    drop(order.price);
    Ok(())
}

impl Order {
    //~ ERROR ""a:{self.price}"" `f32` cannot be part of a lock key
    #[redis_lock(key = "a:{self.price}")]
    async fn receiver(&self) -> Answer {
        Ok(())
    }
}

//~ ERROR "{price}" `f64` cannot be part of a lock key
#[redis_lock(keys = ["a:{id}", "b:{price}"])]
async fn one_of_several(id: u64, price: f64) -> Answer {
    drop((id, price));
    Ok(())
}

fn main() {}
