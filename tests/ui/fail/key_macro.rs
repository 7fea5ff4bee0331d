use distlock::key;

fn main() {
    let (id, none) = (1, None::<u64>);
    //~ ERROR "key!()" say what to lock, for example
    key!();
    //~ ERROR ""{id:?}"" without the `?`
    key!("{id:?}");
    //~ ERROR "id" a key is a text in quotes
    key!(id);
    //~ ERROR "{none}" `Option<u64>` cannot be part of a lock key
    key!("{none}");
    //~ ERROR ""a:{idd}"" cannot find value `idd`
    key!("a:{idd}");
    //~ ERROR "id" `key!` takes a template
    key!("a:{id}", id);
    //~ ERROR "UNKNOWN" cannot find value `UNKNOWN`
    key!("{UNKNOWN}");
}
