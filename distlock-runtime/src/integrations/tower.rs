//! A lock around the requests of a tower service whose error can be made from a
//! [`LockError`]: a client, a worker of a job queue, your own service.

use std::fmt;
use std::future::Future;
use std::mem;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::error::LockError;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::one_or_many::OneOrMany;
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
/// If the lock cannot be taken the service is not called; the error is `S::Error`, which has to be
/// `From<LockError>`. If the lease is lost the service's future is dropped at its next await. The lock ends
/// when that future is done; a response that streams is sent without it.
///
/// The error of a tonic server and of axum's routes is `Infallible`: they answer every error themselves, so
/// a failed lock has no way through them. On a method of a tonic service use the attribute, whose
/// `Result<_, tonic::Status>` works with the feature `tonic`; or put an adapter around the service, whose
/// error is a `LockError`, and answer that with `Status::from(error).into_http()` outside of this layer.
///
/// For routes of axum there is a layer that takes its key from the path: with the feature `axum`,
/// `distlock::axum::LockLayer`.
///
/// # Cancel safety
///
/// When the caller drops the future, the service's is dropped, and then the lock is freed.
#[must_use = "a layer does nothing before it is given to a service"]
pub struct LockLayer<K = Unkeyed> {
    asks: Asks,
    key: K,
}

/// A [`LockLayer`] that does not know yet what to lock: it is a layer once it has a
/// [`key_fn`](LockLayer::key_fn).
#[derive(Debug, Clone, Copy)]
pub struct Unkeyed(());

/// Makes a key from a request.
pub struct KeyFn<Req>(Arc<MakeKey<Req>>);

/// Implemented by layers that know what to lock: those with a [`key_fn`](LockLayer::key_fn).
#[diagnostic::on_unimplemented(
    message = "this layer does not say what to lock",
    label = "it has no key",
    note = "add `.key_fn(|request: &Request| key!(\"order:{{}}\", request.order_id))` before the layer is given a service"
)]
pub trait HasKey {
    /// The input of the key function.
    type Request;

    /// The key function.
    #[doc(hidden)]
    fn key_fn(&self) -> KeyFn<Self::Request>;
}

/// Required for calling `layer`. No type implements it.
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

/// How a request for a lock is made.
#[derive(Clone)]
struct Asks {
    manager: LockManager,
    caller: &'static Location<'static>,
    set: Arc<dyn Fn(LockRequest) -> LockRequest + Send + Sync>,
}

impl LockLayer {
    /// A layer with the manager's defaults, which needs a [`key_fn`](Self::key_fn). The locks have file and
    /// line of this call for a name, unless [`with`](Self::with) sets another.
    #[track_caller]
    pub fn new(manager: LockManager) -> Self {
        let asks = Asks { manager, caller: Location::caller(), set: Arc::new(|request| request) };
        Self { asks, key: Unkeyed(()) }
    }

    /// Reports a missing key with a clear message, where [`Layer::layer`] would only report a missing method.
    #[doc(hidden)]
    pub fn layer<S>(&self, inner: S) -> S
    where
        Unkeyed: KeyFor<S>,
    {
        inner
    }

    /// What to lock, from the request: a [`LockKey`], or an `Option` of one; with `None` the request is not
    /// locked. Make it with `key!`, which encodes what a client may have written.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # macro_rules! key { ($($t:tt)*) => { distlock::LockKey::from(format!($($t)*)) } }
    /// struct Job {
    ///     customer: Option<u64>,
    /// }
    /// # let locks = distlock::LockManager::in_memory();
    /// // What concerns no customer runs without a lock.
    /// let layer = distlock::tower::LockLayer::new(locks).key_fn(|job: &Job| {
    ///     job.customer.map(|customer| key!("customer:{customer}"))
    /// });
    /// ```
    pub fn key_fn<Req, K: Into<Option<LockKey>>>(
        self,
        key: impl Fn(&Req) -> K + Send + Sync + 'static,
    ) -> LockLayer<KeyFn<Req>> {
        LockLayer { asks: self.asks, key: KeyFn(Arc::new(move |request| key(request).into())) }
    }
}

impl<K> LockLayer<K> {
    /// Sets the options of the lock, all of [`LockRequest`] at once. Of several calls the
    /// last one counts.
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
        self.asks.set = Arc::new(set);
        self
    }
}

impl<S, K: HasKey> Layer<S> for LockLayer<K> {
    type Service = LockService<S, K::Request>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService { inner, asks: self.asks.clone(), key: self.key.key_fn() }
    }
}

/// A service whose requests run under locks; from a [`LockLayer`].
pub struct LockService<S, Req> {
    inner: S,
    asks: Asks,
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
        let lock = (self.key.0)(&request).map(|key| self.asks.lock(key));
        // The one that is ready is called, and the clone gets ready for the next request.
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

impl Asks {
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
        Self { asks: self.asks.clone(), key: self.key.clone() }
    }
}

impl<S: Clone, Req> Clone for LockService<S, Req> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), asks: self.asks.clone(), key: self.key.clone() }
    }
}

impl<K> fmt::Debug for LockLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer").field("manager", &self.asks.manager).finish_non_exhaustive()
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
