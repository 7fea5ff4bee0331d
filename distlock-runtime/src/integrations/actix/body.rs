//! A request's body under a lock.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::HttpMessage;
use actix_web::dev::{Payload, ServiceRequest};
use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use futures_core::Stream;

use crate::integrations::http::arrival::{Arrival, TooLate};
use crate::integrations::http::rule::Rule;

/// Wraps the body that the request's handler is to have, and returns what is known of its coming;
/// `None` if there is none to come.
pub(crate) fn arriving<R, A>(
    request: &mut ServiceRequest,
    rule: &Rule<R, A>,
) -> Option<Arc<Arrival>> {
    let inner = match request.take_payload() {
        Payload::None => return None,
        inner => inner,
    };
    let arrival = Arrival::new(rule.manager(), rule.body_timeout);
    let payload = Box::pin(Arriving { inner, arrival: arrival.clone() });
    request.set_payload(Payload::Stream { payload });
    Some(arrival)
}

struct Arriving {
    inner: Payload,
    arrival: Arc<Arrival>,
}

impl Stream for Arriving {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let late = |late| {
            let error = std::io::Error::new(std::io::ErrorKind::TimedOut, late);
            Poll::Ready(Some(Err(PayloadError::Io(error))))
        };
        if self.arrival.is_late() {
            return late(TooLate);
        }
        match Pin::new(&mut self.inner).poll_next(cx) {
            Poll::Pending => match self.arrival.awaited(cx.waker()) {
                Ok(()) => Poll::Pending,
                Err(error) => late(error),
            },
            Poll::Ready(piece) => {
                if !matches!(piece, Some(Ok(_))) {
                    self.arrival.over();
                } else {
                    self.arrival.piece();
                }
                Poll::Ready(piece)
            }
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.arrival.over();
    }
}
