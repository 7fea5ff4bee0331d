use distlock::route_key;

fn main() {
    //~ ERROR ""order:{order_id}"" write `{order_id:u64}` (or `i64`, `uuid`), `{order_id:str}` to take
    drop(route_key!("order:{order_id}"));
    //~ ERROR ""order:{order_id"" write `{{` for a literal brace
    drop(route_key!("order:{order_id"));
    //~ ERROR ""order:{order_id:05}"" write `{order_id:u64}`
    drop(route_key!("order:{order_id:05}"));
    //~ ERROR ""{a:u64}{b:u64}"" write a `:` between them
    drop(route_key!("{a:u64}{b:u64}"));
    //~ ERROR "5" say what to lock, in quotes
    drop(route_key!(5));
    //~ ERROR "ttl" `route_key!` takes a template
    drop(route_key!("order:{order_id:u64}", ttl = "5s"));
}
