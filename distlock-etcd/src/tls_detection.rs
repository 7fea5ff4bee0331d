//! Recognizes a server that expects TLS by the first bytes that it sends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::fault::EtcdFault;

/// The first two bytes of a TLS alert.
const ALERT: [u8; 2] = [0x15, 0x03];

/// The first two bytes that a connection received, and how many of them have arrived, in one number.
#[derive(Default)]
pub(crate) struct FirstBytes(AtomicU32);

impl FirstBytes {
    fn record(&self, bytes: &[u8]) {
        let mut known = self.0.load(Ordering::Relaxed);
        for byte in bytes {
            known = match known >> 16 {
                0 => 1 << 16 | u32::from(*byte) << 8,
                1 => 2 << 16 | known & 0xff00 | u32::from(*byte),
                _ => break,
            };
        }
        self.0.store(known, Ordering::Relaxed);
    }

    /// Returns a fault that explains why the connection failed, or `fault` if the first bytes do not tell.
    pub(crate) fn explains(&self, fault: EtcdFault) -> EtcdFault {
        let known = self.0.load(Ordering::Relaxed);
        match known >> 16 {
            _ if fault.answered => fault,
            0 => EtcdFault::speaks_tls(
                "it closed the connection without an answer, as a port with TLS does",
            ),
            2 if known as u16 == u16::from_be_bytes(ALERT) => {
                EtcdFault::speaks_tls("this port speaks TLS")
            }
            _ => fault,
        }
    }
}

/// A socket that records the first bytes it receives.
pub(crate) struct ObservedSocket {
    pub(crate) socket: TcpStream,
    pub(crate) first: Arc<FirstBytes>,
}

impl AsyncRead for ObservedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        self.first.record(&buffer.filled()[before..]);
        read
    }
}

impl AsyncWrite for ObservedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_told_from_the_answers_of_etcd() {
        let words = |pieces: &[&[u8]]| {
            let first = FirstBytes::default();
            pieces.iter().for_each(|piece| first.record(piece));
            first.explains(EtcdFault::unreachable("it was closed")).fault.reason()
        };
        let nothing: &[&[u8]] = &[];
        for tls in [nothing, &[&b"\x15\x03\x01\x00"[..]], &[&b"\x15"[..], b"\x03\x03"]] {
            assert!(words(tls).contains("TLS"), "{tls:?}");
        }
        let settings = &b"\x00\x00\x12\x04"[..];
        for other in [&[&b"\x15"[..]][..], &[settings], &[&b"HTTP"[..]], &[&b"a"[..], b"\x15\x03"]]
        {
            assert_eq!(words(other), "it was closed", "{other:?}");
        }
    }
}
