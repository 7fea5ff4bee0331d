use distlock::{LockError, key, redis_lock};

type Answer = Result<(), LockError>;

//~ ERROR "price" `f64` cannot be part of a lock key: a float prints differently for equal amounts
#[redis_lock(key("a:{}", price))]
async fn value(price: f64) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR "price * 1.2" `f32` cannot be part of a lock key
#[redis_lock(key("a:{gross:.2}", gross = price * 1.2))]
async fn named_value(price: f32) -> Answer {
    drop(price);
    Ok(())
}

//~ ERROR "prices[0]" `f64` cannot be part of a lock key
#[redis_lock(keys = [key("a:{}", prices[0]), "b"])]
async fn value_of_several(prices: &[f64]) -> Answer {
    drop(prices);
    Ok(())
}

//~ ERROR "1.5" `f64` cannot be part of a lock key
#[redis_lock(key("a:{}", 1.5))]
async fn literal() -> Answer {
    Ok(())
}

fn by_hand(price: f64) {
    //~ ERROR "{price}" `f64` cannot be part of a lock key
    drop(key!("a:{price}"));
}

fn main() {
    by_hand(1.0);
}
