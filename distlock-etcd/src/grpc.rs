//! Calls of gRPC over one connection of HTTP/2.

use std::future::poll_fn;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use prost::Message;

use crate::fault::Fault;
use crate::proto::{AuthenticateRequest, AuthenticateResponse, TxnRequest, TxnResponse, decode};

pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(crate) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(crate) const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// In front of each message: whether it is compressed, and its length.
const FRAME: usize = 5;
/// The longest message that is taken: that of a lock with very many waiters.
const LONGEST: usize = 64 << 20;

/// A connection on which calls are made.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) send: SendRequest<Bytes>,
    /// The host, as sent to the server.
    pub(crate) authority: String,
    /// The user whose token the calls carry.
    pub(crate) user: Option<Arc<User>>,
}

impl Channel {
    /// Makes a call of one message that is answered with one.
    pub(crate) async fn call<R: Message + Default>(
        &self,
        path: &'static str,
        message: &impl Message,
    ) -> Result<R, Fault> {
        let with = self.signature();
        let answer = self.once(path, message).await;
        match self.was_refused(&answer, with).await? {
            true => self.once(path, message).await,
            false => answer,
        }
    }

    async fn once<R: Message + Default>(
        &self,
        path: &'static str,
        message: &impl Message,
    ) -> Result<R, Fault> {
        self.ready().await?.send(path, slice::from_ref(message))?.only().await
    }

    /// Carries out a transaction.
    pub(crate) async fn txn(&self, txn: &TxnRequest) -> Result<TxnResponse, Fault> {
        self.call::<TxnResponse>(TXN, txn).await?.checked()
    }

    /// Whether the call must be repeated: its token has expired, so the server did nothing, and there is a
    /// newer token now.
    pub(crate) async fn was_refused<T>(
        &self,
        answer: &Result<T, Fault>,
        with: u64,
    ) -> Result<bool, Fault> {
        match answer.as_ref().is_err_and(|fault| fault.signed_out) {
            true => self.sign_in_again(with).await,
            false => Ok(false),
        }
    }

    /// Returns the number of the present token.
    pub(crate) fn signature(&self) -> u64 {
        self.user.as_ref().map_or(0, |user| user.token().number)
    }

    /// Replaces the token with this number, unless a concurrent call has done so. Returns `false` if there is
    /// no user to sign in.
    pub(crate) async fn sign_in_again(&self, ended: u64) -> Result<bool, Fault> {
        let Some(user) = &self.user else { return Ok(false) };
        let _alone = user.signing.lock().await;
        if self.signature() == ended {
            self.sign_in(user).await?;
        }
        Ok(true)
    }

    async fn sign_in(&self, user: &User) -> Result<(), Fault> {
        let (name, password) = (user.name.clone(), user.password.clone());
        let request = AuthenticateRequest { name, password };
        let unsigned = Self { user: None, ..self.clone() };
        let asked = unsigned.ready().await?.send(AUTHENTICATE, &[request])?;
        let token = match asked.only::<AuthenticateResponse>().await {
            // The server has authentication switched off.
            Err(fault) if fault.words.contains("not enabled") => None,
            answer => {
                let mut token =
                    HeaderValue::from_str(&answer?.token).map_err(|_| Fault::unexpected())?;
                token.set_sensitive(true);
                Some(token)
            }
        };
        let mut has = user.token();
        has.number += 1;
        has.text = token;
        Ok(())
    }

    /// Resolves when a call can be sent without waiting.
    pub(crate) async fn ready(&self) -> Result<Ready<'_>, Fault> {
        let send = self.send.clone().ready().await?;
        Ok(Ready { channel: self, send })
    }
}

/// The user whose token the calls carry.
pub(crate) struct User {
    name: String,
    password: String,
    token: Mutex<Token>,
    /// Only one call signs in; the others wait for its token.
    signing: tokio::sync::Mutex<()>,
}

/// Stands for the user and the password.
#[derive(Default)]
struct Token {
    number: u64,
    text: Option<HeaderValue>,
}

impl User {
    /// Nobody has signed in yet.
    pub(crate) fn new(name: &str, password: &str) -> Self {
        Self {
            name: name.to_owned(),
            password: password.to_owned(),
            token: Mutex::default(),
            signing: tokio::sync::Mutex::default(),
        }
    }

    fn token(&self) -> MutexGuard<'_, Token> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call can be sent.
pub(crate) struct Ready<'a> {
    channel: &'a Channel,
    send: SendRequest<Bytes>,
}

impl Ready<'_> {
    /// Sends all of a call.
    pub(crate) fn send(
        self,
        path: &'static str,
        messages: &[impl Message],
    ) -> Result<Answers, Fault> {
        let (mut body, answers) = self.open(path)?;
        let framed: Vec<u8> = messages.iter().flat_map(frame).collect();
        body.send_data(framed.into(), true)?;
        Ok(answers)
    }

    /// Begins a call whose messages are sent one by one.
    pub(crate) fn open(
        mut self,
        path: &'static str,
    ) -> Result<(SendStream<Bytes>, Answers), Fault> {
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
            // A member that is cut off from the others ends the call.
            request = request.header("hasleader", "true");
        }
        let request = request.body(()).map_err(|_| Fault::refused("the host cannot be sent"))?;
        let (response, body) = self.send.send_request(request, false)?;
        Ok((body, Answers { stage: Stage::Called(response), buffer: Vec::new() }))
    }
}

/// The messages with which a call is answered. The call is taken back when this is dropped before its end.
pub(crate) struct Answers {
    stage: Stage,
    buffer: Vec<u8>,
}

enum Stage {
    Called(ResponseFuture),
    Answered(RecvStream),
}

impl Answers {
    /// The message of a call that is answered with one.
    pub(crate) async fn only<R: Message + Default>(mut self) -> Result<R, Fault> {
        let message = self.next().await?.ok_or_else(Fault::unexpected)?;
        // What comes behind it is the status, which has to be that all is well.
        match self.next::<R>().await? {
            None => Ok(message),
            Some(_) => Err(Fault::unexpected()),
        }
    }

    /// The next message; `None` behind the last one of a call that ended well.
    pub(crate) async fn next<R: Message + Default>(&mut self) -> Result<Option<R>, Fault> {
        if let Stage::Called(response) = &mut self.stage {
            let (head, body) = response.await?.into_parts();
            if head.headers.contains_key("grpc-status") {
                status(&head.headers)?;
                return Ok(None);
            }
            if !head.status.is_success() {
                let words = format!("HTTP status {}: is this etcd?", head.status.as_u16());
                return Err(Fault::unreachable(words));
            }
            self.stage = Stage::Answered(body);
        }
        let Stage::Answered(body) = &mut self.stage else { return Ok(None) };
        loop {
            if let Some(message) = unframe(&mut self.buffer)? {
                return decode(&message).map(Some);
            }
            let Some(data) = body.data().await else { break };
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            self.buffer.extend_from_slice(&data);
        }
        let trailers = poll_fn(|cx| body.poll_trailers(cx)).await?;
        status(&trailers.ok_or_else(Fault::unexpected)?)?;
        Ok(None)
    }
}

pub(crate) fn frame(message: &impl Message) -> Vec<u8> {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    let mut framed = Vec::with_capacity(FRAME + message.encoded_len());
    framed.push(0);
    framed.extend_from_slice(&length.to_be_bytes());
    message.encode_raw(&mut framed);
    framed
}

/// Takes the first message, if all of it is there.
fn unframe(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Fault> {
    let Some(&[compressed, a, b, c, d]) = buffer.first_chunk::<FRAME>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if compressed != 0 || length > LONGEST {
        return Err(Fault::unexpected());
    }
    if buffer.len() < FRAME + length {
        return Ok(None);
    }
    let rest = buffer.split_off(FRAME + length);
    let mut message = std::mem::replace(buffer, rest);
    message.drain(..FRAME);
    Ok(Some(message))
}

fn status(headers: &HeaderMap) -> Result<(), Fault> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match text("grpc-status").and_then(|code| code.parse().ok()) {
        Some(0) => Ok(()),
        Some(code) => {
            Err(Fault::of_status(code, text("grpc-message").unwrap_or("no reason given")))
        }
        None => Err(Fault::unexpected()),
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
            while let Some(message) = unframe(&mut buffer).expect("a frame") {
                messages.push(decode::<Vec<u8>>(&message).expect("a message"));
            }
        }
        assert_eq!(messages, [&b"one"[..], b"", b"three"]);
        assert!(buffer.is_empty());
        assert!(unframe(&mut vec![1, 0, 0, 0, 0]).is_err(), "compressed");
    }
}
