use distlock::LockManager;
use distlock::tower::LockLayer;

fn main() {
    let layer = LockLayer::new(LockManager::in_memory());
    //~ ERROR "()" this layer does not say what to lock
    drop(layer.layer(()));
}
