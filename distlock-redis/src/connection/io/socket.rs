//! TCP and Unix sockets, and a socket that changes its reactor.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use distlock_core::catch_panic::IncapableRuntimes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};

/// A socket that a reactor watches.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

/// A socket that no reactor watches.
pub(crate) enum Deregistered {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

/// A stream of bytes of either kind of socket.
trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

impl Socket {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut dyn ByteStream> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream),
        }
    }

    pub(crate) fn deregister(self) -> io::Result<Deregistered> {
        Ok(match self {
            Self::Tcp(stream) => Deregistered::Tcp(stream.into_std()?),
            #[cfg(unix)]
            Self::Unix(stream) => Deregistered::Unix(stream.into_std()?),
        })
    }
}

impl Deregistered {
    /// Registers the socket with the current runtime, whose I/O driver must be enabled.
    pub(crate) fn register(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            #[cfg(unix)]
            Self::Unix(stream) => Socket::Unix(tokio::net::UnixStream::from_std(stream)?),
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

/// The reactor that a socket is registered with.
enum Location {
    Engine(Socket),
    Caller(Socket),
    /// No reactor, because moving the socket failed: the connection is lost.
    Lost,
}

/// Moves a socket between runtimes.
#[derive(Clone)]
pub(crate) struct SocketMover {
    location: Arc<Mutex<Location>>,
    engine: Handle,
}

impl SocketMover {
    /// Registers the socket with the current runtime. Returns `false` if that failed and the connection is lost.
    pub(crate) fn move_to_this_runtime(&self) -> bool {
        let mut location = self.location();
        let Location::Engine(socket) = std::mem::replace(&mut *location, Location::Lost) else {
            return false;
        };
        let moved = socket.deregister().and_then(|socket| socket.register());
        *location = moved.map_or(Location::Lost, Location::Caller);
        matches!(*location, Location::Caller(_))
    }

    /// Registers the socket with the engine's runtime.
    pub(crate) fn move_to_engine(&self) {
        self.recall(&mut self.location());
    }

    fn recall(&self, location: &mut Location) {
        *location = match std::mem::replace(location, Location::Lost) {
            Location::Caller(socket) => {
                let _on_engine = self.engine.enter();
                let moved = socket.deregister().and_then(|socket| socket.register());
                moved.map_or(Location::Lost, Location::Engine)
            }
            other => other,
        };
    }

    fn location(&self) -> MutexGuard<'_, Location> {
        self.location.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket, as the client library sees it.
pub(crate) struct PortableSocket(SocketMover);

impl PortableSocket {
    /// Makes a portable socket. Must be called on the engine, with whose reactor the socket is registered.
    pub(crate) fn new(socket: Socket) -> (Self, SocketMover) {
        let location = Arc::new(Mutex::new(Location::Engine(socket)));
        let mover = SocketMover { location, engine: Handle::current() };
        (Self(mover.clone()), mover)
    }

    fn poll_with<T>(
        &self,
        mut poll: impl FnMut(Pin<&mut Socket>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut location = self.0.location();
        if let Location::Caller(socket) = &mut *location {
            match poll(Pin::new(socket)) {
                // That runtime has shut down, or the connection is broken. The same call on the engine's reactor tells
                // which.
                Poll::Ready(Err(_)) => self.0.recall(&mut location),
                done => return done,
            }
        }
        match &mut *location {
            Location::Engine(socket) => poll(Pin::new(socket)),
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
        self.poll_with(|socket| socket.poll_read(cx, buf))
    }
}

impl AsyncWrite for PortableSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(|socket| socket.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(|socket| socket.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(|socket| socket.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(|socket| socket.poll_shutdown(cx))
    }
}

/// Whether the current runtime watches sockets.
pub(super) fn watches_sockets() -> bool {
    static UNABLE: IncapableRuntimes<Id> = IncapableRuntimes::new();
    let Ok(here) = Handle::try_current() else { return false };
    // Without unwinding, a runtime without I/O would end the program, so the attempt is not made.
    cfg!(panic = "unwind")
        && UNABLE.attempt(here.id(), watch_one).is_some_and(|watched| watched.is_ok())
}

#[cfg(unix)]
fn watch_one() -> io::Result<()> {
    tokio::net::UnixDatagram::unbound().map(drop)
}

#[cfg(not(unix))]
fn watch_one() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket).map(drop)
}
