async fn pay(order_id: u64) -> Result<Receipt, PayError> {
    let __error = '__failed: {
        let __key = {
            let __text = &::distlock::__private::KeyText::new(
                &[::core::option::Option::None],
            );
            #[allow(clippy::shadow_reuse)]
            let order_id = __text.value(&order_id, 0);
            __text.key("order:{order_id}", ::core::format_args!("order:{order_id}"))
        };
        let __request = ::distlock::__private::request(
                &match ::distlock::__private::global() {
                    ::core::result::Result::Ok(__manager) => __manager,
                    ::core::result::Result::Err(__error) => break '__failed __error,
                },
                __key,
                ::core::concat!(::core::module_path!(), "::", "pay"),
            )
            .ttl(::core::time::Duration::from_secs(5))
            .wait(::core::time::Duration::from_secs(2));
        let mut __guard;
        let __future = async move {
            if let ::core::option::Option::Some(__return) = ::core::option::Option::None::<
                Result<Receipt, PayError>,
            > {
                return __return;
            }
            { charge(order_id).await }
        };
        let __body = ::core::pin::pin!(__future);
        __guard = match __request.acquire().await {
            ::core::result::Result::Ok(__guard) => __guard,
            ::core::result::Result::Err(__error) => break '__failed __error,
        };
        let __result = {
            use ::distlock::__private::LetGo as _;
            ::distlock::__private::Output::<
                Result<Receipt, PayError>,
            >::hold(&mut __guard, __body)
                .await
        };
        match __result {
            ::core::result::Result::Ok(__output) => {
                return __output;
            }
            ::core::result::Result::Err(__error) => __error,
        }
    };
    return <Result<
        Receipt,
        PayError,
    > as ::distlock::__private::FromLockError>::from_lock_error(__error);
}
