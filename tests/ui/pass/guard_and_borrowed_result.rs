use distlock::{LockError, redis_lock};

struct Names(Vec<String>);

impl Names {
    #[redis_lock(key = "names", guard = lock)]
    async fn first<'a>(&'a mut self, other: &'a str) -> Result<&'a str, LockError> {
        if lock.is_held() {
            self.0.clear();
        }
        Ok(self.0.first().map_or(other, String::as_str))
    }

    #[redis_lock(key = "names", on_lost = continue)]
    async fn last(&mut self) -> Result<&mut String, LockError> {
        self.0.push(String::new());
        let last = self.0.len() - 1;
        Ok(&mut self.0[last])
    }
}

fn main() {
    let mut names = Names(Vec::new());
    drop(names.first("a"));
    drop(names.last());
}
