// What the tests of this folder share: a gateway for one sandbox with real sockets, an upstream with a certificate of its own, a
// resolver, and a guest that dials by name. Only what the guest dialled is told by the test: there is no redirect on loopback.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/udp.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "egress/authority.h"
#include "egress/credentials.h"
#include "egress/dns_message.h"
#include "egress/flow.h"
#include "egress/sandbox.h"
#include "egress/tls_session.h"
#include "http/server.h"
#include "http/test_support.h"

namespace space::egress::test {

inline asio::awaitable<bool> send(http::Stream& stream, std::string bytes) {
  const std::array part{asio::const_buffer(bytes.data(), bytes.size())};
  const http::Transfer sent = co_await stream.write_all(part);
  co_return !sent.error;
}

// Up to and with `end`; what came before the connection ended, when it ended first.
inline asio::awaitable<std::string> receive(http::Stream& stream, std::string end) {
  std::string seen;
  while (seen.find(end) == std::string::npos) {
    std::array<char, 4096> piece;
    const std::array room{asio::mutable_buffer(piece.data(), piece.size())};
    const http::Transfer got = co_await stream.read_some(room);
    if (got.error) co_return seen + (got.error == asio::error::eof ? "<end>" : "<cut>");
    seen.append(piece.data(), got.bytes);
  }
  co_return seen;
}

// Says something at once, then waits without end.
inline asio::awaitable<void> greets(http::Stream& stream) {
  co_await send(stream, "hello\n");
  (void)co_await receive(stream, "never");
}

// What a TLS client sends first.
inline std::string client_hello(const std::string& server_name) {
  const auto tls = UpstreamTls::make("").value();
  const std::vector<std::string> protocols{"http/1.1"};
  const SslPtr ssl = tls->connect(server_name, protocols).value();
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  (void)SSL_do_handshake(ssl.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(SSL_get_wbio(ssl.get()), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

inline void run(const std::function<asio::awaitable<void>(asio::any_io_executor)>& body) {
  http::test::run(body, std::chrono::seconds(10));
}

class Gateway {
 public:
  using Serve = std::function<asio::awaitable<void>(http::Stream&)>;

  explicit Gateway(asio::any_io_executor executor) : executor_(executor), dns_(executor, {asio::ip::make_address("127.0.0.1"), 0}) {
    folder_ = std::make_unique<TempDir>(TempDir::make("/tmp", "egress-test-").value());
    auto made = make_authority("upstreamupstreamupstream").value();
    upstream_authority_ = Authority::load(made.certificate_pem, made.key_der).value();
    EXPECT_TRUE(write_file_durable(folder_->path() / "upstream.pem", made.certificate_pem));
    auto own = make_authority("lineagelineagelineage123").value();
    ca_pem = own.certificate_pem;
    authorities_.set("lineagelineagelineage123", Authority::load(own.certificate_pem, own.key_der).value());
    EXPECT_TRUE(write_file_durable(folder_->path() / "sandbox.pem", ca_pem));
    upstream_tls_ = UpstreamTls::make(folder_->path() / "upstream.pem").value();
    guest_tls_ = UpstreamTls::make(folder_->path() / "sandbox.pem").value();
    Dialer::Options options;
    options.resolver.servers = {{Address::v4({127, 0, 0, 1}), dns_.local_endpoint().port()}};
    options.allowed_ranges = {Cidr::parse("127.0.0.1").value()};
    dialer_ = std::make_unique<Dialer>(executor_, options);
    services_ = {executor_,
                 dialer_.get(),
                 &credentials,
                 &authorities_,
                 upstream_tls_.get(),
                 [this](json::object body) {
                   if (const auto* event = body.if_contains("event")) events.push_back(event->get_object());
                   return true;
                 },
                 nullptr,
                 [this](int) -> Result<Endpoint> { return dialled_; }};
    services_.told = [this]() -> asio::awaitable<void> {
      if (told) co_await told();
    };
    sandbox = std::make_shared<Sandbox>(services_, "sandboxsandboxsandbox123");
    std::vector<Fd> sockets;
    sockets.push_back(Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
    sockets.push_back(Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
    sockets.push_back(Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
    for (Fd& fd : sockets) {
      SocketAddress any = to_socket_address({Address::v4({127, 0, 0, 1}), 0});
      EXPECT_EQ(::bind(fd.get(), any.get(), any.length), 0);
      SocketAddress bound;
      ::getsockname(fd.get(), bound.get(), &bound.length);
      ports.push_back(from_socket_address(bound)->port);
    }
    EXPECT_TRUE(sandbox->serve(std::move(sockets)));
    spawn(executor_, answer_names());
  }
  ~Gateway() {
    sandbox->detach();
    boost::system::error_code ignored;
    dns_.close(ignored);
    if (upstream_) upstream_->close(ignored);
  }

  // The rest of a policy or binding may hold PORT: the upstream's.
  void set(std::string policy, std::string bindings = "[]", std::string limits = "{}") {
    std::string text =
        fmt::format(R"({{"tenant":"t","lineage":"lineagelineagelineage123","generation":{},"policy":{},"credentials":{},"limits":{}}})",
                    ++generation_, policy, bindings, limits);
    for (auto at = text.find("PORT"); at != std::string::npos; at = text.find("PORT")) text.replace(at, 4, std::to_string(upstream_port));
    auto settings = Settings::parse(parse_json_object(text).value());
    ASSERT_TRUE(settings) << describe(settings.error());
    sandbox->update(std::make_shared<const Settings>(std::move(*settings)));
  }

  // Every connection to the upstream runs `serve`. With a name, in TLS with a certificate for that name.
  void upstream(Serve serve, std::string tls_name = "", std::string protocol = "http/1.1") {
    upstream_protocol_ = std::move(protocol);
    upstream_ = std::make_unique<asio::ip::tcp::acceptor>(executor_, asio::ip::tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
    upstream_port = upstream_->local_endpoint().port();
    spawn(executor_, accept(std::move(serve), std::move(tls_name)));
  }

  // A guest's connection to `name` (which gets a synthetic address) or to an address, at the upstream's port.
  asio::awaitable<std::unique_ptr<http::Stream>> dial(std::string host) {
    const auto address = Address::parse(host);
    dialled_ = {address ? *address : NameMap::v4(sandbox->names().number(host)), upstream_port};
    asio::ip::tcp::socket socket(executor_);
    (void)co_await socket.async_connect({asio::ip::make_address("127.0.0.1"), ports[0]}, kAsTuple);
    auto adopted = http::adopt_socket(executor_, Fd(socket.release()));
    // The gateway asks what was dialled when it accepts: let it, before the next one is dialled.
    co_await sleep_for(std::chrono::milliseconds(5));
    co_return http::make_plain_stream(std::move(*adopted));
  }

  // The same in TLS, trusting the sandbox's CA alone. nullptr: the handshake failed.
  asio::awaitable<std::unique_ptr<http::Stream>> dial_tls(std::string host, std::string server_name = "",
                                                          std::string protocol = "http/1.1") {
    auto plain = co_await dial(host);
    const std::vector<std::string> protocols{protocol};
    auto ssl = guest_tls_->connect(server_name.empty() ? host : server_name, protocols);
    auto stream = std::make_unique<TlsStream>(std::move(plain), std::move(*ssl));
    const auto done = co_await stream->handshake();
    if (!done) co_return nullptr;
    co_return stream;
  }

  bool saw(std::string_view kind, std::string_view verdict) const {
    return std::any_of(events.begin(), events.end(), [&](const json::object& e) {
      return std::string_view(e.at("kind").as_string()) == kind && std::string_view(e.at("verdict").as_string()) == verdict;
    });
  }

  std::shared_ptr<Sandbox> sandbox;
  CredentialTable credentials;
  std::string ca_pem;
  std::vector<json::object> events;
  std::vector<std::uint16_t> ports;  // TCP, UDP DNS, TCP DNS
  std::vector<std::string> asked;    // of the resolver: the names whose A was, beside which AAAA is
  std::uint16_t upstream_port = 0;
  std::string resolves_to = "127.0.0.1";
  std::chrono::milliseconds names_after{0};     // the resolver takes that long
  std::function<asio::awaitable<void>()> told;  // while the parent hears of a new name

 private:
  asio::awaitable<void> answer_names() {
    for (;;) {
      std::array<char, 2048> buffer;
      asio::ip::udp::endpoint from;
      const auto [error, n] = co_await dns_.async_receive_from(asio::buffer(buffer), from, kAsTuple);
      if (error) co_return;
      const auto question = parse_dns_question({buffer.data(), n});
      if (!question) continue;
      if (question->type == static_cast<std::uint16_t>(DnsType::a)) asked.push_back(question->name);
      std::vector<Address> addresses;
      const Address address = Address::parse(resolves_to).value();
      if (question->type == (address.is_v4() ? 1 : 28)) addresses.push_back(address);
      const std::string answer = dns_answer(*question, DnsCode::no_error, addresses, 60, true);
      if (names_after.count() > 0) co_await sleep_for(names_after);
      dns_.send_to(asio::buffer(answer), from);
    }
  }

  asio::awaitable<void> accept(Serve serve, std::string tls_name) {
    for (;;) {
      auto [error, socket] = co_await upstream_->async_accept(kAsTuple);
      if (error) co_return;
      auto adopted = http::adopt_socket(executor_, Fd(socket.release()));
      spawn(executor_, serve_one(serve, http::make_plain_stream(std::move(*adopted)), tls_name));
    }
  }

  asio::awaitable<void> serve_one(Serve serve, std::unique_ptr<http::Stream> stream, std::string tls_name) {
    if (!tls_name.empty()) {
      auto ssl = upstream_authority_->accept(tls_name, upstream_protocol_);
      auto tls = std::make_unique<TlsStream>(std::move(stream), std::move(*ssl));
      const auto done = co_await tls->handshake();
      if (!done) co_return;
      stream = std::move(tls);
    }
    co_await serve(*stream);
    co_await stream->close_write();
  }

  asio::any_io_executor executor_;
  std::unique_ptr<TempDir> folder_;
  asio::ip::udp::socket dns_;
  std::unique_ptr<asio::ip::tcp::acceptor> upstream_;
  std::shared_ptr<Authority> upstream_authority_;
  Authorities authorities_;
  std::unique_ptr<UpstreamTls> upstream_tls_, guest_tls_;
  std::unique_ptr<Dialer> dialer_;
  Services services_;
  Endpoint dialled_;
  std::string upstream_protocol_;
  std::int64_t generation_ = 0;
};

}  // namespace space::egress::test
