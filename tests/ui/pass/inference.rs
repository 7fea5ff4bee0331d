use std::error::Error;

use distlock::redis_lock;

#[redis_lock(key = "a")]
async fn question_mark(text: &str) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let number: u64 = text.trim().parse()?;
    if number == 0 {
        return Err("zero".into());
    }
    Ok(number)
}

#[redis_lock(key = "a")]
async fn collected(words: Vec<String>) -> Result<Vec<u64>, Box<dyn Error>> {
    words.iter().map(|word| word.parse().map_err(Into::into)).collect()
}

#[redis_lock(key = "a")]
async fn boxed_closure() -> Result<Box<dyn Fn(u8) -> u8>, Box<dyn Error>> {
    Ok(Box::new(|x| x + 1))
}

#[redis_lock(key = "a")]
async fn never_comes_back() -> Result<u8, Box<dyn Error>> {
    loop {
        std::future::pending::<()>().await;
    }
}

#[redis_lock(key = "a")]
async fn not_written_yet() -> Result<u8, Box<dyn Error>> {
    todo!()
}

fn main() {
    drop((question_mark("1"), collected(Vec::new()), boxed_closure(), never_comes_back(), not_written_yet()));
}
