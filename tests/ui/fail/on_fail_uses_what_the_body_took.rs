use distlock::redis_lock;

//~ ERROR "|_|" borrow of moved value: `text`
#[redis_lock(key = "{text}", on_fail = |_| text.len())]
async fn locked(text: String) -> usize {
    drop(text);
    0
}

fn main() {
    drop(locked(String::new()));
}
