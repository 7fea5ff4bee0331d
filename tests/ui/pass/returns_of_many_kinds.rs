use std::fmt::Debug;
use std::process::ExitCode;

use distlock::{LockError, redis_lock};

type Answer<T = ()> = Result<T, LockError>;

#[redis_lock(key = "a")]
async fn boxed_closure() -> Answer<Box<dyn Fn(&str) -> usize + Send>> {
    Ok(Box::new(|text| text.len()))
}

#[redis_lock(key = "a")]
async fn some_closure(values: Vec<u8>) -> Answer<impl Fn(&u8) -> bool> {
    Ok(move |value: &u8| values.contains(value))
}

#[redis_lock(key = "a")]
async fn reborrowed(values: &mut Vec<u8>) -> Answer<&mut u8> {
    for value in values.iter_mut() {
        if *value > 5 {
            return Ok(value);
        }
    }
    Err(LockError::NotConfigured)
}

#[redis_lock(key = "a")]
async fn nested() -> Answer<(u8, (impl Send, [impl Copy; 1]))> {
    Ok((1, ("", [1])))
}

#[redis_lock(key = "a")]
async fn some_error() -> Result<u8, impl From<LockError> + Debug> {
    if true {
        return Err(LockError::Closed);
    }
    Ok(1)
}

#[redis_lock(key = "a")]
async fn generic_error<E>() -> Result<u8, E>
where
    E: From<LockError> + From<std::fmt::Error>,
{
    Err(std::fmt::Error)?
}

#[redis_lock(key = "a", on_fail = |_| ExitCode::FAILURE)]
async fn code() -> ExitCode {
    ExitCode::SUCCESS
}

fn main() {
    let mut values = vec![1];
    drop((boxed_closure(), some_closure(vec![]), nested(), some_error(), code()));
    drop((reborrowed(&mut values), generic_error::<Box<dyn std::error::Error>>()));
}
