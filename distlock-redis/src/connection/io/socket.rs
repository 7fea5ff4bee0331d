//! A socket of either kind, registered with a runtime's reactor or with none.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A socket that a reactor watches for readiness.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// A socket that no reactor watches.
pub(super) enum Deregistered {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl Socket {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut dyn Stream> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream),
        }
    }

    pub(super) fn deregister(self) -> io::Result<Deregistered> {
        Ok(match self {
            Self::Tcp(stream) => Deregistered::Tcp(stream.into_std()?),
            #[cfg(unix)]
            Self::Unix(stream) => Deregistered::Unix(stream.into_std()?),
        })
    }
}

impl Deregistered {
    /// Registers it with the current runtime, which must have its I/O driver enabled.
    pub(super) fn register(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            #[cfg(unix)]
            Self::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
