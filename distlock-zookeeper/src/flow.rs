//! The bytes of one connection on their way.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::wire::{OpCode, PING, RecordWriter, ZooKeeperError};

/// The longest answer: ten times what servers send by default.
pub(crate) const LONGEST: usize = 10 << 20;

/// The bytes on their way.
pub(crate) struct FrameBuffer {
    pub(crate) out: Vec<u8>,
    input: Vec<u8>,
    pub(crate) last_sent: Instant,
    pub(crate) closing: bool,
}

impl Default for FrameBuffer {
    fn default() -> Self {
        let (out, input) = (Vec::new(), Vec::new());
        Self { out, input, last_sent: Instant::now(), closing: false }
    }
}

impl FrameBuffer {
    /// Has the server know that the client lives, unless it has heard of it in that time.
    pub(crate) fn beat(&mut self, every: Duration) {
        if self.last_sent.elapsed() >= every {
            self.last_sent = Instant::now();
            let mut ping = RecordWriter::default();
            ping.int(PING).int(OpCode::Ping as i32);
            frame(&mut self.out, &ping.0);
        }
    }

    /// Writes and reads what can be at once; whether there was anything.
    pub(crate) fn step(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Result<bool, ZooKeeperError> {
        let mut moved = false;
        while !self.out.is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, &self.out) {
                Poll::Ready(Ok(0) | Err(_)) => return Err(ZooKeeperError::ConnectionLoss),
                Poll::Ready(Ok(count)) => drop(self.out.drain(..count)),
                Poll::Pending => break,
            }
            moved = true;
        }
        let mut bytes = [0; 8192];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                self.input.extend_from_slice(buffer.filled());
                moved = true;
            }
            Poll::Ready(_) => return Err(ZooKeeperError::ConnectionLoss),
            Poll::Pending => {}
        }
        Ok(moved)
    }

    /// The next whole answer.
    pub(crate) fn next(&mut self) -> Option<Result<Vec<u8>, ZooKeeperError>> {
        let length = u32::from_be_bytes(self.input.get(..4)?.try_into().ok()?) as usize;
        if length > LONGEST {
            return Some(Err(ZooKeeperError::Malformed));
        }
        let answer = self.input.get(4..4 + length)?.to_vec();
        self.input.drain(..4 + length);
        Some(Ok(answer))
    }
}

pub(crate) fn frame(out: &mut Vec<u8>, record: &[u8]) {
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(record);
}
