#include "egress/tls_stream.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <openssl/err.h>
#include <sys/socket.h>

namespace space::egress {
namespace {

constexpr std::size_t kAtOnce = 4 << 10;

boost::system::error_code protocol_error() { return boost::system::errc::make_error_code(boost::system::errc::protocol_error); }

}  // namespace

std::string openssl_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason ? reason : "the connection ended";
}

// A BIO (bio(7)) between OpenSSL and the socket of a TlsStream.
struct RecordSource {
  static TlsStream& owner(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* into, int size) {
    TlsStream& self = owner(bio);
    BIO_clear_retry_flags(bio);
    if (self.received_at_ < self.received_.size()) {
      const std::size_t n = std::min(static_cast<std::size_t>(size), self.received_.size() - self.received_at_);
      std::memcpy(into, self.received_.data() + self.received_at_, n);
      self.received_at_ += n;
      if (self.received_at_ == self.received_.size()) self.received_ = std::string(), self.received_at_ = 0;
      return static_cast<int>(n);
    }
    if (self.in_error_) return -1;
    ssize_t n;
    do n = ::recv(self.below_->socket().native_handle(), into, static_cast<std::size_t>(size), MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) return static_cast<int>(n);
    if (n < 0 && errno == EAGAIN)
      BIO_set_retry_read(bio);
    else
      self.in_error_ =
          n == 0 ? boost::system::error_code(asio::error::eof) : boost::system::error_code(errno, boost::system::system_category());
    return -1;
  }

  static int write(BIO* bio, const char* bytes, int size) {
    BIO_clear_retry_flags(bio);
    owner(bio).out_.append(bytes, static_cast<std::size_t>(size));
    return size;
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "space records");
      if (m) {
        BIO_meth_set_read(m, read);
        BIO_meth_set_write(m, write);
        BIO_meth_set_ctrl(m, control);
      }
      return m;
    }();
    return made;
  }
};

TlsStream::TlsStream(std::unique_ptr<http::Stream> below, SslPtr ssl, std::string received)
    : below_(std::move(below)), ssl_(std::move(ssl)), received_(std::move(received)), flushed_(below_->socket().get_executor()) {
  BIO* bio = BIO_new(RecordSource::method());
  if (!bio) std::abort();  // no memory for a few bytes
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
}

TlsStream::~TlsStream() = default;

// How much of `records` the socket takes at this moment. A pass through the loop, which Asio makes of every write, costs a small answer
// more than the call itself; what is large goes that way all the same, so that one connection does not keep the others waiting.
std::size_t TlsStream::send_now(std::string_view records) {
  const ssize_t n = ::send(below_->socket().native_handle(), records.data(), records.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return n > 0 ? static_cast<std::size_t>(n) : 0;  // an error is found again by whoever sends the rest
}

// Sends what OpenSSL has ready. Reader and writer may both come here; one of them sends at a time, in order.
asio::awaitable<boost::system::error_code> TlsStream::flush() {
  while (flushing_) co_await flushed_.wait();
  flushing_ = true;
  while (!write_error_ && !out_.empty()) {
    const std::string records = std::exchange(out_, {});
    const std::string_view rest = std::string_view(records).substr(records.size() <= kAtOnce ? send_now(records) : 0);
    if (rest.empty()) continue;
    const std::array part{asio::const_buffer(rest.data(), rest.size())};
    const http::Transfer sent = co_await below_->write_all(part);
    write_error_ = sent.error;
  }
  flushing_ = false;
  flushed_.notify_all();
  co_return write_error_;
}

// Returns when the socket has something, be it its end.
asio::awaitable<boost::system::error_code> TlsStream::readable() {
  if (in_error_) co_return in_error_;
  const auto [error] = co_await below_->socket().async_wait(http::Socket::wait_read, kAsTuple);
  co_return error;
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
      const auto error = co_await readable();
      if (!error) continue;
      reason = error.message();
    }
    if (why == SSL_ERROR_SYSCALL && in_error_)
      reason = in_error_ == asio::error::eof ? "the other end closed the connection" : in_error_.message();
    if (!SSL_is_server(ssl_.get()) && verdict != X509_V_OK) reason = X509_verify_cert_error_string(verdict);
    if (reason.empty()) reason = unsent.message();
    co_return fail(ErrorKind::unavailable, "tls_failed", "no TLS connection: " + reason);
  }
}

http::Transfer TlsStream::read_now(asio::mutable_buffer into) {
  if (ended_) return {ended_, 0};
  http::Transfer done;
  auto* out = static_cast<char*>(into.data());
  // Whole records that have been read already are taken along; no further system call for a part of one.
  while (done.bytes < into.size() && (done.bytes == 0 || SSL_has_pending(ssl_.get()) == 1)) {
    ERR_clear_error();
    std::size_t got = 0;
    const int result = SSL_read_ex(ssl_.get(), out + done.bytes, into.size() - done.bytes, &got);
    if (result == 1) {
      done.bytes += got;
      continue;
    }
    const int why = SSL_get_error(ssl_.get(), result);
    ERR_clear_error();
    if (why == SSL_ERROR_WANT_READ) {
      if (done.bytes == 0) done.error = asio::error::would_block;
      return done;
    }
    if (why == SSL_ERROR_ZERO_RETURN)
      ended_ = asio::error::eof;
    else if (!in_error_)
      ended_ = protocol_error();
    // Without close_notify an attacker may have cut the connection: that is not the end of a body.
    else
      ended_ = in_error_ == asio::error::eof ? boost::system::error_code(asio::error::connection_reset) : in_error_;
    if (done.bytes == 0) done.error = ended_;
    return done;
  }
  return done;
}

asio::awaitable<boost::system::error_code> TlsStream::wait() {
  const bool here = SSL_has_pending(ssl_.get()) == 1 || !received_.empty();  // perhaps the beginning of a record alone
  if (here && stale()) co_return boost::system::error_code();
  boost::system::error_code error;
  if (!out_.empty()) error = co_await flush();  // an answer of TLS itself, such as to a change of keys
  if (!error) error = co_await readable();
  co_return error;
}

asio::awaitable<http::Transfer> TlsStream::read_some(std::span<const asio::mutable_buffer> into) {
  asio::mutable_buffer room;
  for (const auto& buffer : into)
    if (room.size() == 0) room = buffer;
  for (;;) {
    http::Transfer done = read_now(room);
    if (done.error != asio::error::would_block) {
      if (done.error && done.error != asio::error::eof && !out_.empty()) (void)co_await flush();  // the alert
      co_return done;
    }
    if (!out_.empty())
      done.error = co_await flush();
    else
      done.error = {};
    if (!done.error) done.error = co_await readable();
    if (done.error) co_return done;
  }
}

asio::awaitable<http::Transfer> TlsStream::write_all(std::span<const asio::const_buffer> parts) {
  // One buffer makes full records; where there are several, a copy is small beside the encryption.
  std::string joined;
  std::string_view whole;
  std::size_t used = 0;
  for (const auto& part : parts)
    if (part.size() > 0 && used++ == 0) whole = {static_cast<const char*>(part.data()), part.size()};
  if (used > 1) {
    joined.reserve(asio::buffer_size(parts));
    for (const auto& part : parts) joined.append(static_cast<const char*>(part.data()), part.size());
    whole = joined;
  }
  http::Transfer done;
  if (whole.empty()) co_return done;
  if (write_error_) co_return http::Transfer{write_error_, 0};
  constexpr std::size_t kOverhead = 128;  // of a record, and more
  out_.reserve(out_.size() + whole.size() + (whole.size() / SSL3_RT_MAX_PLAIN_LENGTH + 1) * kOverhead);
  ERR_clear_error();
  std::size_t written = 0;
  // `out_` takes everything at once; after the handshake nothing has to be read first. From here on `parts` are not needed any more.
  const bool sealed = SSL_write_ex(ssl_.get(), whole.data(), whole.size(), &written) == 1;
  ERR_clear_error();
  if (!joined.empty()) ::explicit_bzero(joined.data(), joined.size());
  if (!sealed) co_return http::Transfer{protocol_error(), 0};
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
  char byte = 0;
  // A look at the socket spares OpenSSL's buffer.
  const bool here = SSL_has_pending(ssl_.get()) == 1 || !received_.empty() || in_error_;
  if (!here && ::recv(below_->socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) return false;
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
