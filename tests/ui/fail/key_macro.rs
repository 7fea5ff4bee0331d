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
    //~ ERROR "id" this value has no place in the text: write a `{}` for it
    key!("a:{id}", id);
    //~ ERROR ""a:{}:{}"" there is no value number 2: only 1 value follows the text
    key!("a:{}:{}", id);
    //~ ERROR ""a:{}"" `{}` names nothing
    key!("a:{}");
    //~ ERROR "none" `Option<u64>` cannot be part of a lock key
    key!("a:{}", none);
    //~ ERROR "crate" `crate` is given twice
    key!("a", crate = ::distlock, crate = ::distlock);
    //~ ERROR "UNKNOWN" cannot find value `UNKNOWN`
    key!("{UNKNOWN}");
}
