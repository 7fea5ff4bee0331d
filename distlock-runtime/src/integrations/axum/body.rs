//! A request's body under a lock.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

use crate::integrations::http::arrival::{Arrival, TooLate};
use crate::integrations::http::rule::Rule;

/// The body as the handler is to have it, and what is known of its coming; `None` if there is none
/// to come.
pub(crate) fn arriving<R, A>(body: Body, rule: &Rule<R, A>) -> (Body, Option<Arc<Arrival>>) {
    if body.is_end_stream() {
        return (body, None);
    }
    let arrival = Arrival::new(rule.manager(), rule.body_timeout);
    let body = Arriving { inner: body, arrival: arrival.clone() };
    (Body::new(body), Some(arrival))
}

struct Arriving {
    inner: Body,
    arrival: Arc<Arrival>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = ::axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ::axum::Error>>> {
        if self.arrival.is_late() {
            return Poll::Ready(Some(Err(::axum::Error::new(TooLate))));
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Pending => match self.arrival.awaited(cx.waker()) {
                Ok(()) => Poll::Pending,
                Err(late) => Poll::Ready(Some(Err(::axum::Error::new(late)))),
            },
            Poll::Ready(frame) => {
                if !matches!(frame, Some(Ok(_))) || self.inner.is_end_stream() {
                    self.arrival.over();
                } else {
                    self.arrival.piece();
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.arrival.over();
    }
}
