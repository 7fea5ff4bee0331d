//! A socket that changes reactor: it is registered with the engine's runtime, or with a caller's.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::runtime::Handle;

/// A socket that a reactor watches for readiness.
enum Registered {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// A socket that no reactor watches.
enum Deregistered {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl Registered {
    fn stream(&mut self) -> Pin<&mut dyn Stream> {
        match self {
            Self::Tcp(stream) => Pin::new(stream),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream),
        }
    }

    fn deregister(self) -> io::Result<Deregistered> {
        Ok(match self {
            Self::Tcp(stream) => Deregistered::Tcp(stream.into_std()?),
            #[cfg(unix)]
            Self::Unix(stream) => Deregistered::Unix(stream.into_std()?),
        })
    }
}

impl Deregistered {
    /// Another handle of the same socket.
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            #[cfg(unix)]
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    /// Registers it with the current runtime, which must have its I/O driver enabled.
    fn register(self) -> io::Result<Registered> {
        Ok(match self {
            Self::Tcp(stream) => Registered::Tcp(TcpStream::from_std(stream)?),
            #[cfg(unix)]
            Self::Unix(stream) => Registered::Unix(UnixStream::from_std(stream)?),
        })
    }
}

/// The reactor that a socket is registered with.
enum Location {
    Engine(Registered),
    /// The engine keeps a handle that is not registered: with one that is, every answer would wake
    /// its thread for nothing.
    Caller(Registered, Deregistered),
    /// With none, because moving it failed: the connection is lost.
    Lost,
}

/// Moves a socket between runtimes.
#[derive(Clone)]
pub(in super::super) struct SocketMover {
    location: Arc<Mutex<Location>>,
    engine: Handle,
}

impl SocketMover {
    /// Registers the socket with the current runtime; false if it stays with the engine or is lost.
    pub(super) fn move_to_this_runtime(&self) -> bool {
        let mut location = self.location();
        let (moved, new) = match std::mem::replace(&mut *location, Location::Lost) {
            Location::Engine(socket) => match socket.deregister() {
                Ok(own) => match own.try_clone().and_then(Deregistered::register) {
                    Ok(socket) => (true, Location::Caller(socket, own)),
                    Err(_) => (false, self.register_with_engine(own)),
                },
                Err(_) => (false, Location::Lost),
            },
            other => (false, other),
        };
        *location = new;
        moved
    }

    /// Registers the socket with the engine's runtime.
    pub(super) fn move_to_engine(&self) {
        self.recall(&mut self.location());
    }

    fn recall(&self, location: &mut Location) {
        *location = match std::mem::replace(location, Location::Lost) {
            Location::Caller(socket, own) => {
                drop(socket);
                self.register_with_engine(own)
            }
            other => other,
        };
    }

    fn register_with_engine(&self, socket: Deregistered) -> Location {
        let _on_engine = self.engine.enter();
        socket.register().map_or(Location::Lost, Location::Engine)
    }

    fn location(&self) -> MutexGuard<'_, Location> {
        self.location.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket as the client library sees it.
pub(in super::super) struct PortableSocket(SocketMover);

impl PortableSocket {
    /// To be called on the engine.
    pub(in super::super) fn tcp(stream: TcpStream) -> (Self, SocketMover) {
        Self::new(Registered::Tcp(stream))
    }

    /// To be called on the engine.
    #[cfg(unix)]
    pub(in super::super) fn unix(stream: UnixStream) -> (Self, SocketMover) {
        Self::new(Registered::Unix(stream))
    }

    fn new(socket: Registered) -> (Self, SocketMover) {
        let location = Arc::new(Mutex::new(Location::Engine(socket)));
        let mover = SocketMover { location, engine: Handle::current() };
        (Self(mover.clone()), mover)
    }

    fn poll_with<T>(
        &self,
        mut poll: impl FnMut(Pin<&mut dyn Stream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut location = self.0.location();
        if let Location::Caller(socket, _) = &mut *location {
            match poll(socket.stream()) {
                // Either that runtime has shut down or the connection is broken. The same call on
                // the engine's reactor tells which.
                Poll::Ready(Err(_)) => self.0.recall(&mut location),
                done => return done,
            }
        }
        match &mut *location {
            Location::Engine(socket) => poll(socket.stream()),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for PortableSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_with(|stream| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for PortableSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(|stream| stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(|stream| stream.poll_shutdown(cx))
    }
}
