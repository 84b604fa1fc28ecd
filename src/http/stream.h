// What the server and the client read from and write to: a socket, plain or with TLS in front of it. For this folder and src/egress.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <span>

#include "base/async.h"
#include "base/fd.h"

namespace space::http {

using Socket = asio::generic::stream_protocol::socket;

struct Transfer {
  boost::system::error_code error;  // asio::error::eof: the other end closed in good order
  std::size_t bytes = 0;
};

// One connected byte stream on one loop. At most one read and one write may be under way at a time.
class Stream {
 public:
  static constexpr std::size_t kMaxParts = 4;

  virtual ~Stream() = default;
  virtual Task<> handshake() = 0;  // before anything else; nothing to do on a plain socket
  // Fills the buffers in order with what is there; waits for at least one byte.
  virtual asio::awaitable<Transfer> read_some(std::span<const asio::mutable_buffer> into) = 0;
  // Writes all of at most kMaxParts buffers, with one system call where the kernel takes that much.
  virtual asio::awaitable<Transfer> write_all(std::span<const asio::const_buffer> parts) = 0;
  // Says in good order that nothing more will be written (close_notify, FIN); reading goes on.
  virtual asio::awaitable<void> close_write() = 0;
  virtual Socket& socket() = 0;
  virtual bool is_plain() const = 0;

  // What the socket itself gives, past TLS: for reading a connection away before it is closed.
  asio::awaitable<Transfer> read_socket(std::span<const asio::mutable_buffer> into);
  void cancel();  // pending calls end with operation_aborted; the stream stays usable
  void close();
  void reset();  // closes with RST where the protocol has one, so that the other end cannot take it for a tidy end

 protected:
  boost::system::error_code ended_;  // of reading
};

// Takes a connected stream socket of any family. TCP_NODELAY is set on TCP.
Result<Socket> adopt_socket(const asio::any_io_executor& executor, Fd fd);
std::unique_ptr<Stream> make_plain_stream(Socket socket);

}  // namespace space::http
