use distlock::{LockLayer, LockManager};

fn main() {
    //~ ERROR "checked" this layer does not say what to lock
    drop(LockLayer::new(LockManager::in_memory()).checked());
}
