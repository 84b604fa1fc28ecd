// TLS over a stream whose first bytes may have been read already: OpenSSL works on memory, the stream below carries the records.
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
  asio::awaitable<http::Transfer> write_all(std::span<const asio::const_buffer> parts) override;
  asio::awaitable<void> close_write() override;  // close_notify and FIN
  http::Socket& socket() override { return below_->socket(); }
  bool is_plain() const override { return false; }

  // Looks without waiting whether the other end closed, or spoke although nothing was asked; records such as tickets are neither.
  bool stale();
  std::string protocol() const;  // what ALPN chose; "" when nothing
  SSL* native() { return ssl_.get(); }

 private:
  asio::awaitable<boost::system::error_code> flush();
  asio::awaitable<boost::system::error_code> fill();

  std::unique_ptr<http::Stream> below_;
  SslPtr ssl_;
  BIO* in_;   // records from below; belongs to ssl_
  BIO* out_;  // records to be sent; belongs to ssl_
  Signal flushed_;
  bool flushing_ = false;
  boost::system::error_code write_error_;
};

std::string openssl_error();  // the last one of this thread, for people

}  // namespace space::egress
