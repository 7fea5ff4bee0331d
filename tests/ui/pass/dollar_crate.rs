//~ ALONE it names the root of the crate
mod reexported {
    pub use ::distlock;
    pub use ::distlock::*;

    #[macro_export]
    macro_rules! locked {
        ($name:ident) => {
            #[$crate::reexported::redis_lock(key = "a:{id}", crate = $crate::reexported::distlock)]
            async fn $name(id: u8) -> Result<u8, $crate::reexported::LockError> {
                Ok(id)
            }
        };
        ($name:ident in $path:path) => {
            #[$crate::reexported::redis_lock(key = "a:{id}", crate = $path)]
            async fn $name(id: u8) -> Result<u8, $crate::reexported::LockError> {
                Ok(id)
            }
        };
    }
}

locked!(first);
locked!(second in ::distlock);
locked!(third in crate::reexported::distlock);

fn main() {
    drop((first(1), second(1), third(1)));
}
