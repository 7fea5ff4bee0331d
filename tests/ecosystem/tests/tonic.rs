//! A locked method of a gRPC service: its errors are statuses.

use std::convert::Infallible;
use std::time::Duration;

use distlock::testing::Locks;
use distlock::tower::LockLayer;
use distlock::{BackendKind, LockError, LockManager, key, redis_lock};
use tonic::body::Body;
use tonic::{Code, Request, Response, Status};
use tower::{Layer, Service, ServiceExt, service_fn};

struct Payments {
    locks: LockManager,
}

impl Payments {
    #[redis_lock(key = key!("order:{}", request.get_ref()), manager = self.locks, ttl = "10s")]
    async fn pay(&self, request: Request<u64>) -> Result<Response<u64>, Status> {
        match request.into_inner() {
            0 => Err(Status::not_found("no such order")),
            order => {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(Response::new(order))
            }
        }
    }
}

fn pushback(status: &Status) -> Option<u64> {
    status.metadata().get("grpc-retry-pushback-ms")?.to_str().ok()?.parse().ok()
}

/// Fault: FW5.
#[tokio::test(start_paused = true)]
async fn each_error_has_its_code_and_no_key_is_told() {
    let locks = Locks::new();
    let service = Payments { locks: locks.manager() };
    assert_eq!(service.pay(Request::new(7)).await.expect("it is free").into_inner(), 7);
    assert_eq!(service.pay(Request::new(0)).await.expect_err("its own").code(), Code::NotFound);

    let held = locks.held_elsewhere("order:7777");
    let busy = service.pay(Request::new(7777)).await.expect_err("it is held");
    assert_eq!(busy.code(), Code::Aborted);
    assert!((1000..=2000).contains(&pushback(&busy).expect("when to try again")), "{busy:?}");
    assert!(!format!("{busy} {busy:?}").contains("7777"), "{busy:?}");
    // What the server calls its locks, and how long they are held, is its own affair.
    assert_eq!(busy.message(), "Another request is at work on this. Try again later.");
    let source =
        std::error::Error::source(&busy).and_then(|source| source.downcast_ref::<LockError>());
    assert!(source.is_some_and(LockError::is_busy), "{source:?}");
    held.end();

    let refused = locks.refuse(BackendKind::Refused);
    let unavailable = service.pay(Request::new(7)).await.expect_err("it refuses");
    assert_eq!(unavailable.code(), Code::Unavailable);
    assert!(pushback(&unavailable).is_some());
    refused.end();

    let paid = service.pay(Request::new(7));
    let (lost, ()) = tokio::join!(paid, async {
        locks.until_held("order:7").await;
        locks.lose("order:7");
    });
    let lost = lost.expect_err("it was lost");
    assert_eq!((lost.code(), pushback(&lost)), (Code::Aborted, None));

    let of = |error: LockError| Status::from(error).code();
    let invalid = service.locks.lock("").acquire().await.expect_err("no key");
    assert_eq!(of(invalid), Code::InvalidArgument);
    let invalid = service.locks.lock(key!("k")).ttl(Duration::ZERO).acquire().await;
    assert_eq!(of(invalid.expect_err("no ttl")), Code::Internal);
    assert_eq!(
        (of(LockError::Closed), of(LockError::NotConfigured)),
        (Code::Unavailable, Code::Internal)
    );
}

/// As on the guide's page.
fn locked<S>(
    server: S,
    locks: LockManager,
) -> impl Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let one_at_a_time = LockLayer::new(locks)
        .key_fn(|request: &http::Request<Body>| key!("method:{}", request.uri().path()));
    let locked = one_at_a_time.layer(server.map_err(|never| -> LockError { match never {} }));
    service_fn(move |request| {
        let locked = locked.clone();
        async move {
            let answer = locked.oneshot(request).await;
            Ok(answer.unwrap_or_else(|error| Status::from(error).into_http()))
        }
    })
}

/// Its services have an error that cannot be made from a lock's.
#[tokio::test(start_paused = true)]
async fn a_server_under_a_layer_answers_a_failed_lock_with_a_status() {
    let locks = Locks::new();
    let server = service_fn(async |_: http::Request<Body>| {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let server = locked(server, locks.manager());
    let call = || {
        let request = http::Request::builder().uri("/payments.Payments/Pay");
        server.clone().oneshot(request.body(Body::empty()).expect("a request"))
    };
    let Ok(answer) = call().await;
    assert_eq!(answer.headers().get("grpc-status"), None);
    let _held = locks.held_elsewhere("method:/payments.Payments/Pay");
    let Ok(busy) = call().await;
    assert_eq!(busy.status(), 200, "gRPC has its own");
    let code = busy.headers().get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()));
    assert_eq!(code, Some(Code::Aborted));
    assert!(busy.headers().contains_key("grpc-retry-pushback-ms"));
}
