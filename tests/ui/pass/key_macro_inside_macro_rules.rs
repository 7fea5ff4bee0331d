use distlock::{LockKey, key};

macro_rules! text_from_outside {
    ($text:literal) => {
        key!($text)
    };
}

macro_rules! all_from_inside {
    ($id:expr) => {{
        let id = $id;
        key!("order:{id}")
    }};
}

fn main() {
    let (id, pair) = (5, (1, 2));
    let keys: [LockKey; 3] = [
        text_from_outside!("order:{id}"),
        text_from_outside!("order:{id}:{pair.0}"),
        all_from_inside!(pair.0),
    ];
    drop(keys);
}
