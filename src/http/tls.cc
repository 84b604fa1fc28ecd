#include "http/tls.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

namespace space::http {
namespace {

namespace ssl = asio::ssl;
constexpr unsigned char kAlpn[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

class TlsStream final : public Stream {
 public:
  TlsStream(std::shared_ptr<ssl::context> context, Socket socket, ssl::stream_base::handshake_type side, bool verifies = true)
      : context_(std::move(context)), stream_(std::move(socket), *context_), side_(side), verifies_(verifies) {}

  SSL* native() { return stream_.native_handle(); }

  Task<> handshake() override {
    const auto [error] = co_await stream_.async_handshake(side_, kAsTuple);
    if (!error) co_return Result<>();
    std::string why = error.message();
    if (!verifies_)
      co_return fail(ErrorKind::unavailable, "tls_failed", fmt::format("no TLS connection: {}", why),
                     "check that the other end speaks TLS 1.2 or 1.3 there");
    if (const long verdict = SSL_get_verify_result(native()); side_ == ssl::stream_base::client && verdict != X509_V_OK)
      why = X509_verify_cert_error_string(verdict);
    co_return fail(ErrorKind::unavailable, "tls_failed", fmt::format("no TLS connection: {}", why),
                   "check the other end's certificate, its name and the authority that is trusted here");
  }

  asio::awaitable<Transfer> read_some(std::span<const asio::mutable_buffer> into) override {
    if (ended_) co_return Transfer{ended_, 0};
    auto [error, bytes] = co_await stream_.async_read_some(into, kAsTuple);
    // Without close_notify an attacker may have cut the connection: that is not the end of a body.
    if (!verifies_ && error == ssl::error::stream_truncated) error = asio::error::eof;
    if (error && error != asio::error::operation_aborted) ended_ = error;
    co_return Transfer{error, bytes};
  }

  asio::awaitable<Transfer> write_all(std::span<const asio::const_buffer> parts) override {
    // One buffer makes full records; the copy is small beside the encryption.
    const std::size_t total = asio::buffer_size(parts);
    std::string joined;
    asio::const_buffer whole;
    for (const auto& part : parts)
      if (part.size() == total) whole = part;
    if (whole.size() != total) {
      joined.reserve(total);
      for (const auto& part : parts) joined.append(static_cast<const char*>(part.data()), part.size());
      whole = asio::buffer(joined);
    }
    const auto [error, bytes] = co_await asio::async_write(stream_, whole, kAsTuple);
    co_return Transfer{error, bytes};
  }

  asio::awaitable<void> close_write() override {
    co_await stream_.async_shutdown(kAsTuple);
    boost::system::error_code ignored;
    socket().shutdown(Socket::shutdown_send, ignored);
  }

  Socket& socket() override { return stream_.next_layer(); }
  bool is_plain() const override { return false; }

 private:
  std::shared_ptr<ssl::context> context_;  // of the moment when the connection came
  ssl::stream<Socket> stream_;
  ssl::stream_base::handshake_type side_;
  bool verifies_;  // the other end, where this is a client
};

tl::unexpected<Error> bad_certificate(const std::string& file, const boost::system::error_code& error) {
  return fail(ErrorKind::invalid_argument, "bad_certificate", fmt::format("{}: {}", file, error.message()),
              "give PEM files that belong together");
}

std::shared_ptr<ssl::context> make_context(ssl::context::method method) {
  auto context = std::make_shared<ssl::context>(method);
  SSL_CTX* native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  return context;
}

int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* length, const unsigned char* offered, unsigned offered_length,
                    void*) {
  // A client that offers something, but not HTTP/1.1, is refused (RFC 7301, section 3.2).
  if (SSL_select_next_proto(const_cast<unsigned char**>(chosen), length, kAlpn, sizeof kAlpn, offered, offered_length) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  return SSL_TLSEXT_ERR_OK;
}

class ServerContext final : public TlsContext {
 public:
  ServerContext(std::string certificate, std::string key) : certificate_(std::move(certificate)), key_(std::move(key)) {}

  Result<> reload() override {
    auto context = make_context(ssl::context::tls_server);
    boost::system::error_code error;
    context->use_certificate_chain_file(certificate_, error);
    if (error) return bad_certificate(certificate_, error);
    context->use_private_key_file(key_, ssl::context::pem, error);
    if (error) return bad_certificate(key_, error);
    if (SSL_CTX_check_private_key(context->native_handle()) != 1)
      return fail(ErrorKind::invalid_argument, "bad_certificate", fmt::format("{} is not the key of {}", key_, certificate_),
                  "give PEM files that belong together");
    SSL_CTX_set_alpn_select_cb(context->native_handle(), choose_protocol, nullptr);
    context_ = std::move(context);
    return {};
  }

  std::unique_ptr<Stream> wrap(Socket socket) override {
    return std::make_unique<TlsStream>(context_, std::move(socket), ssl::stream_base::server);
  }

 private:
  std::string certificate_, key_;
  std::shared_ptr<ssl::context> context_;
};

// "example.org:8443" → "example.org", "[::1]:8443" → "::1".
std::string name_of(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.rfind(':'));
}

class ClientContext final : public TlsClientContext {
 public:
  explicit ClientContext(std::shared_ptr<ssl::context> context) : context_(std::move(context)) {}

  std::unique_ptr<Stream> wrap(Socket socket, const std::string& host) override {
    auto stream = std::make_unique<TlsStream>(context_, std::move(socket), ssl::stream_base::client);
    const std::string name = name_of(host);
    SSL* native = stream->native();
    boost::system::error_code no_address;
    asio::ip::make_address(name, no_address);
    // Should a name not be acceptable to OpenSSL, then nothing matches it and the handshake fails.
    X509_VERIFY_PARAM* checks = SSL_get0_param(native);
    if (no_address) {
      SSL_set_tlsext_host_name(native, name.c_str());
      X509_VERIFY_PARAM_set_hostflags(checks, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      X509_VERIFY_PARAM_set1_host(checks, name.c_str(), name.size());
    } else {
      X509_VERIFY_PARAM_set1_ip_asc(checks, name.c_str());
    }
    SSL_set_verify(native, SSL_VERIFY_PEER, nullptr);
    return stream;
  }

 private:
  std::shared_ptr<ssl::context> context_;
};

// What may stand in an SNI (RFC 6066, section 3); it came from a client.
bool is_plain_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  boost::system::error_code no_address;
  asio::ip::make_address(name, no_address);
  return plain && !name.empty() && name.size() <= 253 && no_address;
}

class UnverifiedContext final : public TlsClientContext {
 public:
  explicit UnverifiedContext(std::shared_ptr<ssl::context> context) : context_(std::move(context)) {}

  std::unique_ptr<Stream> wrap(Socket socket, const std::string& host) override {
    auto stream = std::make_unique<TlsStream>(context_, std::move(socket), ssl::stream_base::client, false);
    if (const std::string name = name_of(host); is_plain_name(name)) SSL_set_tlsext_host_name(stream->native(), name.c_str());
    SSL_set_verify(stream->native(), SSL_VERIFY_NONE, nullptr);
    return stream;
  }

 private:
  std::shared_ptr<ssl::context> context_;
};

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::from_files(const std::string& certificate_pem, const std::string& key_pem) {
  try {
    auto context = std::make_shared<ServerContext>(certificate_pem, key_pem);
    TRY_VOID(context->reload());
    return context;
  } catch (const boost::system::system_error& e) {
    return fail(ErrorKind::internal, "tls_unusable", fmt::format("OpenSSL: {}", e.what()));
  }
}

Result<std::shared_ptr<TlsClientContext>> TlsClientContext::make(const std::string& ca_file) {
  try {
    auto context = make_context(ssl::context::tls_client);
    boost::system::error_code error;
    if (ca_file.empty())
      context->set_default_verify_paths(error);
    else
      context->load_verify_file(ca_file, error);
    if (error) return bad_certificate(ca_file, error);
    SSL_CTX_set_alpn_protos(context->native_handle(), kAlpn, sizeof kAlpn);
    return std::make_shared<ClientContext>(std::move(context));
  } catch (const boost::system::system_error& e) {
    return fail(ErrorKind::internal, "tls_unusable", fmt::format("OpenSSL: {}", e.what()));
  }
}

Result<std::shared_ptr<TlsClientContext>> TlsClientContext::make_unverified() {
  try {
    auto context = make_context(ssl::context::tls_client);
    SSL_CTX* native = context->native_handle();
    SSL_CTX_set_alpn_protos(native, kAlpn, sizeof kAlpn);
    if (SSL_CTX_set_cipher_list(native, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1 ||
        SSL_CTX_set1_groups_list(native, "X25519:P-256:P-384:P-521") != 1)
      return fail(ErrorKind::internal, "tls_unusable", "OpenSSL knows no ciphers or curves that are asked for");
    return std::make_shared<UnverifiedContext>(std::move(context));
  } catch (const boost::system::system_error& e) {
    return fail(ErrorKind::internal, "tls_unusable", fmt::format("OpenSSL: {}", e.what()));
  }
}

}  // namespace space::http
