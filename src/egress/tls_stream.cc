#include "egress/tls_stream.h"

#include <array>
#include <cerrno>
#include <boost/asio/error.hpp>
#include <fmt/format.h>
#include <openssl/err.h>
#include <sys/socket.h>

namespace space::egress {
namespace {

constexpr std::size_t kRecords = 17 << 10;  // one whole record and its head

boost::system::error_code protocol_error() { return boost::system::errc::make_error_code(boost::system::errc::protocol_error); }

}  // namespace

std::string openssl_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason ? reason : "the connection ended";
}

TlsStream::TlsStream(std::unique_ptr<http::Stream> below, SslPtr ssl, std::string received)
    : below_(std::move(below)), ssl_(std::move(ssl)), in_(BIO_new(BIO_s_mem())), out_(BIO_new(BIO_s_mem())), flushed_(below_->socket().get_executor()) {
  SSL_set_bio(ssl_.get(), in_, out_);
  if (!received.empty()) BIO_write(in_, received.data(), static_cast<int>(received.size()));
}

TlsStream::~TlsStream() = default;

// Sends what OpenSSL has ready. Reader and writer may both come here; one of them sends at a time, in order.
asio::awaitable<boost::system::error_code> TlsStream::flush() {
  while (flushing_) co_await flushed_.wait();
  flushing_ = true;
  while (!write_error_) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(out_, &data);
    if (size <= 0) break;
    const std::string records(data, static_cast<std::size_t>(size));
    (void)BIO_reset(out_);
    const std::array part{asio::const_buffer(records.data(), records.size())};
    const http::Transfer sent = co_await below_->write_all(part);
    write_error_ = sent.error;
  }
  flushing_ = false;
  flushed_.notify_all();
  co_return write_error_;
}

asio::awaitable<boost::system::error_code> TlsStream::fill() {
  const auto buffer = std::make_unique_for_overwrite<std::array<char, kRecords>>();
  const std::array room{asio::mutable_buffer(buffer->data(), buffer->size())};
  const http::Transfer got = co_await below_->read_some(room);
  if (got.bytes > 0) BIO_write(in_, buffer->data(), static_cast<int>(got.bytes));
  co_return got.error;
}

Task<> TlsStream::handshake() {
  for (;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    const int why = SSL_get_error(ssl_.get(), result);
    std::string reason = result == 1 || why == SSL_ERROR_WANT_READ ? std::string() : openssl_error();
    const long verdict = SSL_get_verify_result(ssl_.get());
    const auto unsent = co_await flush();  // a fatal alert too
    if (result == 1) {
      if (unsent) co_return fail(ErrorKind::unavailable, "tls_failed", "no TLS connection: " + unsent.message());
      co_return Result<>();
    }
    if (why == SSL_ERROR_WANT_READ && !unsent) {
      const auto error = co_await fill();
      if (!error) continue;
      reason = error == asio::error::eof ? "the other end closed the connection" : error.message();
    }
    if (!SSL_is_server(ssl_.get()) && verdict != X509_V_OK) reason = X509_verify_cert_error_string(verdict);
    if (reason.empty()) reason = unsent.message();
    co_return fail(ErrorKind::unavailable, "tls_failed", "no TLS connection: " + reason);
  }
}

asio::awaitable<http::Transfer> TlsStream::read_some(std::span<const asio::mutable_buffer> into) {
  if (ended_) co_return http::Transfer{ended_, 0};
  asio::mutable_buffer room;
  for (const auto& buffer : into)
    if (room.size() == 0) room = buffer;
  for (;;) {
    ERR_clear_error();
    std::size_t got = 0;
    const int result = SSL_read_ex(ssl_.get(), room.data(), room.size(), &got);
    if (result == 1) co_return http::Transfer{{}, got};
    const int why = SSL_get_error(ssl_.get(), result);
    ERR_clear_error();
    boost::system::error_code error;
    if (why == SSL_ERROR_ZERO_RETURN) {
      error = asio::error::eof;
    } else if (why == SSL_ERROR_WANT_READ) {
      if (BIO_pending(out_) > 0) error = co_await flush();
      if (!error) error = co_await fill();
      // Without close_notify an attacker may have cut the connection: that is not the end of a body.
      if (error == asio::error::eof) error = asio::error::connection_reset;
    } else {
      (void)co_await flush();
      error = protocol_error();
    }
    if (!error) continue;
    if (error != asio::error::operation_aborted) ended_ = error;
    co_return http::Transfer{error, 0};
  }
}

asio::awaitable<http::Transfer> TlsStream::write_all(std::span<const asio::const_buffer> parts) {
  // One buffer makes full records; the copy is small beside the encryption.
  std::string joined;
  std::string_view whole;
  if (parts.size() == 1) {
    whole = {static_cast<const char*>(parts[0].data()), parts[0].size()};
  } else {
    joined.reserve(asio::buffer_size(parts));
    for (const auto& part : parts) joined.append(static_cast<const char*>(part.data()), part.size());
    whole = joined;
  }
  http::Transfer done;
  if (whole.empty()) co_return done;
  if (write_error_) co_return http::Transfer{write_error_, 0};
  ERR_clear_error();
  std::size_t written = 0;
  // Memory takes everything at once; after the handshake nothing has to be read first.
  if (SSL_write_ex(ssl_.get(), whole.data(), whole.size(), &written) != 1) {
    ERR_clear_error();
    co_return http::Transfer{protocol_error(), 0};
  }
  done.error = co_await flush();
  done.bytes = done.error ? 0 : written;
  co_return done;
}

asio::awaitable<void> TlsStream::close_write() {
  ERR_clear_error();
  if (SSL_is_init_finished(ssl_.get())) (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
  (void)co_await flush();
  co_await below_->close_write();
}

bool TlsStream::stale() {
  char records[4096];
  ssize_t n;
  while ((n = ::recv(below_->socket().native_handle(), records, sizeof records, MSG_DONTWAIT)) > 0) BIO_write(in_, records, static_cast<int>(n));
  if (n == 0 || errno != EAGAIN) return true;
  char byte = 0;
  std::size_t got = 0;
  ERR_clear_error();
  const int result = SSL_peek_ex(ssl_.get(), &byte, 1, &got);
  const int why = SSL_get_error(ssl_.get(), result);
  ERR_clear_error();
  return result == 1 || why != SSL_ERROR_WANT_READ;
}

std::string TlsStream::protocol() const {
  const unsigned char* name = nullptr;
  unsigned length = 0;
  SSL_get0_alpn_selected(ssl_.get(), &name, &length);
  return {reinterpret_cast<const char*>(name), length};
}

}  // namespace space::egress
