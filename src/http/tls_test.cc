#include "http/tls.h"

#include <boost/asio/detached.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl.hpp>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "http/test_support.h"

namespace space::http {
namespace {

using namespace test;

// A self-signed certificate that is its own authority, written as two PEM files.
void make_certificate(const std::filesystem::path& folder, const std::string& name, const std::string& alternative_name, bool rsa = false) {
  EVP_PKEY* key = rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate, subject);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, alternative_name.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  X509_sign(certificate, key, EVP_sha256());
  BIO* out = BIO_new_file((folder / (name + ".crt")).c_str(), "w");
  PEM_write_bio_X509(out, certificate);
  BIO_free(out);
  out = BIO_new_file((folder / (name + ".key")).c_str(), "w");
  PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  BIO_free(out);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

struct Certificates {
  Certificates() {
    make_certificate(dir.path(), "one", "DNS:one.test,IP:127.0.0.1");
    make_certificate(dir.path(), "two", "DNS:two.test");
    make_certificate(dir.path(), "rsa", "DNS:rsa.test", true);
  }
  std::string certificate(const std::string& name) const { return dir.path() / (name + ".crt"); }
  std::string key(const std::string& name) const { return dir.path() / (name + ".key"); }
  ClientOptions trust(const std::string& name, std::string host) const {
    ClientOptions options;
    options.tls = TlsClientContext::make(certificate(name)).value();
    options.host = std::move(host);
    return options;
  }
  TempDir dir = TempDir::make("/tmp", "space-test-").value();
};

Task<> big_echo(Exchange& exchange) {
  CO_TRY(std::string body, co_await exchange.read_body(64 << 20));
  co_return co_await exchange.reply(json_response(200, std::move(body)));
}

TEST(Tls, CarriesRequestsAndKeepsConnections) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Certificates files;
    RunningServer server(executor, big_echo, Options(), TlsContext::from_files(files.certificate("one"), files.key("one")).value());
    for (const char* host : {"one.test", "one.test:7070", "127.0.0.1", "127.0.0.1:7070"}) {
      Client client(executor, tcp_connector("127.0.0.1", server.port), files.trust("one", host));
      Request request;
      request.method = "PUT";
      for (std::size_t size : {3U, 100'000U, 20'000'000U}) {
        request.body = std::string(size, 'x');
        const auto response = co_await client.call(request, 64 << 20);
        EXPECT_EQ(response ? response->body.size() : 0U, size) << (response ? "" : describe(response.error()));
      }
      EXPECT_EQ(server.server.connections(), 1U);
      client.close_idle();
      while (server.server.connections() > 0) co_await sleep_for(milliseconds(2));
    }
  });
}

TEST(Tls, VerifiesAuthorityAndName) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Certificates files;
    RunningServer server(executor, echo, Options(), TlsContext::from_files(files.certificate("one"), files.key("one")).value());
    const auto code = [&](ClientOptions options) -> asio::awaitable<std::string> {
      Client client(executor, tcp_connector("127.0.0.1", server.port), std::move(options));
      const auto response = co_await client.call(Request());
      co_return response ? "ok" : response.error().code;
    };
    EXPECT_EQ(co_await code(files.trust("one", "one.test")), "ok");
    EXPECT_EQ(co_await code(files.trust("one", "two.test")), "tls_failed");
    EXPECT_EQ(co_await code(files.trust("one", "127.0.0.2")), "tls_failed");
    EXPECT_EQ(co_await code(files.trust("two", "one.test")), "tls_failed");
    ClientOptions system = files.trust("one", "one.test");
    system.tls = TlsClientContext::make("").value();
    EXPECT_EQ(co_await code(system), "tls_failed");
    EXPECT_EQ(co_await code(ClientOptions()), "connection_lost") << "a client without TLS";
  });
}

TEST(Tls, ReloadSwapsTheCertificateForLaterConnections) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Certificates files;
    const auto copy = [&](const std::string& from) {
      for (const char* kind : {".crt", ".key"})
        std::filesystem::copy_file(files.dir.path() / (from + kind), files.dir.path() / (std::string("live") + kind),
                                   std::filesystem::copy_options::overwrite_existing);
    };
    copy("one");
    const auto context = TlsContext::from_files(files.certificate("live"), files.key("live")).value();
    RunningServer server(executor, echo, Options(), context);
    Client one(executor, tcp_connector("127.0.0.1", server.port), files.trust("one", "one.test"));
    EXPECT_TRUE(co_await one.call(Request()));
    copy("two");
    EXPECT_TRUE(context->reload());
    EXPECT_TRUE(co_await one.call(Request())) << "the open connection goes on";
    Client two(executor, tcp_connector("127.0.0.1", server.port), files.trust("two", "two.test"));
    EXPECT_TRUE(co_await two.call(Request()));
    std::filesystem::copy_file(files.key("one"), files.key("live"), std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(context->reload().error().code, "bad_certificate");
    two.close_idle();
    EXPECT_TRUE(co_await two.call(Request())) << "after a failure the old one stays";
    EXPECT_FALSE(TlsContext::from_files("/nonexistent", files.key("one")));
  });
}

TEST(Tls, StreamsNoticeClosedReadersAndSlowHandshakesAreCut) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Certificates files;
    bool ended = false;
    const Handler events = [&](Exchange& exchange) -> Task<> {
      CO_TRY_VOID(co_await exchange.start(200, Headers()));
      co_await exchange.disconnected();
      ended = true;
      co_return fail(ErrorKind::cancelled, "gone", "gone");
    };
    Options options;
    options.head_timeout = milliseconds(80);
    RunningServer server(executor, events, options, TlsContext::from_files(files.certificate("one"), files.key("one")).value());
    Client client(executor, tcp_connector("127.0.0.1", server.port), files.trust("one", "one.test"));
    auto stream = (co_await client.open(Request())).value();
    EXPECT_TRUE(co_await stream->head());
    stream.reset();
    while (!ended) co_await sleep_for(milliseconds(2));
    RawClient silent(executor, server.port);
    EXPECT_EQ(co_await silent.read_to_end(), "");
    while (server.server.connections() > 0) co_await sleep_for(milliseconds(2));
  });
}

TEST(Tls, EarlyRefusalsReachTheClient) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Certificates files;
    const Handler refuse = [](Exchange&) -> Task<> { co_return fail(ErrorKind::too_large, "body_too_large", "no"); };
    RunningServer server(executor, refuse, Options(), TlsContext::from_files(files.certificate("one"), files.key("one")).value());
    Client client(executor, tcp_connector("127.0.0.1", server.port), files.trust("one", "one.test"));
    Request request;
    request.method = "PUT";
    request.body = std::string(5 << 20, 'x');
    EXPECT_EQ((co_await client.call(request)).error().code, "body_too_large");
  });
}

// Answers without a length and closes without close_notify, as many servers do; notes the name that each client said.
struct CarelessServer : std::enable_shared_from_this<CarelessServer> {
  CarelessServer(const asio::any_io_executor& executor, const Certificates& files, const std::string& name)
      : context(asio::ssl::context::tls_server), acceptor(executor, {asio::ip::make_address("127.0.0.1"), 0}) {
    context.use_certificate_chain_file(files.certificate(name));
    context.use_private_key_file(files.key(name), asio::ssl::context::pem);
  }
  std::uint16_t port() const { return acceptor.local_endpoint().port(); }
  void start() { asio::co_spawn(acceptor.get_executor(), serve(shared_from_this()), asio::detached); }
  static asio::awaitable<void> serve(std::shared_ptr<CarelessServer> self) {
    for (;;) {
      auto [error, socket] = co_await self->acceptor.async_accept(kAsTuple);
      if (error) co_return;
      asio::ssl::stream<asio::ip::tcp::socket> stream(std::move(socket), self->context);
      const auto [failed] = co_await stream.async_handshake(asio::ssl::stream_base::server, kAsTuple);
      if (failed) continue;
      const char* name = SSL_get_servername(stream.native_handle(), TLSEXT_NAMETYPE_host_name);
      self->names.push_back(name ? name : "");
      std::string head;
      (void)co_await asio::async_read_until(stream, asio::dynamic_buffer(head), "\r\n\r\n", kAsTuple);
      (void)co_await asio::async_write(stream, asio::buffer(std::string_view("HTTP/1.1 200 OK\r\n\r\nall of it")), kAsTuple);
      stream.next_layer().shutdown(asio::ip::tcp::socket::shutdown_send);
    }
  }
  asio::ssl::context context;
  asio::ip::tcp::acceptor acceptor;
  std::vector<std::string> names;
};

Task<std::string> ask(asio::any_io_executor executor, std::uint16_t port, ClientOptions options) {
  Client client(executor, tcp_connector("127.0.0.1", port), std::move(options));
  CO_TRY(Response response, co_await client.call(Request()));
  co_return std::move(response.body);
}

ClientOptions unverified(std::string host) {
  ClientOptions options;
  options.tls = TlsClientContext::make_unverified().value();
  options.host = std::move(host);
  options.connect_timeout = milliseconds(500);
  return options;
}

TEST(Tls, UnverifiedTakesWhateverCertificateThereIs) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Certificates files;
    const auto server = std::make_shared<CarelessServer>(executor, files, "two");
    server->start();
    for (const char* host : {"one.test", "3000-abc.one.test:3000", "127.0.0.1:3000", "[::1]:3000", "not a name", ""}) {
      const auto body = co_await ask(executor, server->port(), unverified(host));
      EXPECT_EQ(body.value_or(""), "all of it") << host << " " << (body ? "" : describe(body.error()));
    }
    EXPECT_EQ(server->names, (std::vector<std::string>{"one.test", "3000-abc.one.test", "", "", "", ""})) << "names alone are said";
    // Who verifies is also not told that a body which was cut is whole.
    EXPECT_EQ((co_await ask(executor, server->port(), files.trust("two", "two.test"))).error().code, "answer_cut_off");
  });
}

TEST(Tls, UnverifiedLetsAServerChooseLittleAndWaitsForNone) {
  run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    const Certificates files;
    const auto costly = std::make_shared<CarelessServer>(executor, files, "rsa");
    SSL_CTX* native = costly->context.native_handle();
    SSL_CTX_set_max_proto_version(native, TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(native, "DHE-RSA-AES128-GCM-SHA256");  // whose prime is the server's to choose
    SSL_CTX_set_dh_auto(native, 1);
    costly->start();
    EXPECT_EQ((co_await ask(executor, costly->port(), files.trust("rsa", "rsa.test"))).error().code, "answer_cut_off") << "others would";
    EXPECT_EQ((co_await ask(executor, costly->port(), unverified("one.test"))).error().code, "tls_failed");
    RunningServer plain(executor, echo);
    EXPECT_EQ((co_await ask(executor, plain.port, unverified("one.test"))).error().code, "tls_failed");
    asio::ip::tcp::acceptor silent(executor, {asio::ip::make_address("127.0.0.1"), 0});
    EXPECT_EQ((co_await ask(executor, silent.local_endpoint().port(), unverified("one.test"))).error().code, "connect_timeout");
  });
}

}  // namespace
}  // namespace space::http
