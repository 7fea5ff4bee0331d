//! gRPC calls over one HTTP/2 connection: framing, status codes, and the authentication token.

use std::future::poll_fn;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use prost::Message;

use crate::fault::EtcdFault;
use crate::proto::{AuthenticateRequest, AuthenticateResponse, TxnRequest, TxnResponse, decode};

pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(crate) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(crate) const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// The length of the prefix of each message: a byte that says whether it is compressed, and its length.
const PREFIX: usize = 5;
/// The longest message that is accepted. It is reached by a lock with a huge number of waiters.
const LONGEST_MESSAGE: usize = 64 << 20;

/// The client side of a connection. A clone uses the same connection.
#[derive(Clone)]
pub(crate) struct GrpcChannel {
    pub(crate) send: SendRequest<Bytes>,
    /// The host and port, as sent to the server.
    pub(crate) authority: String,
    /// The user whose token the calls carry.
    pub(crate) user: Option<Arc<EtcdUser>>,
}

impl GrpcChannel {
    /// Calls a method with one message, and returns its one response. Signs in again if the token has expired.
    pub(crate) async fn call<R: Message + Default>(
        &self,
        path: &'static str,
        message: &impl Message,
    ) -> Result<R, EtcdFault> {
        let token = self.token_number();
        let answer = self.once(path, message).await;
        match self.must_repeat(&answer, token).await? {
            true => self.once(path, message).await,
            false => answer,
        }
    }

    async fn once<R: Message + Default>(
        &self,
        path: &'static str,
        message: &impl Message,
    ) -> Result<R, EtcdFault> {
        self.ready().await?.send(path, slice::from_ref(message))?.only().await
    }

    /// Carries out a transaction.
    pub(crate) async fn txn(&self, txn: &TxnRequest) -> Result<TxnResponse, EtcdFault> {
        self.call::<TxnResponse>(TXN, txn).await?.checked()
    }

    /// Returns whether a call must be repeated. That is so if its token had expired: the call had no effect, and there is
    /// a newer token now.
    pub(crate) async fn must_repeat<T>(
        &self,
        answer: &Result<T, EtcdFault>,
        token: u64,
    ) -> Result<bool, EtcdFault> {
        match answer.as_ref().is_err_and(|fault| fault.signed_out) {
            true => self.sign_in_again(token).await,
            false => Ok(false),
        }
    }

    /// Returns the number of the present token.
    pub(crate) fn token_number(&self) -> u64 {
        self.user.as_ref().map_or(0, |user| user.token().number)
    }

    /// Replaces the token with this number, unless a concurrent call has done so. Returns `false` if there is
    /// no user to sign in.
    pub(crate) async fn sign_in_again(&self, expired: u64) -> Result<bool, EtcdFault> {
        let Some(user) = &self.user else { return Ok(false) };
        let _guard = user.signing_in.lock().await;
        if self.token_number() == expired {
            self.sign_in(user).await?;
        }
        Ok(true)
    }

    async fn sign_in(&self, user: &EtcdUser) -> Result<(), EtcdFault> {
        let (name, password) = (user.name.clone(), user.password.clone());
        let request = AuthenticateRequest { name, password };
        let unsigned = Self { user: None, ..self.clone() };
        let asked = unsigned.ready().await?.send(AUTHENTICATE, &[request])?;
        let token = match asked.only::<AuthenticateResponse>().await {
            // The server has authentication switched off.
            Err(fault) if fault.fault.reason().contains("not enabled") => None,
            answer => {
                let mut token =
                    HeaderValue::from_str(&answer?.token).map_err(|_| EtcdFault::unexpected())?;
                token.set_sensitive(true);
                Some(token)
            }
        };
        let mut present = user.token();
        present.number += 1;
        present.text = token;
        Ok(())
    }

    /// Resolves when a call can be sent without waiting.
    pub(crate) async fn ready(&self) -> Result<ReadyCall<'_>, EtcdFault> {
        let send = self.send.clone().ready().await?;
        Ok(ReadyCall { channel: self, send })
    }
}

/// The user whose token the calls carry.
pub(crate) struct EtcdUser {
    name: String,
    password: String,
    token: Mutex<AuthToken>,
    /// Lets only one call sign in. The others wait for its token.
    signing_in: tokio::sync::Mutex<()>,
}

/// The token that the server issued for the user and the password.
#[derive(Default)]
struct AuthToken {
    number: u64,
    text: Option<HeaderValue>,
}

impl EtcdUser {
    /// Returns a user that has not signed in yet.
    pub(crate) fn new(name: &str, password: &str) -> Self {
        Self {
            name: name.to_owned(),
            password: password.to_owned(),
            token: Mutex::default(),
            signing_in: tokio::sync::Mutex::default(),
        }
    }

    fn token(&self) -> MutexGuard<'_, AuthToken> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permission to send one call without waiting.
pub(crate) struct ReadyCall<'a> {
    channel: &'a GrpcChannel,
    send: SendRequest<Bytes>,
}

impl ReadyCall<'_> {
    /// Sends a call with all its messages.
    pub(crate) fn send(
        self,
        path: &'static str,
        messages: &[impl Message],
    ) -> Result<ResponseStream, EtcdFault> {
        let (mut body, answers) = self.open(path)?;
        let framed: Vec<u8> = messages.iter().flat_map(frame).collect();
        body.send_data(framed.into(), true)?;
        Ok(answers)
    }

    /// Opens a call whose messages are sent one by one.
    pub(crate) fn open(
        mut self,
        path: &'static str,
    ) -> Result<(SendStream<Bytes>, ResponseStream), EtcdFault> {
        let uri = format!("http://{}{path}", self.channel.authority);
        let mut request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(uri)
            .header("te", "trailers")
            .header("content-type", "application/grpc");
        let token = self.channel.user.as_ref().and_then(|user| user.token().text.clone());
        if let Some(token) = token {
            request = request.header("token", token);
        }
        if path == WATCH {
            // Makes a member that loses contact to the others end the call.
            request = request.header("hasleader", "true");
        }
        let request =
            request.body(()).map_err(|_| EtcdFault::refused("the host cannot be sent"))?;
        let (response, body) = self.send.send_request(request, false)?;
        Ok((body, ResponseStream { stage: ResponseStage::Called(response), buffer: Vec::new() }))
    }
}

/// The responses to a call. Dropping it before the last one cancels the call.
pub(crate) struct ResponseStream {
    stage: ResponseStage,
    buffer: Vec<u8>,
}

enum ResponseStage {
    Called(ResponseFuture),
    Answered(RecvStream),
}

impl ResponseStream {
    /// Returns the response to a call that has exactly one.
    pub(crate) async fn only<R: Message + Default>(mut self) -> Result<R, EtcdFault> {
        let message = self.next().await?.ok_or_else(EtcdFault::unexpected)?;
        // The status follows, and must report success.
        match self.next::<R>().await? {
            None => Ok(message),
            Some(_) => Err(EtcdFault::unexpected()),
        }
    }

    /// Returns the next response, or `None` if the call has ended with success.
    pub(crate) async fn next<R: Message + Default>(&mut self) -> Result<Option<R>, EtcdFault> {
        if let ResponseStage::Called(response) = &mut self.stage {
            let (head, body) = response.await?.into_parts();
            if head.headers.contains_key("grpc-status") {
                check_status(&head.headers)?;
                return Ok(None);
            }
            if !head.status.is_success() {
                let words = format!("HTTP status {}: is this etcd?", head.status.as_u16());
                return Err(EtcdFault::unreachable(words));
            }
            self.stage = ResponseStage::Answered(body);
        }
        let ResponseStage::Answered(body) = &mut self.stage else { return Ok(None) };
        loop {
            if let Some(message) = unframe(&mut self.buffer)? {
                return Ok(Some(message));
            }
            let Some(data) = body.data().await else { break };
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            self.buffer.extend_from_slice(&data);
        }
        let trailers = poll_fn(|cx| body.poll_trailers(cx)).await?;
        check_status(&trailers.ok_or_else(EtcdFault::unexpected)?)?;
        Ok(None)
    }
}

/// Returns the bytes of a message with its prefix.
pub(crate) fn frame(message: &impl Message) -> Vec<u8> {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    let mut framed = Vec::with_capacity(PREFIX + message.encoded_len());
    framed.push(0);
    framed.extend_from_slice(&length.to_be_bytes());
    message.encode_raw(&mut framed);
    framed
}

/// Removes the first message from the buffer and returns it, if all of it has arrived.
fn unframe<M: Message + Default>(buffer: &mut Vec<u8>) -> Result<Option<M>, EtcdFault> {
    let Some(&[compressed, a, b, c, d]) = buffer.first_chunk::<PREFIX>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if compressed != 0 || length > LONGEST_MESSAGE {
        return Err(EtcdFault::unexpected());
    }
    let Some(bytes) = buffer.get(PREFIX..PREFIX + length) else { return Ok(None) };
    let message = decode(bytes)?;
    buffer.drain(..PREFIX + length);
    Ok(Some(message))
}

/// Fails unless the headers report success.
fn check_status(headers: &HeaderMap) -> Result<(), EtcdFault> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match text("grpc-status").and_then(|code| code.parse().ok()) {
        Some(0) => Ok(()),
        Some(code) => {
            Err(EtcdFault::of_status(code, text("grpc-message").unwrap_or("no reason given")))
        }
        None => Err(EtcdFault::unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_pieces() {
        let mut sent = frame(&b"one".to_vec());
        sent.extend(frame(&Vec::new()));
        sent.extend(frame(&b"three".to_vec()));
        let (mut buffer, mut messages) = (Vec::new(), Vec::new());
        for byte in sent {
            buffer.push(byte);
            while let Some(message) = unframe::<Vec<u8>>(&mut buffer).expect("a frame") {
                messages.push(message);
            }
        }
        assert_eq!(messages, [&b"one"[..], b"", b"three"]);
        assert!(buffer.is_empty());
        assert!(unframe::<()>(&mut vec![1, 0, 0, 0, 0]).is_err(), "compressed");
    }
}
