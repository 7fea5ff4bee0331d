//! A lock around the requests of a tower service whose error can be made from a [`LockError`]: a client, a worker of a
//! job queue, your own service.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, mem};

use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;
use tower_layer::Layer;
use tower_service::Service;

use crate::error::LockError;
use crate::manager::LockManager;
use crate::request::LockRequest;

/// Runs a service's requests under locks whose keys are made from the requests.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// # macro_rules! key { ($($t:tt)*) => { distlock::LockKey::from(format!($($t)*)) } }
/// use std::time::Duration;
///
/// use distlock::{LockError, LockManager};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// struct Job {
///     customer: u64,
/// }
/// # #[derive(Clone)]
/// # struct Work;
/// # impl Service<Job> for Work {
/// #     type Response = u64;
/// #     type Error = LockError;
/// #     type Future = std::future::Ready<Result<u64, LockError>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), LockError>> {
/// #         std::task::Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, job: Job) -> Self::Future {
/// #         std::future::ready(Ok(job.customer))
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// # let work = Work;
/// let one_at_a_time = distlock::tower::LockLayer::new(locks)
///     .key_fn(|job: &Job| key!("customer:{}", job.customer))
///     .with(|request| request.wait(Duration::from_secs(2)));
/// let mut work = one_at_a_time.layer(work);
/// assert_eq!(work.call(Job { customer: 7 }).await?, 7);
/// # Ok(())
/// # }
/// ```
///
/// If the lock cannot be taken, the service is not called. The error is `S::Error`, which has to be
/// `From<LockError>`. If the lease is lost, the service's future is dropped at its next await. The lock ends
/// when this future is done; a response that streams is sent without the lock.
///
/// The error of a tonic server and of axum's routes is `Infallible`: they answer every error themselves, so
/// a failed lock cannot pass through them. On a method of a tonic service use the attribute, whose
/// `Result<_, tonic::Status>` works with the feature `tonic`. Or put an adapter around the service whose
/// error is a `LockError`, and answer this with `Status::from(error).into_http()` outside of this layer.
///
/// For routes of axum, the layer of the feature `axum` takes its key from the path: `distlock::axum::LockLayer`.
///
/// # Cancel safety
///
/// When the caller drops the future, the service's is dropped, and then the lock is freed.
#[must_use = "a layer does nothing before it is given to a service"]
pub struct LockLayer<K = Unkeyed> {
    requests: RequestFactory,
    key: K,
}

/// Marks a [`LockLayer`] that has no key yet. Call [`key_fn`](LockLayer::key_fn) before it is given a service.
#[derive(Debug, Clone, Copy)]
pub struct Unkeyed(());

/// A function that makes a key from a request.
pub struct KeyFn<Req>(Arc<MakeKey<Req>>);

/// Implemented for layers that have a key: those with a [`key_fn`](LockLayer::key_fn).
#[diagnostic::on_unimplemented(
    message = "this layer does not say what to lock",
    label = "it has no key",
    note = "add `.key_fn(|request: &Request| key!(\"order:{{}}\", request.order_id))` before the layer is given a service"
)]
pub trait HasKey {
    /// The input of the key function.
    type Request;

    /// Returns the key function.
    #[doc(hidden)]
    fn key_fn(&self) -> KeyFn<Self::Request>;
}

/// Required to call `layer`. No type implements it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this layer does not say what to lock",
    label = "it has no key",
    note = "add `.key_fn(|request: &Request| key!(\"order:{{}}\", request.order_id))` before the layer is given a service"
)]
pub trait KeyFor<S> {}

impl<Req> HasKey for KeyFn<Req> {
    type Request = Req;

    fn key_fn(&self) -> Self {
        self.clone()
    }
}

type MakeKey<Req> = dyn Fn(&Req) -> Option<LockKey> + Send + Sync;

/// Makes the requests for locks, all with the same options.
///
/// Each request begins with the defaults of the manager.
#[derive(Clone)]
struct RequestFactory {
    manager: LockManager,
    caller: &'static Location<'static>,
    set: Arc<dyn Fn(LockRequest) -> LockRequest + Send + Sync>,
}

impl LockLayer {
    /// Makes a layer with the manager's defaults, which needs a [`key_fn`](Self::key_fn). The name of its locks is the
    /// file and line of this call, unless [`with`](Self::with) sets another.
    #[track_caller]
    pub fn new(manager: LockManager) -> Self {
        let requests = RequestFactory {
            manager,
            caller: Location::caller(),
            set: Arc::new(|request| request),
        };
        Self { requests, key: Unkeyed(()) }
    }

    /// Reports a missing key with a clear message, where [`Layer::layer`] would only report a missing method.
    #[doc(hidden)]
    pub fn layer<S>(&self, inner: S) -> S
    where
        Unkeyed: KeyFor<S>,
    {
        inner
    }

    /// Sets the function that makes the key of a request: a [`LockKey`], or an `Option` of one. With `None` the request is
    /// not locked. Make the key with `key!`, which encodes the client's text.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # macro_rules! key { ($($t:tt)*) => { distlock::LockKey::from(format!($($t)*)) } }
    /// struct Job {
    ///     customer: Option<u64>,
    /// }
    /// # let locks = distlock::LockManager::in_memory();
    /// // A job without a customer runs without a lock.
    /// let layer = distlock::tower::LockLayer::new(locks).key_fn(|job: &Job| {
    ///     job.customer.map(|customer| key!("customer:{customer}"))
    /// });
    /// ```
    pub fn key_fn<Req, K: Into<Option<LockKey>>>(
        self,
        key: impl Fn(&Req) -> K + Send + Sync + 'static,
    ) -> LockLayer<KeyFn<Req>> {
        LockLayer {
            requests: self.requests,
            key: KeyFn(Arc::new(move |request| key(request).into())),
        }
    }
}

impl<K> LockLayer<K> {
    /// Sets the options of the lock, all of [`LockRequest`] at once. The last of several calls counts.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    ///
    /// # let locks = distlock::LockManager::in_memory();
    /// let layer = distlock::tower::LockLayer::new(locks).with(|request| {
    ///     request.ttl(Duration::from_secs(5)).wait(Duration::from_secs(2)).name("job")
    /// });
    /// ```
    pub fn with(
        mut self,
        set: impl Fn(LockRequest) -> LockRequest + Send + Sync + 'static,
    ) -> Self {
        self.requests.set = Arc::new(set);
        self
    }
}

impl<S, K: HasKey> Layer<S> for LockLayer<K> {
    type Service = LockService<S, K::Request>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService { inner, requests: self.requests.clone(), key: self.key.key_fn() }
    }
}

/// A service whose requests run under locks; from a [`LockLayer`].
pub struct LockService<S, Req> {
    inner: S,
    requests: RequestFactory,
    key: KeyFn<Req>,
}

impl<S, Req> Service<Req> for LockService<S, Req>
where
    S: Service<Req, Error: From<LockError>, Response: Send, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
    Req: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let lock = (self.key.0)(&request).map(|key| self.requests.lock(key));
        // The service that is ready handles this request, and its clone the next one.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        Box::pin(async move {
            match lock {
                Some(lock) => lock.run(async move { inner.call(request).await }).await?,
                None => inner.call(request).await,
            }
        })
    }
}

impl RequestFactory {
    /// Returns the request for the lock of a key.
    fn lock(&self, key: LockKey) -> LockRequest {
        let Self { manager, caller, set } = self;
        set(LockRequest::new(manager.clone(), OneOrMany::One(key), caller))
    }
}

impl<Req> Clone for KeyFn<Req> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone> Clone for LockLayer<K> {
    fn clone(&self) -> Self {
        Self { requests: self.requests.clone(), key: self.key.clone() }
    }
}

impl<S: Clone, Req> Clone for LockService<S, Req> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), requests: self.requests.clone(), key: self.key.clone() }
    }
}

impl<K> fmt::Debug for LockLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer").field("manager", &self.requests.manager).finish_non_exhaustive()
    }
}

impl<Req> fmt::Debug for KeyFn<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFn")
    }
}

impl<S: fmt::Debug, Req> fmt::Debug for LockService<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService").field("inner", &self.inner).finish_non_exhaustive()
    }
}
