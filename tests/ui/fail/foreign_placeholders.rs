use distlock::{LockError, redis_lock};

//~ ERROR ""order:#orderId"" `#orderId` is plain text here: write `{order_id}` for the argument, or `key("order:#orderId")`
#[redis_lock(key = "order:#orderId")]
async fn locked_0(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""'order:' + #orderId"" `#orderId` is plain text here: write `{order_id}` for the argument, or `key("'order:' + #orderId")`
#[redis_lock(key = "'order:' + #orderId")]
async fn locked_1(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""#order_id"" `#order_id` is plain text here: write `{order_id}` for the argument, or `key("#order_id")`
#[redis_lock(key = "#order_id")]
async fn locked_2(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:#p0"" `#p0` is plain text here: write `{order_id}` for the argument, or `key("order:#p0")`
#[redis_lock(key = "order:#p0")]
async fn locked_3(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:#a0"" `#a0` is plain text here: write `{order_id}` for the argument, or `key("order:#a0")`
#[redis_lock(key = "order:#a0")]
async fn locked_4(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:#args[0]"" `#args[0]` is plain text here: write `{order_id}` for the argument, or `key("order:#args[0]")`
#[redis_lock(key = "order:#args[0]")]
async fn locked_5(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:#root.args[0]"" `#root.args[0]` is plain text here: write `{order_id}` for the argument, or `key("order:#root.args[0]")`
#[redis_lock(key = "order:#root.args[0]")]
async fn locked_6(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:#root.target"" `#root.target` is plain text here: write `{order_id}` for the argument, or `key("order:#root.target")`
#[redis_lock(key = "order:#root.target")]
async fn locked_7(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:$orderId"" `$orderId` is plain text here: write `{order_id}` for the argument, or `key("order:$orderId")`
#[redis_lock(key = "order:$orderId")]
async fn locked_8(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:$order_id"" `$order_id` is plain text here: write `{order_id}` for the argument, or `key("order:$order_id")`
#[redis_lock(key = "order:$order_id")]
async fn locked_9(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:${{orderId}}"" `${orderId}` is plain text here: write `{order_id}` for the argument, or `key("order:${{orderId}}")`
#[redis_lock(key = "order:${{orderId}}")]
async fn locked_10(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:$1"" `$1` is plain text here: write `{order_id}` for the argument, or `key("order:$1")`
#[redis_lock(key = "order:$1")]
async fn locked_11(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:%s"" `%s` is plain text here: write `{order_id}` for the argument, or `key("order:%s")`
#[redis_lock(key = "order:%s")]
async fn locked_12(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:%d"" `%d` is plain text here: write `{order_id}` for the argument, or `key("order:%d")`
#[redis_lock(key = "order:%d")]
async fn locked_13(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:%1$s"" `%1$s` is plain text here: write `{order_id}` for the argument, or `key("order:%1$s")`
#[redis_lock(key = "order:%1$s")]
async fn locked_14(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:%(order_id)s"" `%(order_id)s` is plain text here: write `{order_id}` for the argument, or `key("order:%(order_id)s")`
#[redis_lock(key = "order:%(order_id)s")]
async fn locked_15(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order::order_id"" `order_id` is plain text here: write `{order_id}` for the argument, or `key("order::order_id")`
#[redis_lock(key = "order::order_id")]
async fn locked_16(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order/:order_id"" `:order_id` is plain text here: write `{order_id}` for the argument, or `key("order/:order_id")`
#[redis_lock(key = "order/:order_id")]
async fn locked_17(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:<order_id>"" `<order_id>` is plain text here: write `{order_id}` for the argument, or `key("order:<order_id>")`
#[redis_lock(key = "order:<order_id>")]
async fn locked_18(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:<int:order_id>"" `<int:order_id>` is plain text here: write `{order_id}` for the argument, or `key("order:<int:order_id>")`
#[redis_lock(key = "order:<int:order_id>")]
async fn locked_19(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:@order_id"" `@order_id` is plain text here: write `{order_id}` for the argument, or `key("order:@order_id")`
#[redis_lock(key = "order:@order_id")]
async fn locked_20(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:?"" `?` is plain text here: write `{order_id}` for the argument, or `key("order:?")`
#[redis_lock(key = "order:?")]
async fn locked_21(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:{{order_id}}"" `{{order_id}}` is plain text here: write `{order_id}` for the argument, or `key("order:{{order_id}}")`
#[redis_lock(key = "order:{{order_id}}")]
async fn locked_22(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:{{orderId}}"" `{{orderId}}` is plain text here: write `{order_id}` for the argument, or `key("order:{{orderId}}")`
#[redis_lock(key = "order:{{orderId}}")]
async fn locked_23(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:{{ order_id }}"" `order_id` is plain text here: write `{order_id}` for the argument, or `key("order:{{ order_id }}")`
#[redis_lock(key = "order:{{ order_id }}")]
async fn locked_24(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order_id"" `order_id` is plain text here: write `{order_id}` for the argument, or `key("order_id")`
#[redis_lock(key = "order_id")]
async fn locked_25(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:order_id"" `order_id` is plain text here: write `{order_id}` for the argument, or `key("order:order_id")`
#[redis_lock(key = "order:order_id")]
async fn locked_26(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:orderId"" `orderId` is plain text here: write `{order_id}` for the argument, or `key("order:orderId")`
#[redis_lock(key = "order:orderId")]
async fn locked_27(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order-ID"" `order-ID` is plain text here: write `{order_id}` for the argument, or `key("order-ID")`
#[redis_lock(key = "order-ID")]
async fn locked_28(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""ORDER_ID"" `ORDER_ID` is plain text here: write `{order_id}` for the argument, or `key("ORDER_ID")`
#[redis_lock(key = "ORDER_ID")]
async fn locked_29(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""orderid"" `orderid` is plain text here: write `{order_id}` for the argument, or `key("orderid")`
#[redis_lock(key = "orderid")]
async fn locked_30(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:[order_id]"" `order_id` is plain text here: write `{order_id}` for the argument, or `key("order:[order_id]")`
#[redis_lock(key = "order:[order_id]")]
async fn locked_31(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR ""order:#order_id"" `#order_id` is plain text here: write `{order_id}`
//~ ERROR ""order:user_id"" `user_id` is plain text here: write `{user_id}`
#[redis_lock(keys = ["order:#order_id", "order:user_id", "all"])]
async fn several(order_id: u64, user_id: u64) -> Result<u64, LockError> {
    Ok(order_id + user_id)
}

//~ ERROR ""transfer:#from:#to"" `#from` is plain text here: write `{from}`
//~ ERROR ""transfer:#from:#to"" `#to` is plain text here: write `{to}`
#[redis_lock(key = "transfer:#from:#to")]
async fn two(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

//~ ERROR ""{shop}:#order_id"" `#order_id` is plain text here: write `{order_id}`
#[redis_lock(key = "{shop}:#order_id")]
async fn beside(shop: &str, order_id: u64) -> Result<u64, LockError> {
    Ok(order_id + shop.len() as u64)
}

struct Orders;

impl Orders {
    //~ ERROR ""order:#id"" `#id` is plain text here: write `{self.id}`
    #[redis_lock(key = "order:#id")]
    async fn method(&self) -> Result<(), LockError> {
        Ok(())
    }
}

struct Path<T>(T);

//~ ERROR ""order:<id>"" `<id>` is plain text here: write `{id}`
#[redis_lock(key = "order:<id>")]
async fn binding(Path(id): Path<u64>) -> Result<u64, LockError> {
    Ok(id)
}

//~ ERROR ""report"" `report` is plain text here: write `{report}`
#[redis_lock(key = "report", blocking)]
fn blocking(report: u64) -> Result<u64, LockError> {
    Ok(report)
}

fn main() {
    drop(locked_0(1));
    drop(locked_1(1));
    drop(locked_2(1));
    drop(locked_3(1));
    drop(locked_4(1));
    drop(locked_5(1));
    drop(locked_6(1));
    drop(locked_7(1));
    drop(locked_8(1));
    drop(locked_9(1));
    drop(locked_10(1));
    drop(locked_11(1));
    drop(locked_12(1));
    drop(locked_13(1));
    drop(locked_14(1));
    drop(locked_15(1));
    drop(locked_16(1));
    drop(locked_17(1));
    drop(locked_18(1));
    drop(locked_19(1));
    drop(locked_20(1));
    drop(locked_21(1));
    drop(locked_22(1));
    drop(locked_23(1));
    drop(locked_24(1));
    drop(locked_25(1));
    drop(locked_26(1));
    drop(locked_27(1));
    drop(locked_28(1));
    drop(locked_29(1));
    drop(locked_30(1));
    drop(locked_31(1));
    drop((several(1, 2), two(1, 2), beside("", 1), Orders.method(), binding(Path(1)), blocking(1)));
}
