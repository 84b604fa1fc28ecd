// TLS over a socket whose first bytes may have been read already. OpenSSL reads records straight from the socket into a buffer of its
// own, which it gives back when nothing is left in it, and writes them into `out_`, so that several go out with one system call and a
// connection that is silent holds neither.
#pragma once

#include <memory>
#include <openssl/ssl.h>
#include <string>

#include "http/stream.h"

namespace space::egress {

struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPtr = std::unique_ptr<SSL, SslFree>;

class TlsStream final : public http::Stream {
 public:
  // `ssl` is set up, as server or client; `received` was read from `below` before.
  TlsStream(std::unique_ptr<http::Stream> below, SslPtr ssl, std::string received = {});
  ~TlsStream() override;

  Task<> handshake() override;  // tls_failed with the reason; a certificate's fault by name
  asio::awaitable<http::Transfer> read_some(std::span<const asio::mutable_buffer> into) override;
  // Fills as much of `into` as is here without waiting; would_block when that is nothing.
  http::Transfer read_now(asio::mutable_buffer into);
  // Returns when read_now has something to say.
  asio::awaitable<boost::system::error_code> wait();
  asio::awaitable<http::Transfer> write_all(std::span<const asio::const_buffer> parts) override;
  asio::awaitable<void> close_write() override;  // close_notify and FIN
  http::Socket& socket() override { return below_->socket(); }
  bool is_plain() const override { return false; }

  // Looks without waiting whether the other end closed, or spoke although nothing was asked; records such as tickets are neither.
  bool stale();
  std::string protocol() const;  // what ALPN chose; "" when nothing
  SSL* native() { return ssl_.get(); }

 private:
  friend struct RecordSource;  // what OpenSSL reads from and writes to (tls_stream.cc)
  std::size_t send_now(std::string_view records);
  asio::awaitable<boost::system::error_code> flush();
  asio::awaitable<boost::system::error_code> readable();

  std::unique_ptr<http::Stream> below_;
  SslPtr ssl_;
  std::string received_;  // read before, not yet given to OpenSSL
  std::size_t received_at_ = 0;
  std::string out_;                     // records to be sent
  boost::system::error_code in_error_;  // of the socket: its end, or what went wrong
  Signal flushed_;
  bool flushing_ = false;
  boost::system::error_code write_error_;
};

std::string openssl_error();  // the last one of this thread, for people

}  // namespace space::egress
