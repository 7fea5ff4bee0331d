//! Only floats are refused: these print the same for the same.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::num::{NonZeroU64, Wrapping};
use std::rc::Rc;
use std::sync::Arc;

use distlock::{LockError, redis_lock};

const RATE: f64 = 0.5;

struct Cents(f64);

impl Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}", self.0)
    }
}

#[redis_lock(key = "{RATE}:{cents}:{text}:{shared}:{local}:{number}:{wrapping}:{any}:{c}")]
async fn many(
    cents: &Cents,
    text: Cow<'_, str>,
    shared: Arc<str>,
    local: &Rc<Box<u8>>,
    number: NonZeroU64,
    wrapping: Wrapping<i8>,
    any: &dyn Display,
    c: char,
) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{generic}:{boxed}")]
async fn generic<T: Display, U: Display + ?Sized>(generic: T, boxed: Box<U>) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(many(
        &Cents(1.0),
        "a".into(),
        "b".into(),
        &Rc::new(Box::new(1)),
        NonZeroU64::MIN,
        Wrapping(1),
        &2,
        'c',
    ));
    drop(generic(1, Box::new("d")));
}
